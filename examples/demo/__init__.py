"""The steps of demo.py."""
