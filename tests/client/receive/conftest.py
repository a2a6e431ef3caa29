"""The receiver of a test, and its simulated node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.pushing import Post


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    post = Post(tmp_path, monkeypatch)
    yield post
    post.close()
