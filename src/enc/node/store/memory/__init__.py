"""A store in dictionaries, for tests."""
