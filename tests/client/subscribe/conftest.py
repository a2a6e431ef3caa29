"""A scene for the blocking client: a feed is the same for both."""

from pathlib import Path
from typing import Any

import pytest

from tests.client.scene import Scene
from tests.client.stage import Stage


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = Stage("sync", tmp_path, monkeypatch)
    yield Scene(stage)
    stage.close()
