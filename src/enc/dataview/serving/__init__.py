"""Serves views from a database over HTTP. Only `publish` needs Spark."""
