"""Looks enclaves, nodes and identities up in a registry, and registers them."""
