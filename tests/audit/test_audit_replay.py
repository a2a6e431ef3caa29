"""A replay continues after a fault: each is reported once, with its seq, and its consequences are
not.
"""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from enc.audit.spilling_store import SpilledCommits, SpillingStore
from enc.core.log.event import erase, finalize
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.fault import Fault
from enc.core.primitives.types import Event
from tests.audit.logs import MANIFEST
from tests.core.world import START, World, person, pub


@pytest.fixture
def world() -> World:
    """Return a log of eleven events: messages, one of them edited, and a new member."""
    made = World(MANIFEST)
    first = made.send("alice", "message", "one")
    made.send("alice", "Move", {"target": pub("bob"), "from": "OUTSIDER", "to": "MEMBER"})
    for i in range(4):
        made.send("bob", "message", f"more {i}")
    made.send("alice", "Update", "won", tags=(("r", first.id.hex()),))
    for i in range(3):
        made.send("alice", "message", f"last {i}")
    return made


def replayed(events: Sequence[Event], **more: object) -> AuditReplay:
    replay = AuditReplay(events[0].enclave, **more)  # type: ignore[arg-type]
    for event in events:
        replay.add(event)
    replay.finish()
    return replay


def reported(events: Sequence[Event]) -> list[tuple[str, int]]:
    return [(fault.kind, fault.seq) for fault in replayed(events).faults]


def by(event: Event, name: str, **changes: int) -> Event:
    """Return the event as the node `name` would have made it."""
    time, seq = changes.get("timestamp", event.timestamp), changes.get("seq", event.seq)
    return finalize(event, person(name), time, seq)


def test_an_honest_log_has_no_fault_and_the_replays_root(world: World) -> None:
    replay = replayed(world.events)
    assert replay.faults == []
    assert replay.state == world.state
    assert replay.sequencers == [(person("node").public, 0)]
    assert replay.roots_unknown_from is None


def test_a_place_that_is_left_out(world: World) -> None:
    events = world.events
    assert reported(events[:4] + events[5:]) == [("gap", 4)]
    (fault,) = replayed(events[:4] + events[6:]).faults
    assert (fault.kind, fault.seq, fault.before) == ("gap", 4, 6)
    assert "events 4 to 5 are missing" in fault.what
    assert reported(events[:3] + events[4:6] + events[7:]) == [("gap", 3), ("gap", 6)]


def test_places_that_are_exchanged_are_no_gap(world: World) -> None:
    events = list(world.events)
    events[4], events[5] = events[5], events[4]
    assert reported(events) == [("reordering", 4)]
    events = list(world.events)
    assert reported([*events[:3], *events[4:7], events[3], *events[7:]]) == [("reordering", 3)]
    assert reported([*events[:5], events[4], *events[5:]])[0] == ("reordering", 4)


def test_a_time_that_falls_is_told_once(world: World) -> None:
    events = list(world.events)
    events[5] = by(events[5], "node", timestamp=events[4].timestamp - 1)
    assert reported(events) == [("falling_timestamp", 5)]
    later = [by(event, "node", timestamp=event.timestamp - 2) for event in events[6:]]
    assert reported([*events[:6], *later]) == [("falling_timestamp", 5)]
    assert reported([*events[:5], by(events[5], "node", timestamp=events[4].timestamp), *world.events[6:]]) == []


def test_a_time_that_exp_does_not_allow(world: World) -> None:
    late = by(world.events[-1], "node", timestamp=world.events[-1].exp + 60_001)
    assert reported([*world.events[:-1], late]) == [("unauthorised_event", 10)]


def test_a_manifest_too_has_a_time_that_exp_allows(world: World) -> None:
    late = by(world.events[0], "node", timestamp=START + 10_000_000)
    assert reported([late]) == [("unauthorised_event", 0)]


def test_what_the_rules_refuse_changes_nothing(world: World) -> None:
    commit = world.commit("carol", "message", "hello")
    event = finalize(commit, person("node"), START + world.next, 11)
    replay = replayed([*world.events, event])
    assert [(fault.kind, fault.seq) for fault in replay.faults] == [("unauthorised_event", 11)]
    assert replay.roots_unknown_from is None
    move = world.commit("bob", "Move", {"target": pub("carol"), "from": "OUTSIDER", "to": "MEMBER"})
    replay = replayed([*world.events, finalize(move, person("node"), START + world.next, 11)])
    assert [(fault.kind, fault.seq) for fault in replay.faults] == [("unauthorised_event", 11)]
    assert replay.roots_unknown_from == 11


def test_rights_are_asked_for_again_when_they_change(world: World) -> None:
    world.send("bob", "message", "still here")
    world.send("alice", "Move", {"target": pub("bob"), "from": "MEMBER", "to": "OUTSIDER"})
    world.send("alice", "message", "still here")
    late = [
        finalize(world.commit(name, "message", "and now"), person("node"), START + world.next, seq)
        for name, seq in (("bob", 14), ("alice", 15))
    ]
    assert reported([*world.events, *late]) == [("unauthorised_event", 14)]
    world.send("alice", "Pause", "")
    paused = finalize(world.commit("alice", "message", "too late"), person("node"), START + world.next, 15)
    assert reported([*world.events, paused]) == [("unauthorised_event", 15)]


def test_a_commit_that_stands_twice(world: World) -> None:
    again = finalize(world.events[-1], person("node"), START + world.next, 11)
    assert reported([*world.events, again]) == [("unauthorised_event", 11)]


def test_an_event_of_another_enclave(world: World) -> None:
    other = World({**MANIFEST, "meta": {"n": 2}}).send("alice", "message", "hello", at=50)
    stray = finalize(other, person("node"), START + world.next, 11)
    assert reported([*world.events, stray]) == [("unauthorised_event", 11)]


def test_a_stranger_in_the_sequencers_place_is_told_once(world: World) -> None:
    events = [*world.events[:8], *(by(event, "node2") for event in world.events[8:])]
    assert reported(events) == [("sequencer_change", 8)]
    back = [*world.events[:8], by(world.events[8], "node2"), *world.events[9:]]
    assert reported(back) == [("sequencer_change", 8)]


def test_an_old_sequencer_goes_on(world: World) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    ok = world.send("alice", "message", "here", node="node2")
    assert reported(world.events) == []
    assert reported([*world.events[:-1], by(ok, "node")]) == [("old_sequencer", 12)]
    (fault,) = replayed([*world.events[:-1], by(ok, "node")]).faults
    assert fault.before == 11


def test_a_takeover_by_force_is_no_fault(world: World) -> None:
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    world.send("alice", "message", "here", node="node2")
    assert reported(world.events) == []


def test_a_migrate_that_is_not_valid(world: World) -> None:
    content = world.migrate("node2", ct_root="00" * 32)
    migrate = finalize(world.commit("alice", "Migrate", content), person("node"), START + world.next, 11)
    after = finalize(world.commit("alice", "message", "on"), person("node2"), START + world.next + 1, 12)
    assert reported([*world.events, migrate, after]) == [("sequencer_change", 11)]
    by_bob = finalize(world.commit("bob", "Migrate", world.migrate("node2")), person("node2"), START + world.next, 11)
    assert reported([*world.events, by_bob]) == [("sequencer_change", 11)]


def test_a_content_that_is_gone(world: World) -> None:
    events = list(world.events)
    events[1] = erase(events[1])
    assert reported(events) == []
    events[3] = erase(events[3])
    events[9] = erase(events[9])
    assert reported(events) == [("erasure_without_cause", 3), ("erasure_without_cause", 9)]
    assert replayed(events, check_erasures=False).faults == []
    events = list(world.events)
    events[2] = erase(events[2])
    replay = replayed(events)
    assert (replay.faults[0].kind, replay.faults[0].seq) == ("erasure_without_cause", 2)
    assert replay.roots_unknown_from == 2


def test_a_log_without_its_manifest(world: World) -> None:
    assert reported(world.events[1:]) == [("gap", 0)]
    assert reported([replace(world.events[1], seq=0), *world.events[2:]]) == [("unauthorised_event", 0)]
    assert replayed(world.events[1:]).root() is None


def test_an_event_that_cannot_be_read_takes_its_place(world: World) -> None:
    replay = AuditReplay(world.state.enclave)
    for event in world.events:
        if event.seq == 5:
            replay.skip()
        else:
            replay.add(event)
    assert replay.finish() == []
    assert replay.roots_unknown_from == 5


def test_what_a_node_is_known_to_have_drawn_is_taken_for_granted(world: World) -> None:
    usual = replayed(world.events)
    early = replayed(world.events, node_bundle_sizes={1: 2})
    assert early.faults == []
    assert early.state is not None
    assert usual.state is not None
    assert (early.state.log.size, usual.state.log.size) == (3, 2)
    late = [*world.events[:6], *(by(event, "node", timestamp=event.timestamp + 2000) for event in world.events[6:])]
    closed = [replayed(late, node_bundle_sizes=drawn).state for drawn in ({}, {1: 4})]
    assert [state and state.log.size for state in closed] == [3, 2]
    claimed = replayed(world.events, node_state_hashes={0: bytes(32)})
    assert claimed.state is not None
    assert claimed.state.root == usual.state.root
    assert claimed.state.log.root() != usual.state.log.root()


def test_little_memory_gives_the_same(world: World) -> None:
    for i in range(60):
        sent = world.send("alice", "message", f"{i}")
        if i % 3 == 0:
            world.send("alice", "Update", "other", tags=(("r", sent.id.hex()),))
        if i % 5 == 0:
            world.send("bob", "Own", {"key": "profile", "value": f"{i}"})
    events = list(world.events)
    gone = [i for i, event in enumerate(events) if event.type == "message" and i % 2]
    for i in gone:
        events[i] = erase(events[i])
    plain = replayed(events)
    spilled = replayed(events, store=SpillingStore(4), seen_commits=SpilledCommits(4))
    assert spilled.faults == plain.faults
    assert plain.faults
    assert spilled.state == plain.state
    assert spilled.root() == plain.root()


def test_a_cause_that_comes_late_is_found_in_the_file_too(world: World) -> None:
    sent = [world.send("alice", "message", f"{i}") for i in range(12)]
    for event in sent:
        world.send("alice", "Delete", {"reason": "author"}, tags=(("r", event.id.hex()),))
    gone = {event.seq for event in sent}
    events = [erase(event) if event.seq in gone else event for event in world.events]
    assert replayed(events, seen_commits=SpilledCommits(4)).faults == []
    assert len(replayed(events[:-12], seen_commits=SpilledCommits(4)).faults) == 12


def test_very_many_missing_places_are_one_gap(world: World) -> None:
    far = by(world.events[-1], "node", seq=10_000_000)
    assert replayed([*world.events[:-1], far]).faults == [
        Fault(
            kind="gap",
            seq=10,
            what="events 10 to 9999999 are missing: event 9 is followed by event 10000000",
            before=10_000_000,
        )
    ]
