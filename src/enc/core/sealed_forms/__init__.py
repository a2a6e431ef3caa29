"""Encrypted forms of the apps: personal store, direct messages, group keys."""
