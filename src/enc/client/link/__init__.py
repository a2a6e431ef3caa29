"""The connection to one enclave on its node, and to its next node after a move."""
