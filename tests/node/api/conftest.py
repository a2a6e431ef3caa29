"""Fixtures shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.testing.memory_store import MemoryStore
from tests.node.api.registry_scene import Scene, registry_id, serving
from tests.node.served import SMALL, Enclave, Served, sqlite


@pytest.fixture(scope="module", params=["the short way", "the long way"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = sqlite(tmp_path_factory.mktemp("node"))
    with Served(store=store, quick=request.param == "the short way") as node:
        yield node
    store.close()


@pytest.fixture
def enclave(node: Served) -> Enclave:
    return node.create(SMALL)


@pytest.fixture(scope="module")
def closed(node: Served) -> Enclave:
    """Return an enclave with a closed bundle."""
    enclave = node.create(SMALL)
    for i in range(3):
        enclave.send("bob", "message", f"{i}")
    return enclave


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    store = MemoryStore() if request.param == "memory" else sqlite(tmp_path)
    with Served(serving(registry_id()), store) as node:
        yield Scene(node)
    store.close()
