"""`enc group`: group chat."""
