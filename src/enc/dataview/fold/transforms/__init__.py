"""Transforms of tables, one per file: DataFrame in, DataFrame out; no session, no writing."""
