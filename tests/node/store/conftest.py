"""Fixtures: every kind of store behind the same protocol, a sequencer over it, and a SQLite store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.node.store_host import Host


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture
def host(store: Store) -> Host:
    return Host(store)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()
