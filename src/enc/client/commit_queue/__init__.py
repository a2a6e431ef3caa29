"""Commits that are kept in a file until their enclaves' nodes answer."""
