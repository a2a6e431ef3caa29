"""Honest logs and heads, and people who would frame their nodes with them."""
