"""Evacuates the node: asks owners to move their enclaves, and has them copied ahead of time."""
