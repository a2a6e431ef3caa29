"""Access rules of protocol version 1: manifests with a schema, and the decisions by them."""
