"""A registry of version 1: the document's schema, judged by the same rules."""

from typing import Any

import pytest

from enc.core.errors import InvalidTarget, RegistryConflict, Unauthorized
from enc.core.machine.replay import Replay
from enc.core.trees.state_key import DELETED, status_key
from tests.core.registry.registry_schema_v1 import SCHEMA
from tests.core.registry_world import TEAM, House, identity_entry, node_entry
from tests.core.world import World, person


@pytest.fixture
def registry() -> World:
    return World(SCHEMA, by="olga")


@pytest.fixture
def house() -> House:
    house = House(TEAM)
    house.talk()
    return house


def entry_of(registry: World, kind: Any, key: bytes) -> bytes | None:
    record = registry.memory.record(kind, key)
    return record.entry if record else None


def test_one_active_entry_a_key_and_a_delete_deregisters(registry: World, house: House) -> None:
    first = registry.send("node", "Reg_Node", node_entry("node"))
    second = registry.send("node", "Reg_Node", node_entry("node"))
    identity = registry.send("carol", "Reg_Identity", identity_entry("carol"))
    enclave = registry.send("alice", "Reg_Enclave", house.entry(app="chat"))
    assert entry_of(registry, "node", person("node").public) == second.id
    assert registry.leaf(status_key(first.id)) == second.id
    assert entry_of(registry, "identity", person("carol").public) == identity.id
    assert entry_of(registry, "enclave", house.state.enclave) == enclave.id
    registry.send("carol", "Delete", {"reason": "author"}, tags=(("r", identity.id.hex()),))
    assert entry_of(registry, "identity", person("carol").public) is None
    assert registry.leaf(status_key(identity.id)) == DELETED


def test_everybody_speaks_for_themselves_alone(registry: World, house: House) -> None:
    assert isinstance(registry.refused("mallory", "Reg_Node", node_entry("node")), Unauthorized)
    assert isinstance(registry.refused("mallory", "Reg_Identity", identity_entry("carol")), Unauthorized)
    assert isinstance(registry.refused("mallory", "Reg_Enclave", house.entry()), Unauthorized)
    entry = registry.send("node", "Reg_Node", node_entry("node"))
    tags = (("r", entry.id.hex()),)
    assert isinstance(registry.refused("mallory", "Delete", {"reason": "author"}, tags=tags), Unauthorized)
    assert isinstance(registry.refused("node", "Update", "{}", tags=tags), InvalidTarget)


def test_a_new_owner_brings_a_proof_and_the_old_one_is_shut_out(registry: World, house: House) -> None:
    registry.send("alice", "Reg_Enclave", house.entry())
    house.transfer("alice", "bob")
    assert isinstance(registry.refused("bob", "Reg_Enclave", house.entry()), Unauthorized)
    registry.send("bob", "Reg_Enclave", house.entry(owner_proof=house.proof("bob")))
    assert isinstance(registry.refused("alice", "Reg_Enclave", house.entry()), Unauthorized)


def test_another_log_of_the_same_manifest_is_a_conflict(registry: World, house: House) -> None:
    registry.send("alice", "Reg_Enclave", house.entry())
    other = House(TEAM, node="node2")
    other.talk()
    assert isinstance(registry.refused("alice", "Reg_Enclave", other.entry()), RegistryConflict)


def test_replay_gives_the_same_records(registry: World, house: House) -> None:
    registry.send("alice", "Reg_Enclave", house.entry())
    registry.send("node", "Reg_Node", node_entry("node"))
    replay = Replay(registry.state.enclave)
    for event in registry.events:
        replay.add(event)
    assert replay.state == registry.state
