"""One process that hosts enclaves."""
