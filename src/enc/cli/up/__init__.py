"""`enc up`: a local node, DataView and page in one command."""
