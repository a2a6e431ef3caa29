"""Verifies what a node answers: events, heads, proofs; remembers pinned heads."""
