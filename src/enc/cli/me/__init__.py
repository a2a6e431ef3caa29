"""`enc me`: the personal store."""
