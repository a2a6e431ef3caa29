"""Bytes: encodings, hashes, signatures, encryption, and the shared data types."""
