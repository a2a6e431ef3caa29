"""Fixtures: a sound store with an enclave of each kind, and a copy of it to be damaged."""

from pathlib import Path

import pytest

from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite.store import SqliteStore
from tests.node.fsck.stores import fill
from tests.node.salvage.salvaging import Damaged, Original
from tests.node.store_host import Host


@pytest.fixture(scope="package")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    path = tmp_path_factory.mktemp("salvage") / "enc.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "GENERATION", 16)
        patch.setattr(ids, "STRIDE", 1)
        store = SqliteStore(path)
        names = fill(Host(store))
        store.close()
    return Original(path, names)


@pytest.fixture
def damaged(original: Original, tmp_path: Path) -> Damaged:
    return Damaged(original, tmp_path)
