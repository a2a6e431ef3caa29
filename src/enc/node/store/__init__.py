"""A node's storage: the protocol (`base`, `push`) and its SQLite implementation."""
