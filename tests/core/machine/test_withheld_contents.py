"""Replays of logs with withheld contents: which statements are a cause, for which contents."""

import json
from typing import Any

import pytest

from enc.core.errors import ReplayFailed
from enc.core.log.event import erase, finalize, parse_event
from enc.core.machine.archive import pack_events, unpack_events
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event
from tests.core.machine.enclave_town import town
from tests.core.vectors import load
from tests.core.world import START, World, person, withheld


def replayed(events: list[Event]) -> Replay:
    replay = Replay(events[0].enclave)
    for event in unpack_events(pack_events(events)):
        replay.add(event)
    replay.finish()
    return replay


def failed_at(events: list[Event]) -> int | None:
    try:
        replayed(events)
    except ReplayFailed as e:
        return e.seq if e.code == "INVALID_ARCHIVE" else -1
    return None


def audited(events: list[Event]) -> AuditReplay:
    audit = AuditReplay(events[0].enclave)
    for event in events:
        audit.add(event)
    audit.finish()
    return audit


@pytest.fixture
def world() -> World:
    world = town()
    world.send("bob", "note", "one")
    return world


@pytest.mark.parametrize("example", load("withheld")["lines"], ids=lambda example: example["why"])
def test_examples(example: Any) -> None:
    events = [parse_event(json.dumps(wire)) for wire in load(example["log"])["events"]]
    line = parse_event(json.dumps(example["line"]))
    events[line.seq] = line
    assert failed_at(events) == example["fault"]
    faults = [(fault.kind, fault.seq) for fault in audited(events).faults]
    assert faults == ([] if example["fault"] is None else [("erasure_without_cause", line.seq)])


def test_a_withheld_content_is_told_apart_from_a_fault(world: World) -> None:
    note = world.events[-1]
    events = [*world.events[:-1], withheld(note)]
    assert replayed(events).withheld() == audited(events).withheld == [(note.seq, events[-1].withheld)]
    assert replayed(world.events).withheld() == audited(world.events).withheld == []


def test_the_next_sequencer_may_withhold_before_its_first_event(world: World) -> None:
    note = world.events[-1]
    events = [*world.events[:-1], withheld(note, "node2")]
    assert failed_at(events) == note.seq
    assert [fault.seq for fault in audited(events).faults] == [note.seq]
    world.send("alice", "Migrate", world.migrate("node2"))
    moved = [*events, world.events[-1]]
    assert failed_at(moved) is None
    assert audited(moved).faults == []
    assert replayed(moved).withheld() == audited(moved).withheld == [(note.seq, events[-1].withheld)]


def test_a_content_that_is_erased_too_is_not_reported_as_withheld(world: World) -> None:
    note = world.events[-1]
    events = [*world.events[:-1], withheld(note)]
    events.append(world.send("bob", "Delete", {"reason": "author"}, tags=(("r", note.id.hex()),)))
    assert failed_at(events) is None
    assert replayed(events).withheld() == audited(events).withheld == []


def test_an_update_and_its_target_may_both_be_withheld(world: World) -> None:
    note = world.events[-1]
    update = world.send("bob", "Update", "two", tags=(("r", note.id.hex()),))
    events = [*world.events[:-2], withheld(note), withheld(update)]
    assert replayed(events).withheld() == [(update.seq, events[-1].withheld)]
    assert failed_at([*events[:-1], erase(update)]) == update.seq


def test_a_key_that_no_accepted_migrate_names_excuses_nothing_in_an_audit(world: World) -> None:
    """The sequencer signs a Migrate that the rules reject: it appoints nobody."""
    note = world.events[-1]
    rejected = world.migrate("node2", ct_root="00" * 32)
    migrate = finalize(world.commit("alice", "Migrate", rejected), person("node"), START + world.next, note.seq + 1)
    audit = audited([*world.events[:-1], withheld(note, "node2"), migrate])
    assert [(fault.kind, fault.seq) for fault in audit.faults] == [
        ("erasure_without_cause", note.seq),
        ("sequencer_change", migrate.seq),
    ]
    assert audit.withheld == []


def test_who_signs_as_the_sequencer_without_a_migrate_excuses_nothing(world: World) -> None:
    note = world.events[-1]
    foreign = finalize(world.commit("bob", "note", "x"), person("node3"), START + world.next, note.seq + 1)
    audit = audited([*world.events[:-1], withheld(note, "node3"), foreign])
    assert [fault.kind for fault in audit.faults] == ["erasure_without_cause", "sequencer_change"]
