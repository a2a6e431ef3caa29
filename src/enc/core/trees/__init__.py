"""Merkle trees: bundles and the history log, the sparse state tree, signed heads and proofs."""
