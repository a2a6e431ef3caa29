"""Fixtures shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from enc.node.fsck import check_store
from tests.node.imports.import_orders import NEW
from tests.node.served import Served


@pytest.fixture
def node() -> Iterator[Served]:
    with Served() as served:
        yield served
        report = check_store(served.store, NEW.public, None, lambda events: None)
        assert report.differences == []
