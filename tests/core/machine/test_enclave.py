"""The state machine: lifecycle, the first commit, migration and ownership."""

from typing import Any

import pytest

from enc.core.errors import (
    CheckpointMismatch,
    EnclaveExists,
    EnclaveMigrated,
    EnclavePaused,
    EnclaveTerminated,
    InvalidCommit,
    Unauthorized,
)
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase
from enc.core.machine.enclave import checkpoint_root, judge_manifest
from enc.core.primitives.encoding import compact_json
from tests.core.machine.enclave_town import MIGRATED, PAUSED, TERMINATED, everything, opened, town
from tests.core.strategies import anything
from tests.core.world import (
    NO_POINT,
    START,
    Json,
    World,
    gated,
    give,
    init,
    move,
    person,
    pub,
    rule,
)

# Lifecycle


WHILE_PAUSED = ["Resume", "Terminate", "Migrate"]


WHILE_ACTIVE = "Move Grant Revoke Transfer Gate AC_Bundle Shared Own Update Delete Pause note".split()


LIFECYCLES = {
    # the types that are rejected; everything else is accepted
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


def test_judge_manifest_creates_a_registry() -> None:
    content = compact_json({"enc_v": 2, "registry": True, "init": init(alice="OUTSIDER")})
    policy, _ = judge_manifest(build_manifest(person("alice"), content, START))
    assert policy.registry


def test_an_enclave_after_its_manifest() -> None:
    world = town()
    state = world.state
    assert (state.seq, state.min_timestamp, state.sequencer) == (0, START, person("node").public)
    assert (state.enclave, state.lifecycle, state.migrated) == (world.events[0].enclave, "active", False)
    assert (state.log.size, opened(world).count) == (0, 1)


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
        *(("prev_seq", value) for value in anything(None, "0", 0.0, -1, True, [])),
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
