"""`enc dm`: direct messages."""
