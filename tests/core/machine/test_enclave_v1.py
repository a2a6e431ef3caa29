"""Version 1 through the same machine: lifecycle, state tree, migration, replay and archives."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import (
    CheckpointMismatch,
    EnclaveMigrated,
    EnclavePaused,
    EnclaveTerminated,
    InvalidArchive,
    InvalidCommit,
    InvalidHash,
    InvalidLifecycleState,
)
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import check_event, erase, finalize, is_erasable
from enc.core.machine.archive import read_archive, write_archive
from enc.core.machine.archive_check import header_of, verify_archive
from enc.core.machine.enclave import checkpoint_root, judge_manifest
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import EMPTY_HASH, H, commit_hash, enclave_id, log_leaf, sha256
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, Event, Tags
from enc.core.rules.policy_types import EndpointChange
from enc.core.trees import sparse_merkle
from enc.core.trees.state_key import DELETED, identity_key
from tests.core.machine.enclave_town import broken, forge, replay
from tests.core.stored import memory_of
from tests.core.world import LIFETIME, START, Json, World, about, person, pub
from tests.core.world_v1 import ENDPOINT, OWNER, bundle, change, has, initial, manifest, row

ADMIN, MEMBER = 1 << 32, 1 << 33
GONE = {"reason": "author"}
SCHEMA = [
    *(row(type_, "Owner", "C", "Admin", "Member") for type_ in ("Grant", "Grant_Push", "Revoke", "Move")),
    row("Revoke_Self", "Member", "C", "Member"),
    *(row(type_, "Owner", "C") for type_ in ("Force_Move", "Transfer_Owner", "Pause", "Resume", "Terminate")),
    row("note", "Member", "CR"),
    row("note", "Self", "UD"),
    row("Transfer", "Member", "CU"),
]


def town(size: int = 256, timeout: int = 5000, **more: Any) -> World:
    """Return an enclave that alice owns, in which she may do everything; bob and carol are members."""
    people = initial(alice="Owner Member", bob="Member", carol="Member")
    return World(manifest(SCHEMA, people, bundle={"size": size, "timeout": timeout}, **more))


def everything(world: World, note: Event) -> dict[str, tuple[Any, Tags]]:
    """Return a content and tags for every type with which alice would succeed in an active enclave."""
    return {
        "Grant": (has("otto", "Admin"), ()),
        "Grant_Push": (has("otto", "Admin", endpoint=ENDPOINT), ()),
        "Revoke": (has("bob", "Member"), ()),
        "Revoke_Self": ({"role": "Member"}, ()),
        "Move": (change("bob", MEMBER, ADMIN), ()),
        "Force_Move": (change("bob", MEMBER, 0), ()),
        "Transfer_Owner": ({"new_owner": pub("bob")}, ()),
        "AC_Bundle": (bundle(("Grant", has("otto", "Admin"))), ()),
        "Update": ("new", about(note)),
        "Delete": (GONE, about(note)),
        "Pause": ("", ()),
        "Resume": ("", ()),
        "Terminate": ("", ()),
        "Migrate": (world.migrate("node3"), ()),
        "note": ("text", ()),
    }


# Lifecycle

LIFECYCLES: dict[str, tuple[list[str], list[str]]] = {
    # the steps to it, and the types that it accepts
    "active": ([], ["*", "-Resume"]),
    "resumed": (["Pause", "Resume"], ["*", "-Resume"]),
    "paused": (["Pause"], ["Resume", "Terminate", "Migrate"]),
    "terminated": (["Terminate"], []),
    "paused, terminated": (["Pause", "Terminate"], []),
    "migrated": (["Migrate"], ["*", "-Resume"]),
    "paused, migrated": (["Pause", "Migrate"], ["Resume", "Terminate", "Migrate"]),
}
REFUSED = {"paused": EnclavePaused, "terminated": EnclaveTerminated}


def stepped(steps: list[str]) -> tuple[World, Event]:
    world = town()
    note = world.send("alice", "note")
    for step in steps:
        world.send("alice", step, world.migrate("node2") if step == "Migrate" else "")
    return world, note


@pytest.mark.parametrize("lifecycle", LIFECYCLES)
@pytest.mark.parametrize("type_", [*sorted(PREDEFINED_V1 - {"Manifest"}), "note"])
def test_which_types_a_lifecycle_accepts(lifecycle: str, type_: str) -> None:
    """For its new sequencer, a migrated enclave is in the lifecycle in which it was before."""
    steps, accepted = LIFECYCLES[lifecycle]
    world, note = stepped(steps)
    content, tags = everything(world, note)[type_]
    if type_ in accepted or ("*" in accepted and f"-{type_}" not in accepted):
        world.send("alice", type_, content, tags=tags)
        return
    error = world.refused("alice", type_, content, tags=tags)
    assert type(error) is (
        InvalidLifecycleState if type_ == "Resume" and "*" in accepted else REFUSED[world.state.lifecycle]
    )


@pytest.mark.parametrize("type_", [*sorted(PREDEFINED_V1 - {"Manifest"}), "note"])
def test_after_migrate_the_old_node_takes_nothing_and_names_the_new_one(type_: str) -> None:
    world, note = stepped(["Migrate"])
    content, tags = everything(world, note)[type_]
    error = world.refused("alice", type_, content, tags=tags, node="node")
    assert (type(error), error.context) == (EnclaveMigrated, {"new_sequencer": pub("node2")})


def test_terminate_and_migrate_exclude_each_other() -> None:
    terminated, _ = stepped(["Terminate"])
    for takeover in (False, True):
        error = terminated.refused("alice", "Migrate", terminated.migrate("node2"), node="node2", takeover=takeover)
        assert type(error) is EnclaveTerminated
    migrated, _ = stepped(["Migrate"])
    assert type(migrated.refused("alice", "Terminate", node="node")) is EnclaveMigrated


def test_the_lifecycle_is_checked_before_authorisation() -> None:
    world, note = stepped(["Pause"])
    assert type(world.refused("otto", "note")) is EnclavePaused
    assert type(world.refused("otto", "Resume")).code == "UNAUTHORIZED"
    assert world.code("otto", "Delete", GONE, tags=about(note)) == "ENCLAVE_PAUSED"


def test_a_second_manifest_exists_already() -> None:
    world = town()
    assert world.code("alice", "Manifest", world.events[0].content) == "ENCLAVE_EXISTS"


# The state tree


@pytest.mark.parametrize(
    ("type_", "changes"),
    [
        *(
            (type_, "rbac")
            for type_ in "Grant Grant_Push Revoke Revoke_Self Move Force_Move Transfer_Owner AC_Bundle".split()
        ),
        *((type_, "status") for type_ in ("Update", "Delete")),
        *((type_, "nothing") for type_ in ("Pause", "Resume", "Terminate", "Migrate", "note")),
    ],
)
def test_which_events_change_the_tree(type_: str, changes: str) -> None:
    world, note = stepped(["Pause"] if type_ == "Resume" else [])
    content, tags = everything(world, note)[type_]
    before = world.state_hash
    world.send("alice", type_, content, tags=tags)
    assert {key[0] for key in world.step.leaves} == {"rbac": {0}, "status": {1}, "nothing": set()}[changes]
    assert (world.state_hash == before) == (changes == "nothing")


def test_the_lifecycle_is_in_the_state_and_never_in_the_tree() -> None:
    world, _ = stepped([])
    before = world.state_hash
    for type_, lifecycle in [
        ("Pause", "paused"),
        ("Migrate", "paused"),
        ("Resume", "active"),
        ("Terminate", "terminated"),
    ]:
        world.send("alice", type_, world.migrate("node2") if type_ == "Migrate" else "")
        assert (world.state.lifecycle, world.lifecycle_leaf, world.state_hash) == (lifecycle, None, before)
    assert world.policy.lifecycle_in_state is False


def test_only_two_namespaces_are_used() -> None:
    world = lively()
    root, nodes = sparse_merkle.update(world.memory, world.state.root, world.state.pending)
    world.memory.tree_nodes.update(nodes)
    assert {key[0] for key, _ in sparse_merkle.leaves(world.memory, root)} == {0, 1}
    assert world.policy.namespaces == ("rbac", "event_status")


def test_what_the_leaves_hold() -> None:
    """A bitmask has 32 bytes; a status is a zero byte (deleted) or the latest Update's id; else there is no leaf."""
    world = town()
    updated, deleted, active = (world.send("bob", "note") for _ in range(3))
    update = world.send("bob", "Update", "new", tags=about(updated))
    world.send("bob", "Delete", GONE, tags=about(deleted))
    assert world.leaf(identity_key(person("alice").public)) == bytes.fromhex(f"{OWNER | MEMBER:064x}")
    assert world.leaf(identity_key(person("otto").public)) is None
    assert [world.status(event) for event in (updated, deleted, active)] == [update.id, DELETED, None]


def test_the_first_bundle_holds_the_state_after_the_manifest() -> None:
    world = town(size=1)
    assert world.memory.bundles[0].state_hash == world.state_hash != EMPTY_HASH
    assert world.state.log.root() == log_leaf(world.events[0].id, world.state_hash)


def test_auto_delete_changes_no_status() -> None:
    world = town()
    when = str(START + 10 * LIFETIME)
    note = world.send("bob", "note", "soon gone", tags=(("auto-delete", when),))
    assert (world.status(note), world.step.leaves) == (None, {})


# Hashes


def test_hashes_hold_the_tags_as_text() -> None:
    world = town()
    tags = (("r", "abc", "reply"), ("k", "ü", ""))
    note = world.send("bob", "note", "text", tags=tags)
    fields = note.enclave, note.from_, "note", sha256(b"text"), note.exp
    assert note.hash == H(0x10, *fields, "[r,abc,reply],[k,ü,]")
    assert note.hash == commit_hash(1, *fields, tags) != commit_hash(2, *fields, tags)
    first = world.events[0]
    assert (
        first.enclave
        == H(0x12, first.from_, "Manifest", first.content_hash, "")
        == enclave_id(1, first.from_, first.content_hash, ())
    )


def test_a_content_of_base64_is_hashed_as_it_is_sent() -> None:
    note = town().commit("bob", "note", "SGVsbG8=")
    assert note.content_hash == sha256(b"SGVsbG8=")


@pytest.mark.parametrize("text", ["a,b", "[", "]", "[a]"])
def test_a_tag_that_the_text_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidCommit):
        town().commit("bob", "note", tags=(("k", text),))


def test_an_event_hashed_by_the_other_version_is_refused() -> None:
    world = town()
    assert broken([*world.events, forge(world)]) == ("INVALID_HASH", 1)
    content = compact_json(manifest(SCHEMA, initial(alice="Owner")))
    other = finalize(build_manifest(person("alice"), content, START + LIFETIME, enc_v=2), person("node"), START, 0)
    assert broken([other]) == ("INVALID_HASH", 0)
    with pytest.raises(InvalidHash):
        check_event(other, 1)


def test_schnorr_only() -> None:
    world = town()
    commit = build_commit(person("bob"), world.state.enclave, "note", "x", START + LIFETIME, alg="ecdsa", enc_v=1)
    assert broken([*world.events, finalize(commit, person("node"), START + 1, 1)]) == ("INVALID_COMMIT", 1)


# Migration


@pytest.mark.parametrize("before", ["active", "paused"])
@pytest.mark.parametrize("forced", [False, True])
def test_migrate_hands_over_and_closes_its_bundle(before: str, forced: bool) -> None:
    world = town()
    if before == "paused":
        world.send("alice", "Pause")
    checkpoint = checkpoint_root(world.state, world.memory)
    event = world.send("alice", "Migrate", world.migrate("node2"), node="node2" if forced else "node", takeover=forced)
    assert event.sequencer == person("node2" if forced else "node").public
    assert (world.state.sequencer, world.state.lifecycle) == (person("node2").public, before)
    assert world.state.bundle is None
    assert len(world.memory.bundles) == (2 if forced else 1)
    assert checkpoint_root(world.state, world.memory) != checkpoint
    assert world.send("alice", "Resume" if before == "paused" else "note").sequencer == person("node2").public
    assert replay(world.events).state == world.state


def test_migrate_names_the_log_s_checkpoint() -> None:
    world = town()
    root = checkpoint_root(world.state, world.memory)
    for wrong in ({"prev_seq": 1}, {"ct_root": "00" * 32}):
        error = world.refused("alice", "Migrate", world.migrate("node2", **wrong))
        assert (type(error), error.context) == (CheckpointMismatch, {"seq": 0, "ct_root": root.hex()})


@pytest.mark.parametrize("field", ["new_sequencer", "prev_seq", "ct_root"])
@pytest.mark.parametrize("value", [None, "", 1.5, "xyz", []])
def test_a_malformed_migrate_is_refused_by_name(field: str, value: Any) -> None:
    world = town()
    error = world.refused("alice", "Migrate", world.migrate("node2", **{field: value}))
    assert type(error) is InvalidCommit
    assert error.message.startswith(f"content.{field}: ")


def test_a_takeover_is_signed_by_the_owner_of_the_replayed_state() -> None:
    world = town()
    world.send("alice", "Transfer_Owner", {"new_owner": pub("bob")})
    content = world.migrate("node2")
    assert broken([*world.events, forge_v1(world, "alice", "Migrate", content, node="node2")]) == ("UNAUTHORIZED", 2)
    assert replay([*world.events, forge_v1(world, "bob", "Migrate", content, node="node2")]).events == 3


# Replay and archives


def forge_v1(world: World, name: str, type_: str, content: Any, *, node: str = "node", tags: Tags = ()) -> Event:
    """Return the next event as a node would finalise it that ignores all rules."""
    commit = world.commit(name, type_, content, tags=tags)
    return finalize(commit, person(node), START + world.next, world.state.seq + 1)


def lively() -> World:
    """Return a log with many kinds of events, moved twice."""
    world = town(size=5, timeout=1000)
    first, second = (world.send("bob", "note", text, tags=(("k", text),)) for text in ("one", "two"))
    world.send("bob", "Update", "three", tags=about(first))
    world.send("bob", "Delete", GONE, tags=about(second))
    for type_, (content, tags) in everything(world, first).items():
        if type_ in ("Grant", "Grant_Push", "AC_Bundle"):
            world.send("alice", type_, content, tags=tags, at=world.next + 300)
    world.send("alice", "Migrate", world.migrate("node2"))
    world.send("alice", "Pause")
    world.send("alice", "Migrate", world.migrate("node3"), node="node3", takeover=True)
    world.send("alice", "Resume")
    world.send("alice", "Force_Move", change("bob", MEMBER, ADMIN | MEMBER), at=9000)
    world.send("alice", "Transfer_Owner", {"new_owner": pub("bob")})
    world.send("bob", "Terminate")
    return world


def test_replay_reaches_the_same_state() -> None:
    world = lively()
    found = replay(world.events)
    assert found.state == world.state
    assert memory_of(found).bundles == world.memory.bundles
    assert memory_of(found).tree_nodes == world.memory.tree_nodes
    assert found.checkpoint_root() == checkpoint_root(world.state, world.memory)
    assert found.state_hash() == world.state_hash


def test_an_archive_survives_and_says_which_version_it_is() -> None:
    world = lively()
    events = [erase(event) if event.type == "note" else event for event in world.events]
    header = header_of(replay(events), None)
    assert header.enc_v == 1
    read, lines = read_archive(write_archive(header, events))
    assert read == header
    assert verify_archive(read, lines).state == world.state
    with pytest.raises(InvalidArchive, match="enc_v"):
        verify_archive(replace(header, enc_v=2), events)


@pytest.mark.parametrize(
    ("name", "type_", "content", "code"),
    [
        ("otto", "note", "x", "UNAUTHORIZED"),
        ("bob", "Grant", has("bob", "Admin"), "UNAUTHORIZED"),
        ("alice", "Move", change("bob", ADMIN, 0), "BITMASK_MISMATCH"),
        ("alice", "Force_Move", change("alice", OWNER | MEMBER, MEMBER), "OWNER_BIT_PROTECTED"),
        ("alice", "Revoke_Self", {"role": "Owner"}, "OWNER_SELF_REVOKE_FORBIDDEN"),
        ("alice", "AC_Bundle", bundle(("Grant", has("bob", "nothing"))), "AC_BUNDLE_FAILED"),
        ("alice", "Resume", "", "INVALID_LIFECYCLE_STATE"),
        ("alice", "Manifest", "{}", "INVALID_COMMIT"),
    ],
)
def test_an_event_that_the_rules_do_not_allow_fails_the_replay(name: str, type_: str, content: Any, code: str) -> None:
    world = town()
    assert broken([*world.events, forge_v1(world, name, type_, content)]) == (code, 1)


def test_replay_gives_the_endpoints_of_the_whole_log() -> None:
    """The lookup table of endpoints is a function of the log: after a move the new node builds it again."""
    people: Json = {
        **initial(alice="Owner Member", bob="Member"),
        "Admin": [{"identity": pub("bob"), "endpoint": "https://a"}],
    }
    world = World(manifest(SCHEMA, people))
    world.send("alice", "Grant_Push", has("bob", "Admin", endpoint="https://b"))
    world.send("alice", "Grant_Push", has("bob", "Member", endpoint="https://c"))
    world.send("bob", "Revoke_Self", {"role": "Member"})
    table: dict[tuple[bytes, str], str | None] = {}
    found = Replay()
    for event in world.events:
        for each in found.add(event)[1].endpoints:
            table.update({(each.identity, trait): each.url for trait in each.traits})
    assert table == {(person("bob").public, "Admin"): "https://b", (person("bob").public, "Member"): None}
    assert judge_manifest(world.events[0])[1].endpoints == (
        EndpointChange(person("bob").public, ("Admin",), "https://a"),
    )


# Erasure: which events are content events depends on the version


@pytest.mark.parametrize("type_", sorted(PREDEFINED_V1 - {"Manifest", "Update", "Migrate", "Resume"}))
def test_an_erased_predefined_event(type_: str) -> None:
    world, note = stepped([])
    content, tags = everything(world, note)[type_]
    world.send("alice", type_, content, tags=tags)
    assert broken([*world.events[:-1], erase(world.events[-1])]) == ("INVALID_ARCHIVE", 2)


def test_what_only_version_2_predefines_may_be_erased_with_a_cause() -> None:
    world = town()
    event = world.send("bob", "Transfer", "an application's own")
    world.send("bob", "Update", "new", tags=about(event))
    assert replay([world.events[0], erase(event), world.events[2]]).state == world.state
    assert broken([world.events[0], erase(event)]) == ("INVALID_ARCHIVE", 1)


@pytest.mark.parametrize("type_", sorted((PREDEFINED | PREDEFINED_V1) - {"Update"}))
def test_what_is_erasable_follows_the_policy_s_types(type_: str) -> None:
    event = forge(town(), type_=type_)
    assert is_erasable(event, PREDEFINED_V1) == (type_ not in PREDEFINED_V1)
    assert is_erasable(event, PREDEFINED) == (type_ not in PREDEFINED)
