"""Fixtures of the tests of evidence: honest logs."""

import pytest

from tests.client.evidence.logs import MANIFEST
from tests.core.world import World


@pytest.fixture(scope="module")
def world() -> World:
    made = World(MANIFEST)
    for i in range(14):
        made.send("alice", "message", f"number {i}")
    return made


@pytest.fixture(scope="module")
def slotted() -> World:
    """Return an honest log whose second bundle holds three events, of which the last sets a slot."""
    made = World({**MANIFEST, "slots": [{"event": "Shared", "key": "topic", "operator": "owner", "ops": ["C"]}]})
    for i in range(5):
        made.send("alice", "message", f"number {i}")
    made.send("alice", "Shared", {"key": "topic", "value": "hello"})
    for i in range(9):
        made.send("alice", "message", f"later {i}", at=5000 + i)
    assert [bundle.count for bundle in made.memory.bundles] == [4, 3, 4, 4]
    return made
