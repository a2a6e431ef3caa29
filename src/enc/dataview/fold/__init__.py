"""Computes state from events: contents, sequencers, heads."""
