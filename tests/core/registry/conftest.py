"""Fixtures of the tests of a registry."""

import pytest

from tests.core.registry_world import TEAM, House, Registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def house() -> House:
    """Return alice's enclave, with a closed bundle."""
    house = House(TEAM)
    house.talk()
    return house
