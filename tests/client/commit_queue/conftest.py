"""Fixtures shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.commit_queue.queue_scene import Scene, queue_scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with queue_scene(tmp_path) as scene:
        yield scene
