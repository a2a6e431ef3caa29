"""`enc dataview`."""
