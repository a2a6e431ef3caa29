"""Access control, version 2: who is an owner, who becomes one, and what a policy says about itself."""

from typing import Any

import pytest

from enc.core.errors import InvalidCommit, InvalidEndpointUrl
from enc.core.primitives.types import Target
from enc.core.rules.dialects import DialectV2
from enc.core.rules.policy_types import Subject
from tests.core.rules.v2.access_club import (
    ADMIN,
    EVERYTHING,
    MEMBER,
    MUTED,
    OWNER,
    PEOPLE,
    STATES,
    club,
    is_,
    op,
    slot,
)
from tests.core.world import Json, World, give, init, move, path, person, rule

BY_STATE: Json = {
    "enc_v": 2,
    "states": ["GUEST", "OWNER"],
    "traits": ["admin(0)"],
    "moves": [path("OUTSIDER", state, "OWNER") for state in ("GUEST", "OWNER")],
    "init": init(alice="OWNER", bob="GUEST admin"),
}


def bundle(*inner: Json) -> Json:
    return {"operations": list(inner)}


def people(*names: str) -> frozenset[bytes]:
    return frozenset(person(name).public for name in names)


def new_owners(world: World, type_: str, content: Any) -> frozenset[bytes]:
    found: frozenset[bytes] = world.policy.new_owners(world.commit("olga", type_, content))
    return found


def test_an_owner_holds_the_trait_or_if_there_is_none_the_state() -> None:
    by_trait, by_state = club().policy, World(BY_STATE).policy
    for mask, is_owner in ((OWNER, True), (OWNER | ADMIN | MEMBER, True), (ADMIN | MUTED, False), (MEMBER, False)):
        assert by_trait.is_owner(mask) is is_owner
    for mask, is_owner in ((0, False), (1, False), (2, True), (2 | 1 << 8, True), (1 | 1 << 8, False)):
        assert by_state.is_owner(mask) is is_owner


def test_the_manifest_makes_owners() -> None:
    assert club().policy.new_owners(club().events[0]) == people("olga")
    assert World(BY_STATE).policy.new_owners(World(BY_STATE).events[0]) == people("alice")


@pytest.mark.parametrize(
    ("type_", "content", "owners"),
    [
        ("Transfer", give("mark", "owner"), ["mark"]),
        ("Transfer", give("mark", "muted"), []),
        ("Grant", give("mark", "owner"), ["mark"]),
        ("Grant", give("mark", "admin"), []),
        ("Revoke", give("mark", "owner"), []),
        ("Move", move("mark", "MEMBER", "PENDING"), []),
        ("Gate", {"alias": "notes", "state": "open"}, []),
        ("note", give("mark", "owner"), []),
        ("note", "text", []),
        (
            "AC_Bundle",
            bundle(
                op("Grant", give("mark", "owner")),
                op("Transfer", give("mary", "muted")),
                op("Transfer", give("adam", "owner")),
                op("Move", move("pete", "PENDING", "MEMBER")),
            ),
            ["mark", "adam"],
        ),
    ],
)
def test_the_trait_passes_by_a_transfer_or_a_grant(type_: str, content: Any, owners: list[str]) -> None:
    assert new_owners(club(**EVERYTHING), type_, content) == people(*owners)


@pytest.mark.parametrize(
    ("type_", "content", "owners"),
    [
        ("Move", move("carol", "OUTSIDER", "OWNER"), ["carol"]),
        ("Move", move("carol", "OUTSIDER", "GUEST"), []),
        ("Move", move("alice", "OWNER", "OUTSIDER"), []),
        ("Grant", give("carol", "admin"), []),
        ("Grant", {**give("carol", "admin"), "to": "OWNER"}, []),
        ("AC_Bundle", bundle(op("Move", move("carol", "OUTSIDER", "OWNER"))), ["carol"]),
    ],
)
def test_the_state_passes_by_a_move(type_: str, content: Any, owners: list[str]) -> None:
    assert new_owners(World(BY_STATE), type_, content) == people(*owners)


def test_a_malformed_event_makes_nobody_an_owner() -> None:
    with pytest.raises(InvalidCommit, match=r"^content\.target: "):
        new_owners(club(), "Transfer", {"trait": "owner"})
    with pytest.raises(InvalidCommit, match=r"^content\.trait: "):
        new_owners(club(), "Grant", {**give("mark", "owner"), "trait": 5})


# What a policy says about itself


def test_the_names_and_people_of_a_manifest() -> None:
    policy = club(slots=[rule("Shared", "owner", "C", key="a"), rule("Own", "MEMBER", "C", key="b")]).policy
    ranked = ["owner(0)", "admin(1)", "moderator(1)", "muted(2)", "dataview(3)"]
    assert policy.names == {"states": STATES, "traits": ranked}
    assert policy.initial_members == tuple(person(name).public for name in PEOPLE)
    assert policy.slots == {"Shared": {"a"}, "Own": {"b"}}
    assert club(customs=[rule("note", "MEMBER", "C")]).policy.slots == {"Shared": set(), "Own": set()}
    assert isinstance(policy.dialect, DialectV2)
    assert (policy.enc_v, policy.registry, policy.namespaces) == (2, False, ("rbac", "event_status", "kv"))


@pytest.mark.parametrize(
    ("type_", "content", "subject"),
    [
        ("Move", move("mark", "MEMBER", "PENDING"), Subject("Move", from_state="MEMBER", to_state="PENDING")),
        ("Grant", give("mark", "admin"), Subject("Grant", trait="admin")),
        ("Revoke", give("mark", "admin"), Subject("Revoke", trait="admin")),
        ("Transfer", give("mark", "owner"), Subject("Transfer", trait="owner")),
        ("Shared", slot("topic", 1), Subject("Shared", key="topic")),
        ("Own", slot("topic", 1), Subject("Own", key="topic")),
        ("note", "text", Subject("note")),
        ("Pause", "", Subject("Pause")),
    ],
)
def test_what_a_reader_s_entry_selects_an_event_by(type_: str, content: Any, subject: Subject) -> None:
    world = club()
    assert world.policy.subject(world.commit("olga", type_, content), None) == subject


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_an_edit_is_selected_by_the_type_of_what_it_edits(type_: str) -> None:
    commit = club().commit("olga", type_, "")
    assert club().policy.subject(commit, Target("note", person("mark").public)) == Subject("note")
    assert club().policy.subject(commit, None) == Subject(type_)


# Contents


@pytest.mark.parametrize("type_", ["Pause", "Resume", "Terminate"])
def test_a_lifecycle_event_has_no_content_of_another_form(type_: str) -> None:
    world = club(lifecycle=[rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate")])
    if type_ == "Resume":
        world.send("olga", "Pause")
    assert world.code("olga", type_, "[]") == "INVALID_COMMIT"
    assert world.code("olga", type_, "{}") == ""


def test_a_wrong_endpoint_of_a_grant_is_named() -> None:
    error = club(**EVERYTHING).refused("olga", "Grant", {**give("mark", "dataview"), "endpoint": ""})
    assert is_(error, InvalidEndpointUrl, **error.context)
    assert error.message.startswith("endpoint: ")
