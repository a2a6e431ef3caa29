"""`enc key` and `enc config`: the user's keys and settings."""
