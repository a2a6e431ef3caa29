"""What a node keeps: a small protocol (`base`), in memory and in SQLite."""
