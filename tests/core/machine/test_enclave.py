"""The state machine: lifecycle, migration, bundles, time; and replay, which runs it over whole logs."""

import re
from collections.abc import Iterable
from copy import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import (
    CheckpointMismatch,
    EnclaveExists,
    EnclaveMigrated,
    EnclavePaused,
    EnclaveTerminated,
    Expired,
    InvalidArchive,
    InvalidCommit,
    ReplayFailed,
    Unauthorized,
    Unavailable,
)
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase, finalize
from enc.core.machine import enclave
from enc.core.machine.enclave import apply, checkpoint_root, judge_manifest, next_timestamp, state_hash
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import EMPTY_HASH, log_leaf, sha256
from enc.core.primitives.types import Event, Tags
from enc.core.trees.bundle import events_root, split
from enc.core.trees.merkle_log import Edge
from enc.core.trees.state_key import LIFECYCLE_KEY, identity_key
from tests.core.world import (
    LIFETIME,
    NO_POINT,
    START,
    Json,
    World,
    about,
    gated,
    give,
    grant,
    init,
    move,
    path,
    person,
    pub,
    rule,
)

PAUSED, TERMINATED, MIGRATED = (sha256(word) for word in (b"paused", b"terminated", b"migrated"))
GONE = {"reason": "author"}


def town(size: int = 256, timeout: int = 5000, **sections: Any) -> World:
    """Alice owns it and may do everything; bob and carol live there."""
    manifest: Json = {
        "enc_v": 2,
        "states": ["MEMBER", "GUEST"],
        "traits": ["owner(0)", "admin(1)"],
        "readers": [{"type": "MEMBER", "reads": "*"}],
        "moves": [path("OUTSIDER", "GUEST", "owner", **gated("door", "owner")), path("GUEST", "MEMBER", "owner")],
        "grants": [grant(type_, "owner", "admin") for type_ in ("Grant", "Revoke")],
        "transfers": [{"trait": "owner", "scope": "MEMBER"}],
        "slots": [rule(type_, "MEMBER", "C U D", key="k") for type_ in ("Shared", "Own")],
        "lifecycle": [rule(type_, "owner", "C") for type_ in ("Pause", "Resume", "Terminate", "Migrate")],
        "customs": [rule("note", "MEMBER", "C"), rule("note", "Sender", "U D")],
        "init": init(alice="MEMBER owner", bob="MEMBER", carol="MEMBER"),
        "bundle": {"size": size, "timeout": timeout},
        **sections,
    }
    return World(manifest)


# Lifecycle


def everything(world: World, note: Event) -> dict[str, tuple[Any, Tags]]:
    """A content and tags for every type, with which alice would succeed in an active enclave."""
    return {
        "Move": (move("otto", "OUTSIDER", "GUEST"), ()),
        "Grant": (give("bob", "admin"), ()),
        "Revoke": (give("bob", "admin"), ()),
        "Transfer": (give("bob", "owner"), ()),
        "Gate": ({"alias": "door", "state": "closed"}, ()),
        "AC_Bundle": ({"operations": [{"type": "Grant", **give("bob", "admin")}]}, ()),
        "Shared": ({"key": "k", "value": 1}, ()),
        "Own": ({"key": "k", "value": 1}, ()),
        "Update": ("new", about(note)),
        "Delete": (GONE, about(note)),
        "Pause": ("", ()),
        "Resume": ("", ()),
        "Terminate": ("", ()),
        "Migrate": (world.migrate("node3"), ()),
        "note": ("text", ()),
        "Manifest": (world.events[0].content, ()),
    }


WHILE_PAUSED = ["Resume", "Terminate", "Migrate"]
WHILE_ACTIVE = "Move Grant Revoke Transfer Gate AC_Bundle Shared Own Update Delete Pause note".split()
LIFECYCLES = {
    # what is refused; everything else is accepted
    "active": {"Resume": "INVALID_LIFECYCLE_STATE"},
    "resumed": {"Resume": "INVALID_LIFECYCLE_STATE"},
    "moved": {"Resume": "INVALID_LIFECYCLE_STATE"},
    "paused": dict.fromkeys(WHILE_ACTIVE, "ENCLAVE_PAUSED"),
    "paused, moved": dict.fromkeys(WHILE_ACTIVE, "ENCLAVE_PAUSED"),
    "terminated": dict.fromkeys(WHILE_ACTIVE + WHILE_PAUSED, "ENCLAVE_TERMINATED"),
    "paused, terminated": dict.fromkeys(WHILE_ACTIVE + WHILE_PAUSED, "ENCLAVE_TERMINATED"),
}
STEPS = {
    "active": [],
    "resumed": ["Pause", "Resume"],
    "moved": ["Migrate"],
    "paused": ["Pause"],
    "paused, moved": ["Pause", "Migrate"],
    "terminated": ["Terminate"],
    "paused, terminated": ["Pause", "Terminate"],
}


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
@pytest.mark.parametrize("type_", everything(town(), town().events[0]))
def test_which_types_a_lifecycle_accepts(lifecycle: str, type_: str) -> None:
    world = town()
    note = world.send("alice", "note")
    for step in STEPS[lifecycle]:
        world.send("alice", step, world.migrate("node2") if step == "Migrate" else "")
    content, tags = everything(world, note)[type_]
    wanted = {"Manifest": "ENCLAVE_EXISTS", **LIFECYCLES[lifecycle]}.get(type_, "")
    assert world.code("alice", type_, content, tags=tags) == wanted
    if not wanted:
        world.send("alice", type_, content, tags=tags)


@pytest.mark.parametrize("type_", ["Pause", "Resume", "Terminate", "Migrate"])
def test_the_lifecycle_is_checked_before_authorisation(type_: str) -> None:
    world = town()
    world.send("alice", "Terminate")
    assert type(world.refused("otto", type_, world.migrate("node2"))) is EnclaveTerminated


def test_a_paused_enclave_says_so_also_to_whom_may_nothing() -> None:
    world = town()
    world.send("alice", "Pause")
    assert type(world.refused("otto", "note")) is EnclavePaused
    assert type(world.refused("otto", "Resume")) is Unauthorized


def test_the_lifecycle_leaf() -> None:
    world = town()
    before = world.state_hash
    assert (world.state.lifecycle, world.lifecycle_leaf) == ("active", None)
    world.send("alice", "Pause")
    assert (world.state.lifecycle, world.lifecycle_leaf) == ("paused", PAUSED)
    world.send("alice", "Resume")
    assert (world.state.lifecycle, world.lifecycle_leaf) == ("active", None)
    assert world.state_hash == before
    world.send("alice", "Terminate")
    assert (world.state.lifecycle, world.lifecycle_leaf) == ("terminated", TERMINATED)


@pytest.mark.parametrize("type_", ["Pause", "Resume", "Terminate"])
@pytest.mark.parametrize("name", ["bob", "otto"])
def test_lifecycle_events_are_for_their_operators(type_: str, name: str) -> None:
    world = town()
    if type_ == "Resume":
        world.send("alice", "Pause")
    assert type(world.refused(name, type_)) is Unauthorized


def test_a_second_manifest_exists_already_whoever_sends_it_and_whatever_it_says() -> None:
    world = town()
    for content in (world.events[0].content, "{}", "no json"):
        assert type(world.refused("otto", "Manifest", content)) is EnclaveExists
    assert type(world.refused("otto", "Manifest", "{}", node="node2")) is EnclaveExists


# The first commit


def test_judge_manifest_takes_a_manifest_only() -> None:
    commit = build_commit(person("alice"), bytes(32), "note", compact_json({"enc_v": 2}), START)
    with pytest.raises(InvalidCommit, match=r"^type: "):
        judge_manifest(commit)


def test_judge_manifest_refuses_an_erased_manifest() -> None:
    with pytest.raises(InvalidCommit, match=r"^content: "):
        judge_manifest(erase(town().events[0]))


def test_judge_manifest_refuses_what_is_no_manifest() -> None:
    with pytest.raises(InvalidCommit, match=r"^init: "):
        judge_manifest(build_manifest(person("alice"), compact_json({"enc_v": 2}), START))


def test_judge_manifest_founds_a_registry() -> None:
    content = compact_json({"enc_v": 2, "registry": True, "init": init(alice="OUTSIDER")})
    policy, _ = judge_manifest(build_manifest(person("alice"), content, START))
    assert policy.registry


def test_an_enclave_after_its_manifest() -> None:
    world = town()
    state = world.state
    assert (state.seq, state.min_timestamp, state.sequencer) == (0, START, person("node").public)
    assert (state.enclave, state.lifecycle, state.migrated) == (world.events[0].enclave, "active", False)
    assert (state.log.size, state.bundle.count) == (0, 1)


# Migrate


@pytest.mark.parametrize("before", ["active", "paused"])
def test_a_peaceful_migrate(before: str) -> None:
    world = town()
    if before == "paused":
        world.send("alice", "Pause")
    world.send("alice", "Migrate", world.migrate("node2"))
    assert world.effects.new_sequencer == person("node2").public
    assert (world.state.sequencer, world.state.lifecycle, world.state.migrated) == (
        person("node2").public,
        before,
        True,
    )
    assert world.lifecycle_leaf == MIGRATED
    assert world.events[-1].sequencer == person("node").public


@pytest.mark.parametrize("type_", ["note", "Pause", "Migrate", "Terminate"])
def test_after_migrate_every_other_node_names_the_new_one(type_: str) -> None:
    world = town()
    world.send("alice", "Migrate", world.migrate("node2"))
    content = world.migrate("node") if type_ == "Migrate" else ""
    for node in ("node", "node3"):
        error = world.refused("alice", type_, content, node=node)
        assert (type(error), error.context) == (EnclaveMigrated, {"new_sequencer": pub("node2")})
    assert world.code("alice", type_, content) == ""


def test_the_event_after_migrate_puts_the_lifecycle_back() -> None:
    world = town()
    before = world.state_hash
    world.send("alice", "Migrate", world.migrate("node2"))
    note = world.send("bob", "note")
    assert note.sequencer == person("node2").public
    assert (world.lifecycle_leaf, world.state.lifecycle, world.state.migrated) == (None, "active", False)
    assert world.state_hash == before


@pytest.mark.parametrize(
    ("type_", "leaf", "lifecycle"), [("Resume", None, "active"), ("Terminate", TERMINATED, "terminated")]
)
def test_the_event_after_migrate_takes_its_own_effect_too(type_: str, leaf: bytes | None, lifecycle: str) -> None:
    world = town()
    world.send("alice", "Pause")
    world.send("alice", "Migrate", world.migrate("node2"))
    assert type(world.refused("alice", "note")) is EnclavePaused
    world.send("alice", type_)
    assert (world.lifecycle_leaf, world.state.lifecycle) == (leaf, lifecycle)


@pytest.mark.parametrize("before", ["active", "paused"])
def test_migrate_after_migrate_remembers_what_stood_before_the_first(before: str) -> None:
    world = town()
    if before == "paused":
        world.send("alice", "Pause")
    world.send("alice", "Migrate", world.migrate("node2"))
    world.send("alice", "Migrate", world.migrate("node3"))
    assert (world.lifecycle_leaf, world.state.lifecycle, world.state.migrated) == (MIGRATED, before, True)
    assert [event.sequencer for event in world.events[-2:]] == [person("node").public, person("node2").public]
    world.send("alice", "Pause" if before == "active" else "Resume")
    assert world.lifecycle_leaf == (PAUSED if before == "active" else None)


def test_migrate_to_the_present_sequencer_is_an_ordinary_one() -> None:
    world = town()
    world.send("alice", "Migrate", world.migrate("node"))
    assert (world.state.sequencer, world.lifecycle_leaf) == (person("node").public, MIGRATED)
    world.send("alice", "note")
    assert world.lifecycle_leaf is None


def test_a_forced_migrate_needs_takeover() -> None:
    world = town()
    error = world.refused("alice", "Migrate", world.migrate("node2"), node="node2")
    assert (type(error), error.context) == (EnclaveMigrated, {"new_sequencer": pub("node")})
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    assert world.events[-1].sequencer == world.state.sequencer == person("node2").public
    assert (world.lifecycle_leaf, world.state.lifecycle) == (MIGRATED, "active")
    world.send("alice", "note")
    assert (world.events[-1].sequencer, world.lifecycle_leaf) == (person("node2").public, None)


def test_a_forced_migrate_names_the_node_that_finalises_it() -> None:
    world = town()
    for named in ("node", "node3"):
        error = world.refused("alice", "Migrate", world.migrate(named), node="node2", takeover=True)
        assert error.code in ("INVALID_COMMIT", "ENCLAVE_MIGRATED")


@pytest.mark.parametrize("type_", ["note", "Pause", "Terminate", "Move"])
def test_takeover_is_for_migrate_alone(type_: str) -> None:
    content = move("otto", "OUTSIDER", "GUEST") if type_ == "Move" else ""
    assert type(town().refused("alice", type_, content, node="node2", takeover=True)) is EnclaveMigrated


def test_a_forced_migrate_is_for_the_owner_and_the_right_checkpoint() -> None:
    world = town()
    assert type(world.refused("bob", "Migrate", world.migrate("node2"), node="node2", takeover=True)) is Unauthorized
    wrong = world.migrate("node2", prev_seq=7)
    assert type(world.refused("alice", "Migrate", wrong, node="node2", takeover=True)) is CheckpointMismatch


@pytest.mark.parametrize("node", ["node", "node3"])
def test_a_forced_migrate_may_follow_a_migrate_whose_new_sequencer_did_nothing(node: str) -> None:
    world = town()
    world.send("alice", "Pause")
    world.send("alice", "Migrate", world.migrate("node2"))
    world.send("alice", "Migrate", world.migrate(node), node=node, takeover=True)
    assert world.state.sequencer == person(node).public
    assert (world.lifecycle_leaf, world.state.lifecycle) == (MIGRATED, "paused")
    assert type(world.refused("alice", "Resume", node="node2")) is EnclaveMigrated
    world.send("alice", "Resume")
    assert world.lifecycle_leaf is None


def test_a_terminated_enclave_is_not_taken_over() -> None:
    world = town()
    world.send("alice", "Terminate")
    for node, takeover in [(None, False), ("node2", False), ("node2", True)]:
        error = world.refused("alice", "Migrate", world.migrate("node2"), node=node, takeover=takeover)
        assert type(error) is EnclaveTerminated


@pytest.mark.parametrize("wrong", [{"prev_seq": 0}, {"prev_seq": 2}, {"ct_root": "00" * 32}])
def test_a_wrong_checkpoint_is_answered_with_the_right_one(wrong: Json) -> None:
    world = town()
    world.send("alice", "note")
    error = world.refused("alice", "Migrate", world.migrate("node2", **wrong))
    root = checkpoint_root(world.state, world.memory).hex()
    assert (type(error), error.context) == (CheckpointMismatch, {"seq": 1, "ct_root": root})


def test_a_checkpoint_of_before_the_latest_event_is_wrong() -> None:
    world = town()
    old = world.migrate("node2")
    world.send("alice", "note")
    assert type(world.refused("alice", "Migrate", old)) is CheckpointMismatch


def test_migrate_is_judged_authorised_before_checkpoint() -> None:
    world = town()
    assert type(world.refused("bob", "Migrate", world.migrate("node2", prev_seq=9))) is Unauthorized


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            ("new_sequencer", value)
            for value in (None, 7, "", "xyz", NO_POINT, pub("node2").upper(), pub("node2")[:-2])
        ),
        *(("prev_seq", value) for value in (None, "0", 0.0, -1, True, [])),
        *(("ct_root", value) for value in (None, 7, "", "00" * 31, "0" * 63 + "A")),
    ],
)
@pytest.mark.parametrize("name", ["alice", "otto"])
def test_a_malformed_migrate_is_refused_by_name(name: str, field: str, value: Any) -> None:
    world = town()
    error = world.refused(name, "Migrate", world.migrate("node2", **{field: value}))
    assert (type(error), error.message.partition(":")[0]) == (InvalidCommit, f"content.{field}")
    content = {key: value for key, value in world.migrate("node2").items() if key != field}
    assert world.refused(name, "Migrate", content).message.startswith(f"content.{field}: ")


@pytest.mark.parametrize("content", ["", "[]", "null", "7", '{"prev_seq":9007199254740992}'])
def test_a_migrate_that_is_no_strict_json_object_is_refused(content: str) -> None:
    assert type(town().refused("alice", "Migrate", content)) is InvalidCommit


# Owner


@pytest.mark.parametrize(
    ("manifest", "owner", "others"),
    [
        pytest.param(
            {"traits": ["owner(0)"], "states": ["OWNER"], "init": init(tina="OUTSIDER owner", sam="OWNER")},
            "tina",
            "sam otto",
            id="the trait, where it is declared",
        ),
        pytest.param(
            {"traits": ["chief(0)"], "states": ["OWNER"], "init": init(tina="OUTSIDER chief", sam="OWNER")},
            "sam",
            "tina otto",
            id="else the State",
        ),
        pytest.param(
            {"traits": ["chief(0)"], "states": ["BOSS"], "init": init(tina="BOSS chief", sam="BOSS")},
            "",
            "tina sam otto",
            id="else nobody",
        ),
    ],
)
def test_only_the_owner_may_migrate_also_without_an_entry(manifest: Json, owner: str, others: str) -> None:
    world = World({"enc_v": 2, **manifest})
    for name in others.split():
        assert type(world.refused(name, "Migrate", world.migrate("node2"))) is Unauthorized
        assert not world.policy.is_owner(world.bitmask(name))
    if owner:
        assert world.policy.is_owner(world.bitmask(owner))
        world.send(owner, "Migrate", world.migrate("node2"))


@pytest.mark.parametrize(("ops", "code"), [("C", ""), ("C _C", "UNAUTHORIZED"), ("_C", "UNAUTHORIZED")])
def test_a_migrate_entry_binds_the_owner(ops: str, code: str) -> None:
    world = town(lifecycle=[rule("Migrate", "owner", ops)])
    assert world.code("alice", "Migrate", world.migrate("node2")) == code


def test_a_migrate_entry_may_have_a_gate() -> None:
    world = town(lifecycle=[rule("Migrate", "owner", "C", **gated("stay", "MEMBER"))])
    world.send("bob", "Gate", {"alias": "stay", "state": "closed"})
    assert world.code("alice", "Migrate", world.migrate("node2")) == "GATE_CLOSED"
    assert world.code("bob", "Migrate", world.migrate("node2")) == "UNAUTHORIZED"


def test_ownership_follows_a_transfer() -> None:
    world = town()
    world.send("alice", "Transfer", give("bob", "owner"))
    assert world.code("alice", "Migrate", world.migrate("node2")) == "UNAUTHORIZED"
    assert world.code("bob", "Migrate", world.migrate("node2")) == ""


# Bundles


def counts(world: World) -> list[int]:
    return [bundle.count for bundle in world.memory.bundles]


def test_a_bundle_closes_at_its_size() -> None:
    world = town(size=3)
    world.send("bob", "note")
    assert (counts(world), world.state.bundle.count) == ([], 2)
    world.send("bob", "note")
    assert (counts(world), world.state.bundle) == ([3], None)
    world.send("bob", "note")
    assert (counts(world), world.state.bundle.count) == ([3], 1)


def test_bundles_of_one_close_at_once_from_the_manifest_on() -> None:
    world = town(size=1)
    assert counts(world) == [1]
    world.send("bob", "note")
    assert counts(world) == [1, 1]


@pytest.mark.parametrize(("at", "closed"), [(4999, []), (5000, [2]), (5001, [2])])
def test_an_event_at_the_deadline_of_the_first_opens_the_next_bundle(at: int, closed: list[int]) -> None:
    world = town()
    world.send("bob", "note", at=4000)
    world.send("bob", "note", at=at)
    assert counts(world) == closed
    assert world.state.bundle.first_seq == (2 if closed else 0)


def test_a_bundle_that_closes_before_an_event_holds_the_state_before_it() -> None:
    world = town()
    before = world.state_hash
    shared = world.send("bob", "Shared", {"key": "k", "value": 1}, at=5000)
    assert world.memory.bundles[0].state_hash == before != world.state_hash
    assert world.memory.bundles[0].events_root == world.events[0].id
    assert world.shared("k") == shared.content_hash


def test_a_bundle_that_closes_after_an_event_holds_the_state_after_it() -> None:
    world = town(size=2)
    world.send("bob", "Shared", {"key": "k", "value": 1})
    assert world.memory.bundles[0].state_hash == world.state_hash == world.state.root
    assert world.memory.bundles[0].events_root == events_root([event.id for event in world.events])
    assert world.state.pending == {}


def test_migrate_closes_its_bundle_at_once() -> None:
    world = town()
    world.send("bob", "note")
    world.send("alice", "Migrate", world.migrate("node2"))
    assert (counts(world), world.state.bundle) == ([3], None)
    world.send("bob", "note")
    assert world.state.bundle.sequencer == person("node2").public


def test_a_forced_migrate_closes_the_trailing_bundle_and_then_its_own() -> None:
    world = town()
    world.send("bob", "Shared", {"key": "k", "value": 1})
    before = world.state_hash
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    assert counts(world) == [2, 1]
    assert [bundle.index for bundle in world.step.closed] == [0, 1]
    assert [bundle.first_seq for bundle in world.step.closed] == [0, 2]
    assert [bundle.state_hash for bundle in world.step.closed] == [before, world.state_hash]


def test_the_log_has_one_leaf_for_each_bundle() -> None:
    world = town(size=2)
    assert world.state.log.root() == EMPTY_HASH
    for i in range(9):
        world.send("bob", "Own", {"key": "k", "value": i})
    leaves = [log_leaf(bundle.events_root, bundle.state_hash) for bundle in world.memory.bundles]
    assert len(leaves) == 5
    assert world.state.log == Edge().extend(leaves)[0]
    assert [bundle.index for bundle in world.memory.bundles] == list(range(5))


def test_the_checkpoint_counts_the_open_bundle_as_closed() -> None:
    world = town(size=3)
    world.send("bob", "Own", {"key": "k", "value": 1})
    root = checkpoint_root(world.state, world.memory)
    leaf = log_leaf(events_root([event.id for event in world.events]), world.state_hash)
    assert root == Edge().append(leaf)[0].root() != world.state.log.root()
    world.send("bob", "note")
    assert checkpoint_root(world.state, world.memory) == world.state.log.root()


@pytest.mark.parametrize(("at", "sealed"), [(0, False), (4999, False), (5000, True), (90_000, True)])
def test_a_bundle_is_sealed_from_its_deadline_on(at: int, sealed: bool) -> None:
    world = town()
    world.send("bob", "note", at=10)
    before = world.state
    transition = world.seal(at)
    if not sealed:
        assert (transition, world.state) == (None, before)
        return
    assert (counts(world), world.state.bundle) == ([2], None)
    assert (world.state.min_timestamp, world.state.seq) == (START + 5000, 1)
    assert world.state.log.root() == checkpoint_root(before, world.memory)


def test_without_an_open_bundle_there_is_nothing_to_seal() -> None:
    world = town(size=1)
    assert world.seal(90_000) is None


def test_sealing_twice_is_sealing_once() -> None:
    world = town()
    world.seal(5000)
    assert world.seal(90_000) is None


def test_a_sealed_bundle_takes_no_later_event() -> None:
    world = town()
    world.seal(6000)
    world.send("bob", "note", at=5000)
    assert (counts(world), world.state.bundle.first_seq) == ([1], 1)


def test_a_sealed_bundle_keeps_the_checkpoint_that_a_migrate_names() -> None:
    world = town()
    world.send("bob", "note")
    content = world.migrate("node2")
    world.seal(5000)
    assert world.migrate("node2") == content
    world.send("alice", "Migrate", content, at=5000)
    assert counts(world) == [2, 1]


gaps = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from(["note", "Own", "Migrate"])), max_size=25)


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 6), timeout=st.integers(1, 60), steps=gaps)
def test_sealing_gives_the_log_of_the_literal_rule(size: int, timeout: int, steps: list[tuple[int, bool, str]]) -> None:
    world, clock = town(size=size, timeout=timeout), 0
    for i, (gap, seals, type_) in enumerate(steps):
        clock += gap
        if seals:
            world.seal(clock)
        content = {"note": str(i), "Own": {"key": "k", "value": i}, "Migrate": world.migrate("node2")}[type_]
        commit = world.commit("alice", type_, content, at=clock)
        at = next_timestamp(world.state, commit, START + clock) - START
        world.send("alice", type_, content, at=at)
    literal = Replay()
    for event in world.events:
        literal.add(event)
    closed = len(literal.store.bundles)
    assert world.memory.bundles[:closed] == literal.store.bundles
    assert len(world.memory.bundles) - closed in (0, 1)
    assert checkpoint_root(world.state, world.memory) == literal.checkpoint_root()
    assert world.state_hash == literal.state_hash()
    bundles = [
        (bundle.first_seq, bundle.count, bundle.events_root()) for bundle in split(world.events, world.policy.bundle)
    ]
    assert [(b.first_seq, b.count, b.events_root) for b in world.memory.bundles] == bundles[: len(world.memory.bundles)]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_flushing_what_is_pending_changes_no_root(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> World:
        world = town(size=40)
        for i in range(12):
            world.send("bob", "Own", {"key": "k", "value": i})
            note = world.send("bob", "note")
            world.send("bob", "Update", "new", tags=about(note))
            world.send("alice", "Move", move(f"guest {i}", "OUTSIDER", "GUEST"))
        return world

    plain = run()
    monkeypatch.setattr(enclave, "MAX_PENDING", limit)
    flushed = run()
    assert len(flushed.state.pending) <= limit < len(plain.state.pending)
    assert flushed.events == plain.events
    assert flushed.memory.bundles == plain.memory.bundles
    assert flushed.state_hash == plain.state_hash
    assert checkpoint_root(flushed.state, flushed.memory) == checkpoint_root(plain.state, plain.memory)


def test_a_state_carries_no_more_than_max_pending() -> None:
    world = town(size=65_536)
    operations = [{"type": "Move", **move(f"guest {i}", "OUTSIDER", "GUEST")} for i in range(600)]
    world.send("alice", "AC_Bundle", {"operations": operations})
    assert len(world.state.pending) == 603
    world.send("alice", "AC_Bundle", {"operations": [{**o, "from": "GUEST", "to": "MEMBER"} for o in operations[:400]]})
    assert len(world.state.pending) == 603
    more = [{"type": "Move", **move(f"visitor {i}", "OUTSIDER", "GUEST")} for i in range(422)]
    world.send("alice", "AC_Bundle", {"operations": more[:421]})
    assert len(world.state.pending) == enclave.MAX_PENDING == 1024
    world.send("alice", "AC_Bundle", {"operations": more[421:]})
    assert world.state.pending == {}
    assert [world.bitmask(name) for name in ("guest 0", "guest 599", "visitor 421")] == [1, 2, 2]


def test_a_transition_names_the_leaves_that_the_event_changed() -> None:
    world = town(size=3)
    assert set(world.step.leaves) == {identity_key(person(name).public) for name in ("alice", "bob", "carol")}
    world.send("bob", "note")
    assert (world.step.leaves, world.step.flushed) == ({}, False)
    world.send("alice", "Pause")
    assert (world.step.leaves, world.step.flushed) == ({LIFECYCLE_KEY: PAUSED}, True)
    world.send("alice", "Migrate", world.migrate("node2"))
    assert (world.step.leaves, world.step.flushed) == ({LIFECYCLE_KEY: MIGRATED}, True)
    world.send("alice", "Resume")
    assert (world.step.leaves, world.step.flushed) == ({LIFECYCLE_KEY: None}, False)
    assert (world.seal(90_000).leaves, world.step.flushed) == ({}, True)


# Time


def test_a_timestamp_is_the_clock_or_the_floor() -> None:
    world = town()
    commit = world.commit("bob", "note", at=0)
    world.send("bob", "note", at=300)
    for clock, timestamp in [(0, 300), (299, 300), (300, 300), (301, 301)]:
        assert next_timestamp(world.state, commit, START + clock) == START + timestamp
    assert next_timestamp(None, commit, START + 7) == START + 7
    world.seal(5000)
    assert next_timestamp(world.state, commit, START + 301) == START + 5000


def test_no_event_is_given_a_timestamp_that_replay_would_refuse_for_its_exp() -> None:
    """A clock that went back between admission and sequencing must not make a log that nobody can take over."""
    commit = town().commit("bob", "note")
    earliest = commit.exp - 3_660_000
    assert next_timestamp(None, commit, earliest) == earliest
    with pytest.raises(InvalidCommit, match="more than an hour ahead"):
        next_timestamp(None, commit, earliest - 1)


def test_a_timestamp_more_than_60_s_after_exp_is_expired() -> None:
    world = town()
    commit = world.commit("bob", "note", at=0)
    last = commit.exp + 60_000
    assert next_timestamp(world.state, commit, last) == last
    with pytest.raises(Expired):
        next_timestamp(world.state, commit, last + 1)
    with pytest.raises(Expired):
        next_timestamp(None, commit, last + 1)


def test_a_floor_beyond_exp_makes_a_commit_expired_too() -> None:
    world = town()
    commit = world.commit("bob", "note", at=0)
    world.send("bob", "note", at=LIFETIME + 60_001)
    with pytest.raises(Expired):
        next_timestamp(world.state, commit, START + LIFETIME + 1)


def test_a_log_more_than_60_s_ahead_of_the_clock_is_unavailable_until_the_clock_is_there() -> None:
    world = town()
    world.send("bob", "note", at=100_000)
    commit = world.commit("bob", "note", at=100_000)
    assert next_timestamp(world.state, commit, START + 40_000) == START + 100_000
    with pytest.raises(Unavailable) as caught:
        next_timestamp(world.state, commit, START + 39_999)
    assert caught.value.context == {"retry_after_ms": 60_001}


# Purity


def test_judge_changes_nothing() -> None:
    world = town()
    note = world.send("alice", "note")
    state, pending = world.state, dict(world.state.pending)
    memory = copy(vars(world.memory))
    for type_, (content, tags) in everything(world, note).items():
        world.code("alice", type_, content, tags=tags)
        world.code("otto", type_, content, tags=tags)
    assert world.state is state
    assert world.state.pending == pending
    assert vars(world.memory) == memory


def test_judging_twice_gives_the_same_effects() -> None:
    world = town()
    note = world.send("alice", "note")
    for type_, (content, tags) in everything(world, note).items():
        if not world.code("alice", type_, content, tags=tags):
            commit = world.commit("alice", type_, content, tags=tags)
            assert world.judge(commit) == world.judge(commit)


def test_an_old_state_still_serves_two_futures() -> None:
    world = town(size=4)
    world.send("bob", "Own", {"key": "k", "value": 0})
    state, pending, root = world.state, dict(world.state.pending), world.state_hash
    futures = []
    for value in (1, 2):
        world.state, now = state, []
        for i in range(5):
            now.append(world.send("bob", "Own", {"key": "k", "value": [value, i]}))
        futures.append((world.state, now))
        assert state.pending == pending
        assert state_hash(state, world.memory) == root
    for after, now in futures:
        replay = Replay()
        for event in [*world.events[:2], *now]:
            replay.add(event)
        assert replay.state == after
        assert state_hash(after, world.memory) == replay.state_hash()
    assert futures[0][0].log != futures[1][0].log


def test_applying_the_same_event_twice_to_one_state_gives_the_same_transition() -> None:
    world = town(size=2)
    state, memory = world.state, EnclaveMemory()
    event = world.send("bob", "Own", {"key": "k", "value": 0})
    assert apply(state, event, world.effects, memory) == apply(state, event, world.effects, memory) == world.step


# Replay


def replay(events: Iterable[Event], **options: Any) -> Replay:
    """One by one. By runs, it must come to the same end."""
    events, found = list(events), Replay(**options)
    try:
        for event in events:
            found.add(event)
        found.finish()
    except ReplayFailed as e:
        with pytest.raises(ReplayFailed, match=f"^{re.escape(e.message)}$"):
            by_runs(events, **options)
        raise
    same, _ = by_runs(events, **options)
    assert (same.state, same.sequencers, same.store.targets) == (found.state, found.sequencers, found.store.targets)
    return found


def by_runs(events: list[Event], **options: Any) -> tuple[Replay, list[int]]:
    """As an import does it; and how many events each run had."""
    found, at, runs = Replay(**options), 0, list[int]()
    while at < len(events):
        end = found.add_run(events, at)
        if end == at:
            found.add(events[at])
        runs.append(end - at)
        at = max(end, at + 1)
    found.finish()
    return found, runs


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


def failure(events: Iterable[Event], **options: Any) -> ReplayFailed:
    with pytest.raises(ReplayFailed) as caught:
        replay(events, **options)
    return caught.value


def broken(events: Iterable[Event], **options: Any) -> tuple[str, int]:
    """The code and the seq of what is wrong with a log."""
    error = failure(events, **options)
    assert error.context["seq"] == error.seq
    assert error.message.startswith(f"seq {error.seq}: ")
    return error.code, error.seq


def forge(
    world: World, name: str = "bob", type_: str = "note", content: Any = "forged", *,
    tags: Tags = (), at: int | None = None, exp: int | None = None, node: str = "node", seq: int | None = None,
) -> Event:  # fmt: skip
    """The next event of a world as a node would finalise it that asks no rule."""
    at = world.next if at is None else at
    text = content if isinstance(content, str) else compact_json(content)
    exp = START + at + LIFETIME if exp is None else exp
    commit = build_commit(person(name), world.state.enclave, type_, text, exp, tags)
    return finalize(commit, person(node), START + at, world.state.seq + 1 if seq is None else seq)


def lively() -> World:
    """A log with a bit of everything, moved twice."""
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
    assert found.store.bundles == world.memory.bundles
    assert found.store.tree_nodes == world.memory.tree_nodes
    assert found.store.log_nodes == world.memory.log_nodes
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


def test_a_manifest_whose_enclave_is_not_the_one_it_founds() -> None:
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
