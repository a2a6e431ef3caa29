"""Answers sealed requests: access checks, queries, proofs, pulls, registry lookups."""
