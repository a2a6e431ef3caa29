"""Storage: one interface, implemented on SQLite."""
