"""Replay: whole logs, each rule broken alone, erased contents."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import (
    InvalidArchive,
    ReplayFailed,
)
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase, finalize
from enc.core.machine.enclave import checkpoint_root
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event
from tests.core.machine.enclave_town import GONE, broken, by_runs, everything, failure, forge, replay, town
from tests.core.stored import memory_of
from tests.core.world import (
    LIFETIME,
    START,
    Json,
    World,
    about,
    give,
    move,
    person,
    pub,
)

# Replay


def test_events_that_only_make_the_log_longer_are_taken_in_runs_within_a_bundle() -> None:
    world = town(size=8)
    for i in range(20):
        world.send("bob", "note", f"{i}")
    # The Manifest; the first note, which is judged; then up to the one that fills the bundle; the one that opens it.
    assert by_runs(world.events)[1] == [0, 0, 5, 0, 0, 6, 0, 0, 4]
    assert by_runs(world.events)[0].state == replay(world.events).state == world.state


@pytest.mark.parametrize("wrong", [3, 5, 6, 11, 20])
@pytest.mark.parametrize(
    "change",
    [
        {"seq": 99},
        {"enclave": bytes(32)},
        {"content": None},
        {"sig": bytes(64)},
        {"seq_sig": bytes(64)},
        {"id": bytes(32)},
        {"hash": bytes(32)},
        {"exp": 5},
        {"timestamp": START - 1},
        {"type": "Terminate"},
        {"sequencer": person("node2").public},
        {"from_": person("otto").public},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_wrong_inside_a_run_is_found_and_named(change: dict[str, Any], wrong: int) -> None:
    world = town(size=8)
    for i in range(20):
        world.send("bob", "note", f"{i}")
    events = list(world.events)
    events[wrong] = replace(events[wrong], **change)
    code, seq = broken(events)
    assert seq == (events[wrong].seq if change.keys() == {"seq"} else wrong)
    assert code


@pytest.mark.parametrize("at", ["too early", "after exp", "exp too far"])
def test_time_is_judged_inside_a_run(at: str) -> None:
    world = town(size=50)
    for i in range(6):
        world.send("bob", "note", f"{i}", at=1000 + i)
    late = {"too early": {"at": 999}, "after exp": {"at": 1006, "exp": START - 70_000}}
    bad = forge(world, **late.get(at, {"at": 1006, "exp": START + 4_000_000}))  # type: ignore[arg-type]
    assert broken([*world.events, bad])[1] == 7


def test_an_event_of_another_place_or_log_ends_a_run() -> None:
    world = town(size=50)
    for i in range(6):
        world.send("bob", "note", f"{i}")
    assert broken([*world.events, forge(world, seq=9)]) == ("INVALID_ARCHIVE", 9)
    commit = build_commit(person("bob"), bytes(32), "note", "elsewhere", START + LIFETIME)
    other = finalize(commit, person("node"), world.events[-1].timestamp, 7)
    assert broken([*world.events, other]) == ("INVALID_ARCHIVE", 7)


def test_a_run_ends_where_its_bundle_is_due() -> None:
    world = town(size=50, timeout=1000)
    for at in (0, 1, 2, 3, 1500, 1501, 1502):
        world.send("bob", "note", f"{at}", at=at)
    assert replay(world.events).state == world.state


def test_a_repeated_commit_is_found_inside_a_run() -> None:
    world = town(size=50)
    for i in range(6):
        world.send("bob", "note", f"{i}")
    again = finalize(world.events[3], person("node"), world.events[-1].timestamp, 7)
    assert broken([*world.events, again]) == ("DUPLICATE", 7)


def lively() -> World:
    """Return a log with many kinds of events, moved twice."""
    world = town(size=5, timeout=1000)
    note = world.send("bob", "note", "one")
    world.send("bob", "Update", "two", tags=about(note))
    world.send("alice", "Move", move("otto", "OUTSIDER", "GUEST"))
    world.send("bob", "Own", {"key": "k", "value": 1}, at=700)
    world.send("alice", "Gate", {"alias": "door", "state": "closed"}, at=1700)
    world.send("alice", "Migrate", world.migrate("node2"))
    world.send("alice", "Pause")
    world.send("alice", "Migrate", world.migrate("node3"), node="node3", takeover=True)
    world.send("alice", "Resume")
    world.send("alice", "Grant", give("carol", "admin"), at=9000)
    world.send("bob", "Delete", GONE, tags=about(note))
    return world


def test_replay_reaches_the_same_state() -> None:
    world = lively()
    found = replay(world.events)
    assert found.state == world.state
    assert memory_of(found).bundles == world.memory.bundles
    assert memory_of(found).tree_nodes == world.memory.tree_nodes
    assert memory_of(found).log_nodes == world.memory.log_nodes
    assert found.events == len(world.events)
    assert found.sequencers == [(person("node").public, 0), (person("node2").public, 7), (person("node3").public, 8)]
    assert found.checkpoint_root() == checkpoint_root(world.state, world.memory)
    assert found.state_hash() == world.state_hash


def test_replay_gives_what_each_event_changes() -> None:
    world = town()
    note = world.send("bob", "note")
    world.send("bob", "Delete", GONE, tags=about(note))
    found = Replay()
    effects = [found.add(event)[1] for event in world.events]
    assert [e.erases for e in effects] == [(), (), (note.id,)]


def test_an_empty_log_has_no_state() -> None:
    with pytest.raises(InvalidArchive):
        Replay().finish()
    assert Replay().events == 0


def test_a_failed_event_leaves_replay_where_it_was() -> None:
    world = town()
    bad, good = forge(world, "otto"), forge(world)
    found = Replay()
    found.add(world.events[0])
    with pytest.raises(ReplayFailed):
        found.add(bad)
    assert (found.events, found.state) == (1, world.state)
    found.add(good)
    assert found.finish().seq == 1


def test_a_gap() -> None:
    world = town()
    assert broken([*world.events, forge(world, seq=2)]) == ("INVALID_ARCHIVE", 2)
    assert broken(lively().events[:4] + lively().events[5:]) == ("INVALID_ARCHIVE", 5)


def test_a_seq_twice() -> None:
    world = town()
    assert broken([*world.events, forge(world, seq=0)]) == ("INVALID_ARCHIVE", 0)


def test_a_log_that_starts_in_the_middle() -> None:
    assert broken(lively().events[1:]) == ("INVALID_ARCHIVE", 1)


def test_an_event_of_another_enclave() -> None:
    world, other = town(), town(meta={"n": 2})
    assert broken([*world.events, other.send("bob", "note")]) == ("INVALID_ARCHIVE", 1)


def test_a_log_of_another_enclave_than_the_one_expected() -> None:
    world = town()
    replay(world.events, enclave=world.state.enclave)
    assert broken(world.events, enclave=bytes(32)) == ("INVALID_ARCHIVE", 0)


def test_a_first_event_that_is_no_manifest() -> None:
    world = town()
    assert broken([forge(world, seq=0)]) == ("INVALID_ARCHIVE", 0)


def test_a_manifest_whose_enclave_is_not_the_one_it_creates() -> None:
    content = town().events[0].content or ""
    commit = build_commit(person("alice"), bytes(32), "Manifest", content, START + LIFETIME)
    assert broken([finalize(commit, person("node"), START, 0)]) == ("INVALID_COMMIT", 0)


def test_a_manifest_that_breaks_a_rule() -> None:
    commit = build_manifest(person("alice"), compact_json({"enc_v": 2, "init": []}), START + LIFETIME)
    error = failure([finalize(commit, person("node"), START, 0)])
    assert (error.code, error.message.startswith("seq 0: init: ")) == ("INVALID_COMMIT", True)


def test_a_second_manifest() -> None:
    world = town()
    assert broken([*world.events, forge(world, "alice", "Manifest", world.events[0].content)])[1] == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"hash": bytes(32)}, "INVALID_HASH"),
        ({"content_hash": bytes(32)}, "INVALID_HASH"),
        ({"type": "page"}, "INVALID_HASH"),
        ({"exp": START + 1}, "INVALID_HASH"),
        ({"tags": (("k", "v"),)}, "INVALID_HASH"),
        ({"from_": person("carol").public}, "INVALID_HASH"),
        ({"sig": bytes(64)}, "INVALID_SIGNATURE"),
        ({"sig": person("carol").sign_schnorr(bytes(32))}, "INVALID_SIGNATURE"),
        ({"alg": "ecdsa"}, "INVALID_SIGNATURE"),
        ({"seq_sig": bytes(64)}, "INVALID_SIGNATURE"),
        ({"timestamp": START + 9}, "INVALID_SIGNATURE"),
        ({"sequencer": person("node2").public}, "INVALID_SIGNATURE"),
        ({"id": bytes(32)}, "INVALID_HASH"),
    ],
    ids=str,
)
def test_a_field_that_is_not_what_was_signed(change: Json, code: str) -> None:
    world = town()
    note = world.send("bob", "note")
    assert broken([world.events[0], replace(note, **change)]) == (code, 1)


def test_a_commit_signed_by_another_than_its_author() -> None:
    world = town()
    commit = world.commit("bob", "note")
    commit = replace(commit, sig=person("carol").sign_schnorr(commit.hash))
    assert broken([*world.events, finalize(commit, person("node"), START + 1, 1)]) == ("INVALID_SIGNATURE", 1)


def test_an_event_signed_by_another_than_its_sequencer() -> None:
    world = town()
    event = forge(world, node="node2")
    error = failure([*world.events, replace(event, sequencer=person("node").public)])
    assert (error.code, error.seq, "seq_sig" in error.message) == ("INVALID_SIGNATURE", 1, True)


def test_an_id_that_is_not_the_hash_of_seq_sig() -> None:
    world = town()
    error = failure([*world.events, replace(forge(world), id=sha256(b""))])
    assert (error.code, error.seq, "id" in error.message) == ("INVALID_HASH", 1, True)


def test_a_timestamp_that_falls() -> None:
    world = town()
    world.send("bob", "note", at=100)
    replay([*world.events, forge(world, at=100)])
    assert broken([*world.events, forge(world, at=99)]) == ("INVALID_ARCHIVE", 2)


def test_a_timestamp_more_than_60_s_after_exp() -> None:
    world = town()
    replay([*world.events, forge(world, at=100_000, exp=START + 40_000)])
    assert broken([*world.events, forge(world, at=100_001, exp=START + 40_000)]) == ("INVALID_ARCHIVE", 1)


def test_an_exp_more_than_an_hour_and_a_minute_after_the_timestamp() -> None:
    world = town()
    replay([*world.events, forge(world, at=5, exp=START + 5 + 3_660_000)])
    assert broken([*world.events, forge(world, at=5, exp=START + 6 + 3_660_000)]) == ("INVALID_ARCHIVE", 1)


def test_time_rules_hold_for_the_manifest_too() -> None:
    content = town().events[0].content or ""
    for exp, valid in [
        (START - 60_000, True),
        (START - 60_001, False),
        (START + 3_660_000, True),
        (START + 3_660_001, False),
    ]:
        event = finalize(build_manifest(person("alice"), content, exp), person("node"), START, 0)
        if valid:
            replay([event])
        else:
            assert broken([event]) == ("INVALID_ARCHIVE", 0)


def test_a_commit_twice() -> None:
    world = town()
    world.send("bob", "note")
    twice = finalize(world.events[1], person("node"), START + 5, 2)
    assert broken([*world.events, twice]) == ("DUPLICATE", 2)


def test_a_commit_twice_with_another_signature() -> None:
    world = town()
    note = world.send("bob", "note")
    other = replace(note, alg="ecdsa", sig=person("bob").sign_ecdsa(note.hash))
    assert broken([*world.events, finalize(other, person("node"), START + 5, 2)]) == ("DUPLICATE", 2)


@pytest.mark.parametrize(("at", "code"), [(LIFETIME + 60_001, "DUPLICATE"), (LIFETIME + 60_002, "INVALID_ARCHIVE")])
def test_a_commit_is_remembered_as_long_as_it_could_come_again(at: int, code: str) -> None:
    world = town()
    note = world.send("bob", "note", at=1)
    world.send("carol", "note", at=LIFETIME)
    world.send("carol", "note", at=LIFETIME + 60_001)
    again = finalize(note, person("node"), START + at, 4)
    assert broken([*world.events, again]) == (code, 4)


@pytest.mark.parametrize(("type_", "content"), [("note", ""), ("Pause", "")])
def test_an_event_of_a_foreign_sequencer(type_: str, content: str) -> None:
    world = town()
    event = forge(world, "alice", type_, content, node="node2")
    assert broken([*world.events, event]) == ("ENCLAVE_MIGRATED", 1)


def test_an_event_of_the_old_sequencer_after_migrate() -> None:
    world = town()
    world.send("alice", "Migrate", world.migrate("node2"))
    replay([*world.events, forge(world, node="node2")])
    error = failure([*world.events, forge(world, node="node")])
    assert (error.code, error.cause.context) == ("ENCLAVE_MIGRATED", {"new_sequencer": pub("node2")})


def test_a_takeover_by_a_migrate_that_names_another() -> None:
    world = town()
    event = forge(world, "alice", "Migrate", world.migrate("node3"), node="node2")
    code, seq = broken([*world.events, event])
    assert (code in ("INVALID_COMMIT", "ENCLAVE_MIGRATED"), seq) == (True, 1)


def test_a_takeover_by_someone_who_is_not_the_owner() -> None:
    world = town()
    event = forge(world, "bob", "Migrate", world.migrate("node2"), node="node2")
    assert broken([*world.events, event]) == ("UNAUTHORIZED", 1)


@pytest.mark.parametrize("node", ["node", "node2"])
@pytest.mark.parametrize("wrong", [{"prev_seq": 1}, {"ct_root": "00" * 32}])
def test_a_migrate_with_another_checkpoint(node: str, wrong: Json) -> None:
    world = town()
    event = forge(world, "alice", "Migrate", world.migrate("node2", **wrong), node=node)
    assert broken([*world.events, event]) == ("CHECKPOINT_MISMATCH", 1)


@pytest.mark.parametrize(
    ("name", "type_", "content", "code"),
    [
        ("otto", "note", "", "UNAUTHORIZED"),
        ("bob", "page", "", "UNAUTHORIZED"),
        ("bob", "Pause", "", "UNAUTHORIZED"),
        ("alice", "Resume", "", "INVALID_LIFECYCLE_STATE"),
        ("alice", "Move", {}, "INVALID_COMMIT"),
        ("alice", "Move", move("bob", "OUTSIDER", "GUEST"), "STATE_MISMATCH"),
        ("alice", "Grant", give("otto", "admin"), "INVALID_STATE_FOR_GRANT"),
    ],
)
def test_an_event_that_the_rules_do_not_allow(name: str, type_: str, content: Any, code: str) -> None:
    world = town()
    world.send("bob", "note")
    assert broken([*world.events, forge(world, name, type_, content)]) == (code, 2)


def test_an_event_is_judged_by_the_state_before_it() -> None:
    world = town()
    world.send("alice", "Terminate")
    assert broken([*world.events, forge(world)]) == ("ENCLAVE_TERMINATED", 2)


# Erased contents in replay


LATER = str(START + 10_000_000)


def without(world: World, *gone: Event) -> list[Event]:
    return [erase(event) if event in gone else event for event in world.events]


def test_an_erased_manifest() -> None:
    world = town()
    assert broken(without(world, world.events[0])) == ("INVALID_ARCHIVE", 0)


@pytest.mark.parametrize(
    "type_",
    "Move Grant Revoke Transfer Gate AC_Bundle Shared Own Delete Pause Terminate Migrate".split(),
)
def test_an_erased_predefined_event(type_: str) -> None:
    world = town()
    note = world.send("alice", "note")
    content, tags = everything(world, note)[type_]
    event = world.send("alice", type_, content, tags=tags)
    replay(world.events)
    code, seq = broken(without(world, event))
    assert (code in ("INVALID_ARCHIVE", "INVALID_COMMIT"), seq) == (True, 2)


@pytest.mark.parametrize("type_", ["Shared", "Pause", "Gate"])
def test_auto_delete_is_no_cause_for_a_predefined_event(type_: str) -> None:
    world = town()
    content, _ = everything(world, world.events[0])[type_]
    event = world.send("alice", type_, content, tags=(("auto-delete", LATER),))
    assert broken(without(world, event))[1] == 1


def test_an_erased_event_without_a_cause_is_named_in_the_end() -> None:
    world = town()
    first, second = world.send("bob", "note", "one"), world.send("bob", "note", "two")
    world.send("bob", "note", "three")
    assert broken(without(world, second)) == ("INVALID_ARCHIVE", 2)
    assert broken(without(world, second, first)) == ("INVALID_ARCHIVE", 1)
    found = Replay()
    for event in without(world, second):
        found.add(event)
    with pytest.raises(ReplayFailed):
        found.finish()


def test_a_later_update_is_a_cause() -> None:
    world = town()
    note = world.send("bob", "note", "one")
    world.send("bob", "Update", "two", tags=about(note))
    assert replay(without(world, note)).state == world.state


def test_a_later_delete_is_a_cause() -> None:
    world = town()
    note = world.send("bob", "note", "one")
    world.send("bob", "Delete", GONE, tags=about(note))
    assert replay(without(world, note)).state == world.state


def test_an_update_of_another_event_is_no_cause() -> None:
    world = town()
    note, other = world.send("bob", "note", "one"), world.send("bob", "note", "two")
    world.send("bob", "Update", "three", tags=about(other))
    assert broken(without(world, note)) == ("INVALID_ARCHIVE", 1)


def test_a_later_update_or_delete_is_a_cause_for_the_updates_before_it() -> None:
    world = town()
    note = world.send("bob", "note", "one")
    updates = [world.send("bob", "Update", text, tags=about(note)) for text in ("two", "three", "four")]
    replay(without(world, note, *updates[:2]))
    assert broken(without(world, note, *updates)) == ("INVALID_ARCHIVE", 4)
    world.send("bob", "Delete", GONE, tags=about(note))
    replay(without(world, note, *updates))


def test_an_erased_latest_update_without_a_cause() -> None:
    world = town()
    note = world.send("bob", "note", "one")
    update = world.send("bob", "Update", "two", tags=about(note))
    assert broken(without(world, update)) == ("INVALID_ARCHIVE", 2)


def test_auto_delete_on_the_event_itself_is_a_cause() -> None:
    world = town()
    note = world.send("bob", "note", "one", tags=(("auto-delete", LATER),))
    replay(without(world, note))
    update = world.send("bob", "Update", "two", tags=(*about(note), ("auto-delete", LATER)))
    replay(without(world, note, update))


def test_auto_delete_on_an_update_itself_is_a_cause_for_it() -> None:
    world = town()
    note = world.send("bob", "note", "one")
    update = world.send("bob", "Update", "two", tags=(*about(note), ("auto-delete", LATER)))
    replay(without(world, note, update))


def test_auto_delete_on_the_target_is_a_cause_for_an_update() -> None:
    world = town()
    note = world.send("bob", "note", "one", tags=(("auto-delete", LATER),))
    update = world.send("bob", "Update", "two", tags=about(note))
    replay(without(world, note, update))
    replay(without(world, update))


def test_auto_delete_on_another_event_is_no_cause() -> None:
    world = town()
    world.send("bob", "note", "one", tags=(("auto-delete", LATER),))
    note = world.send("bob", "note", "two", tags=(("auto-deleted", LATER),))
    assert broken(without(world, note)) == ("INVALID_ARCHIVE", 2)


def test_contents_that_should_be_gone_are_no_error_and_are_named() -> None:
    world = town()
    note = world.send("bob", "note", "one")
    update = world.send("bob", "Update", "two", tags=about(note))
    world.send("bob", "Delete", GONE, tags=about(note))
    found = Replay()
    gone = {id_ for event in world.events for id_ in found.add(event)[1].erases}
    found.finish()
    assert gone == {note.id, update.id}


def test_an_erased_event_keeps_its_place_in_every_root() -> None:
    world = lively()
    note, update = world.events[1], world.events[2]
    assert replay(without(world, note, update)).state == world.state
