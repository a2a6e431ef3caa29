"""Serves views from a database over HTTP. Needs no Spark."""
