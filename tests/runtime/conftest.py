"""Fixtures shared by the tests of this folder."""

import pytest

from tests.runtime.endpoint_server import Authority


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()
