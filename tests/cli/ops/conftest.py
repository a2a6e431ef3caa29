"""Fixtures for the commands of operators."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ENC_NODE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
