"""Fixtures shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.node.read.enclave_history import Life, lived
from tests.node.served import Served, sqlite


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = sqlite(tmp_path_factory.mktemp("answers"))
    with Served(store=store) as node:
        yield node
    store.close()


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    store = sqlite(tmp_path_factory.mktemp("life"))
    with Served(store=store) as node:  # its clock does not advance after the history is made
        yield lived(node)
    store.close()
