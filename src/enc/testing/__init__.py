"""Nodes without sockets, a clock and a lying node, for the tests of apps. `enc.testing.plugin` has
fixtures for pytest.
"""

from enc.testing.clock import Clock
from enc.testing.identities import Identities
from enc.testing.liar import Liar, lying_node
from enc.testing.local_node import LocalNode, local_node
from enc.testing.network import LocalNetwork

__all__ = ["Clock", "Identities", "Liar", "LocalNetwork", "LocalNode", "local_node", "lying_node"]
