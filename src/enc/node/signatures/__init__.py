"""Checks signatures in child processes."""
