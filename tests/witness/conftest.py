"""An enclave with history, and a witness that has seen nothing of it yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.migration.moving import Moving
from tests.client.stage import Stage
from tests.witness.staged_witness import StagedWitness


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage("sync", tmp_path, monkeypatch)
    yield stage
    stage.close()


@pytest.fixture
def moving(stage: Stage) -> Moving:
    return Moving(stage)


@pytest.fixture
def post(moving: Moving, tmp_path: Path) -> Iterator[StagedWitness]:
    post = StagedWitness(moving.stage, moving.enclave.id, tmp_path / "witness")
    yield post
    post.close()
