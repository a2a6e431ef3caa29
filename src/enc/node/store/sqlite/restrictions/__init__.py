"""The table of what the operator forbids, and the start of a purge by order."""
