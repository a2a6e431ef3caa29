"""Chains of Migrates, and replays of a registry."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.log.event import finalize
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event, Tags
from enc.core.registry.migrate_chain import Link, check_chain
from enc.core.registry.ownership import KnownOwnership
from tests.core.registry.entries_house import GONE, flipped, sold
from tests.core.registry_world import TEAM, House, Registry, identity_entry, node_entry
from tests.core.stored import memory_of
from tests.core.strategies import examples
from tests.core.world import NO_POINT, START, Json, about, person

# Chains


def test_a_chain_there_and_back_peaceful_and_forced(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    links = []
    for node, forced in (("node2", False), ("node3", True), ("node", False), ("node2", True)):
        links.append(house.move_to(node, forced=forced))
        house.talk(3)
    registry.register("alice", house, links=links)
    assert registry.sequencer(house) == "node2"
    for wrong in (links[1:], links[:1] + links[3:], links[::-1], links[:1]):
        fresh = Registry()
        fresh.register("alice", house)
        if wrong in (links[1:], links[:1] + links[3:], links[:1]):
            fresh.register("alice", house, links=wrong)  # a forced link proves nothing about the sequencer before it
        else:
            assert fresh.refusal("alice", house, links=wrong).startswith(
                "REGISTRY_CONFLICT migrate_events[1]: finalised by"
            )


def test_a_chain_starts_at_the_sequencer_on_record(registry: Registry, house: House) -> None:
    first = house.move_to("node2")
    house.talk(1)
    second = house.move_to("node3")
    registry.register("alice", house, links=[first])
    neither = "finalised by neither the sequencer before it nor its own new_sequencer"
    assert registry.refusal("alice", house, links=[first, second]) == f"REGISTRY_CONFLICT migrate_events[0]: {neither}"
    registry.register("alice", house, links=[second])
    assert registry.sequencer(house) == "node3"


def test_a_false_link_is_refused_though_the_chain_ends_at_the_sequencer_on_record(
    registry: Registry, house: House
) -> None:
    """The entry itself is the holder's, and names the right sequencer."""
    registry.register("alice", house)
    house.move_to("node2")
    back = house.move_to("node")
    registry.register("alice", house)
    refusal = registry.refusal("alice", house, links=[back], app="chat")
    assert refusal.startswith("REGISTRY_CONFLICT migrate_events[0]: finalised by neither")


def test_a_move_is_registered_once(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    moved = house.move_to("node2", forced=True)
    registry.register("alice", house, links=[moved])
    refusal = registry.refusal("alice", house, links=[moved])
    assert refusal == "REGISTRY_CONFLICT migrate_events[0]: not later than what was submitted before"


def test_a_move_in_the_millisecond_of_the_latest_proof_is_not_before_it(registry: Registry, house: House) -> None:
    registry.register("alice", house, owner_proof=house.proof("alice", passage=()))
    now = registry.of(house).proved_at
    moved = house.send("alice", "Migrate", house.migrate("node2"), at=now - START)
    assert moved.timestamp == now
    registry.register("alice", house, links=[moved])
    assert registry.sequencer(house) == "node2"


def test_a_gap_in_a_chain(registry: Registry, house: House) -> None:
    house.move_to("node2")
    house.talk(1)
    second = house.move_to("node3")
    assert registry.refusal("alice", house, links=[second]).startswith(
        "REGISTRY_CONFLICT migrate_events[0]: finalised by neither"
    )


def test_a_chain_with_a_foreign_link(registry: Registry, house: House) -> None:
    other = House({**TEAM, "meta": {"title": "another"}})
    foreign, own = other.move_to("node2"), house.move_to("node2")
    refusal = registry.refusal("alice", house, links=[foreign])
    assert refusal == "REGISTRY_CONFLICT migrate_events[0]: of another enclave"
    house.talk(1)
    refusal = registry.refusal("alice", house, links=[own, foreign])
    assert refusal == "REGISTRY_CONFLICT migrate_events[1]: of another enclave"


def test_a_link_that_is_no_migrate_or_not_one_of_this_place(registry: Registry, house: House) -> None:
    talk = house.send("alice", "message", "hello")
    assert registry.refusal("alice", house, links=[talk]) == "REGISTRY_CONFLICT migrate_events[0]: expected a Migrate"
    commit = house.commit("alice", "Migrate", house.migrate("node2", prev_seq=house.state.seq + 5))
    early = finalize(commit, person("node"), house.state.min_timestamp, house.state.seq + 1)
    assert (
        registry.refusal("alice", house, links=[early])
        == "REGISTRY_CONFLICT migrate_events[0]: seq: not the one after prev_seq"
    )
    commit = house.commit("alice", "Migrate", {"new_sequencer": NO_POINT, "prev_seq": 1, "ct_root": "00" * 32})
    nowhere = finalize(commit, person("node"), house.state.min_timestamp, house.state.seq + 1)
    assert registry.refusal("alice", house, links=[nowhere]).startswith(
        "REGISTRY_CONFLICT migrate_events[0]: content.new_sequencer"
    )


@pytest.mark.parametrize("field", ["hash", "sig", "seq_sig", "id", "timestamp", "exp"])
def test_a_link_passes_the_full_check(registry: Registry, house: House, field: str) -> None:
    moved = house.move_to("node2")

    def change(content: Json) -> None:
        link = content["migrate_events"][0]
        link[field] = link[field] + 1 if isinstance(link[field], int) else flipped(link[field])

    assert registry.refusal("alice", house, change, links=[moved]).startswith("REGISTRY_CONFLICT migrate_events[0]: ")


def test_a_link_of_a_new_owner_s_carries_a_proof_under_the_sequencer_before(registry: Registry, house: House) -> None:
    registry.register("alice", house)
    sold(house)
    proof = house.proof("bob")
    moved = house.move_to("node2", by="bob")
    house.talk(1)
    further = house.move_to("node3", by="bob")
    assert registry.refusal("bob", house, links=[moved]).endswith(
        "[0]: neither by the holder nor with an owner proof of its author"
    )
    registry.register("bob", house, links=[Link(moved, proof), Link(further)])
    assert (registry.holder(house), registry.sequencer(house)) == ("bob", "node3")
    assert registry.of(house).proved_size == proof.sth.ts


def test_a_link_s_proof_is_of_the_sequencer_before_and_of_its_author(registry: Registry, house: House) -> None:
    sold(house)
    good = house.proof("bob")
    moved = house.move_to("node2", by="bob")
    after = house.proof("bob")
    wrong = {
        "sth: not signed by this sequencer": after,
        "smt_proof.k: the key of another identity": house.proof("alice", node="node", passage=()),
        "passage: does not start at the holder, nor at an owner of that time": replace(good, passage=()),
    }
    for message, proof in wrong.items():
        refusal = registry.refusal("bob", house, links=[Link(moved, proof)])
        assert refusal == f"REGISTRY_CONFLICT migrate_events[0].owner_proof.{message}"


def test_a_chain_may_pass_from_owner_to_owner(registry: Registry, house: House) -> None:
    """Alice moves and sells to Bob; he moves by force and sells to Carol, who submits all of it."""
    registry.register("alice", house)
    first = house.move_to("node2")
    sold(house)
    bobs = house.proof("bob")
    second = house.move_to("node3", by="bob", forced=True)
    house.transfer("bob", "carol")
    proof = house.proof("carol", holder="bob")
    links = [Link(first), Link(second, bobs)]
    assert (
        registry.refusal("carol", house, links=links)
        == "REGISTRY_CONFLICT neither by the entry's holder nor with an owner proof"
    )
    assert registry.refusal("carol", house, links=[*links[:1], Link(second)], owner_proof=proof).startswith(
        "REGISTRY_CONFLICT"
    )
    assert registry.refusal("carol", house, links=links, owner_proof=house.proof("carol")).startswith(
        "REGISTRY_CONFLICT owner_proof.passage[0]: timestamp: from before what was proved"
    )
    registry.register("carol", house, links=links, owner_proof=proof)
    assert (registry.holder(house), registry.sequencer(house)) == ("carol", "node3")
    assert registry.of(house).proved_size == proof.sth.ts > bobs.sth.ts


def test_a_proof_within_a_chain_counts_for_what_follows(registry: Registry, house: House) -> None:
    """The submitter's own proof must be above the size that a link has proved."""
    sold(house)
    proof = house.proof("bob")
    moved = house.move_to("node2", by="bob")
    stale = house.proof("bob", size=proof.sth.ts, node="node2", holder="bob")
    refusal = registry.refusal("bob", house, links=[Link(moved, proof)], owner_proof=stale)
    assert refusal.startswith(f"REGISTRY_CONFLICT owner_proof.sth.ts: must be above {proof.sth.ts}")


def test_an_empty_chain_changes_nothing(house: House) -> None:
    known = KnownOwnership(house.manifest, house.policy, person("alice").public, 0, person("node").public)
    assert check_chain([], known) is known


# Replay gives the same


def stored(registry: Registry) -> Any:
    return registry.memory.records, registry.state_hash


def replayed(registry: Registry) -> Any:
    replay = Replay()
    for event in registry.events:
        replay.add(event)
    return memory_of(replay).records, replay.state_hash()


PEOPLE = ("alice", "bob", "carol")


acts = st.lists(st.tuples(st.sampled_from(PEOPLE), st.integers(0, 6)), max_size=24)


def act(registry: Registry, house: House, name: str, kind: int) -> None:
    """Try one action of somebody; the registry may reject it."""
    active = [record.entry for record in registry.memory.records.values() if record.entry is not None]
    attempt: tuple[str, Any, Tags]
    if kind == 0:
        attempt = ("Reg_Node", node_entry(name), ())
    elif kind == 1:
        attempt = ("Reg_Identity", identity_entry(name), ())
    elif kind == 2 and active:
        attempt = ("Delete", GONE, (("r", min(active).hex()),))
    elif kind == 3:
        attempt = ("Reg_Enclave", house.entry(), ())
    elif kind == 4:
        owner = next(each for each in PEOPLE if house.policy.is_owner(house.bitmask(each)))
        if owner != name:
            house.transfer(owner, name)
        holder = (
            house.proof(name, registry.holder(house))
            if registry.memory.records.get(("enclave", house.state.enclave))
            else house.proof(name)
        )
        attempt = ("Reg_Enclave", house.entry(owner_proof=holder), ())
    elif kind == 5 and registry.events[-1].type.startswith("Reg_"):
        attempt = ("Delete", GONE, about(registry.events[-1]))
    else:
        attempt = ("note", "hello", ())
    if not registry.code(name, attempt[0], attempt[1], tags=attempt[2]):
        registry.send(name, attempt[0], attempt[1], tags=attempt[2])


@examples(40)
@given(acts)
def test_there_is_one_active_entry_a_key_and_replay_equals_life(sequence: list[tuple[str, int]]) -> None:
    registry, house = Registry(), House(TEAM)
    house.talk()
    for name, kind in sequence:
        act(registry, house, name, kind)
    entries: dict[tuple[str, bytes], list[Event]] = {}
    for event in registry.events:
        if event.type in ("Reg_Node", "Reg_Identity", "Reg_Enclave") and registry.status(event) is None:
            key = house.state.enclave if event.type == "Reg_Enclave" else event.from_
            entries.setdefault((event.type, key), []).append(event)
    assert all(len(active) == 1 for active in entries.values())
    active = {record.entry for record in registry.memory.records.values() if record.entry is not None}
    assert active == {event.id for events in entries.values() for event in events}
    assert replayed(registry) == stored(registry)
