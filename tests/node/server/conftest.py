"""Fixtures shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.certificates import Certificate
from tests.node.running import RunningNode
from tests.node.served import Enclave, Served, sqlite
from tests.node.server.limits_setup import WIDE


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = sqlite(tmp_path_factory.mktemp("limits"))
    with Served(store=store) as node:
        yield node
    store.close()


@pytest.fixture(scope="module")
def enclave(node: Served) -> Enclave:
    return node.create(WIDE)


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Serve a node that waits one second for a request, an idle connection and a pong."""
    env = {
        "ENC_NODE_LIMITS_REQUEST_TIMEOUT_S": "1",
        "ENC_NODE_LIMITS_IDLE_TIMEOUT_S": "1",
        "ENC_NODE_LIMITS_WS_PING_S": "1",
    }
    with RunningNode(tmp_path_factory.mktemp("strict") / "node", env=env) as node:
        yield node
