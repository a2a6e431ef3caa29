"""The fixtures of the testing kit."""

from enc.testing.plugin import clock, identities, liar, network, node, registry

__all__ = ["clock", "identities", "liar", "network", "node", "registry"]
