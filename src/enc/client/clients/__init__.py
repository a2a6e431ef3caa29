"""The blocking and the async client, and their setup."""
