"""Fixtures: every store, and a filled SQLite file to be damaged."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.node.fsck.stores import Damaged, fill
from tests.node.store_host import Host


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """Return a valid store with one enclave of each kind, and ids both in their index and still to be moved there."""
    path = tmp_path_factory.mktemp("fsck") / "enc.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "GENERATION", 16)
        patch.setattr(ids, "STRIDE", 1)
        store = SqliteStore(path)
        names = fill(Host(store))
        store.close()
    return Damaged(path, names)


@pytest.fixture
def damaged(filled: Damaged, tmp_path: Path) -> Damaged:
    shutil.copy(filled.path, tmp_path / "enc.db")
    return Damaged(tmp_path / "enc.db", filled.names)
