"""Publishes changed rows to the serving database."""
