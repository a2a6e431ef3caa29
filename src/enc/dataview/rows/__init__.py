"""Rows of events: schema, conversion, verification."""
