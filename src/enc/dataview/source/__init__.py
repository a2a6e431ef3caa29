"""Spark sources: nodes, archives, pushes."""
