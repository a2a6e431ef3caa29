"""Fixtures: a sound store with an enclave of each kind, and a copy of it to be damaged."""

from pathlib import Path

import pytest

from tests.node.fsck.stores import filled_file
from tests.node.salvage.salvaging import Damaged, Original


@pytest.fixture(scope="package")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    path = tmp_path_factory.mktemp("salvage") / "enc.db"
    return Original(path, filled_file(path))


@pytest.fixture
def damaged(original: Original, tmp_path: Path) -> Damaged:
    return Damaged(original, tmp_path)
