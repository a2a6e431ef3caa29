"""Access rules of protocol version 2: manifests with States and traits, and the decisions by them."""
