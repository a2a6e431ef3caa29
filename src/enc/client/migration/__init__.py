"""Moves an enclave to another node, and follows enclaves that moved."""
