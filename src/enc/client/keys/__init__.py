"""Identities and key files."""
