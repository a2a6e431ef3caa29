"""Quotas: how much one identity may store on this node."""
