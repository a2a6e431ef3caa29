"""Fixtures for pytest. Add `pytest_plugins = ["enc.testing.plugin"]` to your top conftest.py."""

from collections.abc import Iterator

import pytest

from enc.client import Registry
from enc.testing.clock import Clock
from enc.testing.identities import Identities
from enc.testing.liar import Liar, lying_node
from enc.testing.local_node import LocalNode, local_node
from enc.testing.network import LocalNetwork


@pytest.fixture
def clock() -> Clock:
    """The time of nodes and clients. `node.tick(ms)` advances it and does what is due."""
    return Clock()


@pytest.fixture
def network(clock: Clock) -> LocalNetwork:
    """The network of the nodes of this test."""
    return LocalNetwork(clock)


@pytest.fixture
def identities() -> Identities:
    """Identities by name: `identities["ada"]`."""
    return Identities()


@pytest.fixture
def node(network: LocalNetwork) -> Iterator[LocalNode]:
    """A node without sockets."""
    with local_node(network=network) as node:
        yield node


@pytest.fixture
def registry(node: LocalNode) -> Registry:
    """A registry on the node, in which the node is registered."""
    return node.registry


@pytest.fixture
def liar(network: LocalNetwork) -> Iterator[Liar]:
    """A node that lies on request."""
    with lying_node(network=network) as liar:
        yield liar
