"""A stage for the blocking and for the async client, and an enclave on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.scene import Scene
from tests.client.stage import FACES, Stage


@pytest.fixture(params=FACES)
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage(request.param, tmp_path, monkeypatch)
    yield stage
    stage.close()


@pytest.fixture
def scene(stage: Stage) -> Scene:
    return Scene(stage)
