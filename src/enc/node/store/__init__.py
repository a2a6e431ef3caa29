"""Storage: one protocol, implemented on SQLite."""
