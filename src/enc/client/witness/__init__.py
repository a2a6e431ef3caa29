"""Asks witnesses for co-signed heads, and requires a quorum of them."""
