"""A group on a simulated node: the real client and app, no sockets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.client import Enclave
from tests.apps.group.notices import PERSONAL
from tests.apps.group.party import Party
from tests.client.stage import Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage = Stage("sync", tmp_path, monkeypatch)
    yield stage
    stage.close()


@pytest.fixture
def party(stage: Stage) -> Party:
    return Party(stage)


@pytest.fixture
def personal(stage: Stage) -> Enclave:
    """Return dave's personal enclave."""
    found: Enclave = stage.client("dave").create(PERSONAL)
    return found
