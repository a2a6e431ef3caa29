"""Limits per peer and per enclave."""
