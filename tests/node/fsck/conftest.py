"""Fixtures: every store, and a filled SQLite file to be damaged."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.node.fsck.stores import Damaged, filled_file


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """Return a valid store with one enclave of each kind."""
    path = tmp_path_factory.mktemp("fsck") / "enc.db"
    return Damaged(path, filled_file(path))


@pytest.fixture
def damaged(filled: Damaged, tmp_path: Path) -> Damaged:
    shutil.copy(filled.path, tmp_path / "enc.db")
    return Damaged(tmp_path / "enc.db", filled.names)
