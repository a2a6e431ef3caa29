"""The event-operator matrices of the applications, cell by cell, and their flows."""

import re
from typing import Any

import pytest

from enc.core.errors import GateClosed, StateMismatch
from enc.core.primitives.types import Target
from enc.core.rules.policy_types import Subject
from enc.core.trees.state_key import CLOSED, DELETED
from tests.core.rules.v2.matrices import DM_MATRIX, PERSONAL_MATRIX, cells, expected
from tests.core.world import DM, GROUP, PERSONAL, Json, World, about, give, init, move, person

DM_PEOPLE = init(alice="OWNER", frank="FRIEND", blake="BLOCKED", fiona="FRIEND", boris="BLOCKED")


DM_ACTORS = {"alice": "OWNER", "otto": "OUTSIDER", "frank": "FRIEND", "blake": "BLOCKED"}


DM_TARGETS = {"OUTSIDER": "tom", "FRIEND": "fiona", "BLOCKED": "boris"}


PERSONAL_PEOPLE = init(alice="OWNER", dave="OUTSIDER dataview", ellen="OWNER dataview")


PERSONAL_ACTORS = {"alice": "OWNER", "otto": "OUTSIDER", "dave": "OUTSIDER dataview", "ellen": "OWNER dataview"}


def effective(world: World, event: str, name: str, *, is_author: bool, creates: Json, subject: Subject) -> str:
    """Return the ops that someone has on such an event: C, U and D by trying them, R, P and N from the policy."""
    type_ = event.partition("(")[0]
    found = set(world.policy.rights(subject, world.bitmask(name), is_author=is_author, closed=frozenset()))
    if not world.code(name, type_, creates):
        found.add("C")
    if type_ == "Shared":
        world.send("alice", "Shared", creates)
        found |= {"U"} if not world.code(name, type_, creates) else set()
        found |= {"D"} if not world.code(name, type_, {**creates, "value": None}) else set()
    else:
        world.memory.targets[bytes(32)] = Target(type_, person(name if is_author else "someone").public)
        tags = (("r", "00" * 32),)
        found |= {"U"} if not world.code(name, "Update", "new", tags=tags) else set()
        found |= {"D"} if not world.code(name, "Delete", {"reason": "author"}, tags=tags) else set()
    return "".join(op for op in "CRUDPN" if op in found)


@pytest.mark.parametrize(("event", "name", "columns"), cells(DM_MATRIX, DM_ACTORS))
def test_dm(event: str, name: str, columns: list[str]) -> None:
    world, creates, subject = World({**DM, "init": DM_PEOPLE}), {}, Subject(event)
    if event == "Gate(invites)":
        creates, subject = {"alias": "invites", "state": "closed"}, Subject("Gate")
    elif event.startswith("Move"):
        from_, to = re.findall("[A-Z]{3,}", event)
        creates = move(DM_TARGETS[from_], from_, to)
        subject = Subject("Move", from_state=from_, to_state=to)
    found = effective(world, event, name, is_author="Sender" in columns, creates=creates, subject=subject)
    assert found == expected(DM_MATRIX[event], columns)


@pytest.mark.parametrize(("event", "name", "columns"), cells(PERSONAL_MATRIX, PERSONAL_ACTORS))
def test_personal(event: str, name: str, columns: list[str]) -> None:
    world, subject = World({**PERSONAL, "init": PERSONAL_PEOPLE}), Subject(event)
    creates: Json = {}
    if event == "Gate(notices)":
        creates, subject = {"alias": "notices", "state": "closed"}, Subject("Gate")
    elif event == "Shared(profile)":
        creates, subject = {"key": "profile", "value": {"display_name": "A"}}, Subject("Shared", key="profile")
    elif event.endswith("(dataview)"):
        creates, subject = give("tom", "dataview"), Subject(event.partition("(")[0], trait="dataview")
    found = effective(world, event, name, is_author="Sender" in columns, creates=creates, subject=subject)
    assert found == expected(PERSONAL_MATRIX[event], columns)


def test_the_matrices_have_the_cells_of_their_tables() -> None:
    assert DM_MATRIX["message"] == {
        "OWNER": {"R", "D"},
        "OUTSIDER": set(),
        "FRIEND": {"C"},
        "BLOCKED": {"_U", "_D"},
        "Sender": {"U", "D"},
    }
    assert sum(len(cell) for row in DM_MATRIX.values() for cell in row.values()) == 31
    assert sum(len(cell) for row in PERSONAL_MATRIX.values() for cell in row.values()) == 26


@pytest.mark.parametrize("manifest", [DM, PERSONAL])
@pytest.mark.parametrize("type_", ["Manifest", "Pause", "Update", "AC_Bundle", "other"])
def test_the_owner_alone_reads_what_has_no_row(manifest: Json, type_: str) -> None:
    world = World(manifest)
    assert world.scope("alice").of(type_) == "all"
    assert not world.scope("otto")


@pytest.mark.parametrize("manifest", [DM, PERSONAL])
@pytest.mark.parametrize(
    ("type_", "content"),
    [
        ("Pause", ""),
        ("other", ""),
        ("Shared", {"key": "topic", "value": 1}),
        ("Own", {"key": "profile", "value": 1}),
        ("Transfer", give("bob", "dataview")),
        ("Move", move("bob", "OUTSIDER", "OWNER")),
        ("Move", move("alice", "OWNER", "OUTSIDER")),
    ],
)
def test_what_has_no_row_nobody_may(manifest: Json, type_: str, content: Any) -> None:
    world = World(manifest)
    for name in ("alice", "otto"):
        assert world.code(name, type_, content) == "UNAUTHORIZED"


# DM


STATE = {"OUTSIDER": 0, "OWNER": 1, "FRIEND": 2, "BLOCKED": 3}


TRANSITIONS = [
    ("OUTSIDER", "FRIEND"),
    ("OUTSIDER", "BLOCKED"),
    ("FRIEND", "OUTSIDER"),
    ("FRIEND", "BLOCKED"),
    ("BLOCKED", "FRIEND"),
    ("BLOCKED", "OUTSIDER"),
]


@pytest.mark.parametrize(("from_", "to"), TRANSITIONS)
def test_dm_transition(from_: str, to: str) -> None:
    world = World({**DM, "init": DM_PEOPLE})
    target = DM_TARGETS[from_]
    content = move(target, from_, to, epoch={"n": 0, "encrypted_secret": "", "ecdh_pub": ""})
    for name in (target, "frank", "otto"):
        assert world.code(name, "Move", content) == "UNAUTHORIZED"
    world.send("alice", "Move", content)
    assert world.bitmask(target) == STATE[to]
    error = world.refused("alice", "Move", content)
    assert (type(error), error.context) == (StateMismatch, {"expected": from_, "actual": to})


@pytest.mark.parametrize("from_", STATE)
@pytest.mark.parametrize("to", STATE)
def test_dm_has_no_other_transition(from_: str, to: str) -> None:
    world = World({**DM, "init": DM_PEOPLE})
    target = {**DM_TARGETS, "OWNER": "alice"}[from_]
    assert (world.code("alice", "Move", move(target, from_, to)) == "") == ((from_, to) in TRANSITIONS)


def test_dm_first_contact_then_block() -> None:
    world = World(DM)
    assert world.code("bob", "message", "hi") == "UNAUTHORIZED"
    invite = world.send("bob", "invite", "hello")
    assert (world.rights("alice", invite), world.rights("bob", invite)) == ("R", "")
    world.send("alice", "Move", move("bob", "OUTSIDER", "FRIEND"))
    assert world.code("bob", "invite", "again") == "UNAUTHORIZED"
    message = world.send("bob", "message", "hi")
    edited = world.send("bob", "Update", "hi!", tags=about(message))
    assert world.status(message) == edited.id
    world.send("alice", "Move", move("bob", "FRIEND", "BLOCKED"))
    for type_ in ("Update", "Delete"):
        assert world.code("bob", type_, {"reason": "author"}, tags=about(message)) == "UNAUTHORIZED"
    world.send("alice", "Delete", {"reason": "moderator"}, tags=about(message))
    assert world.status(message) == DELETED
    world.send("alice", "Move", move("bob", "BLOCKED", "FRIEND"))
    assert world.code("bob", "Update", "late", tags=about(message)) == "EVENT_DELETED"


def test_dm_a_removed_friend_may_still_revise_its_messages() -> None:
    world = World(DM)
    world.send("alice", "Move", move("bob", "OUTSIDER", "FRIEND"))
    message = world.send("bob", "message", "hi")
    world.send("alice", "Move", move("bob", "FRIEND", "OUTSIDER"))
    assert world.code("bob", "message", "more") == "UNAUTHORIZED"
    assert world.code("bob", "Delete", {"reason": "author"}, tags=about(message)) == ""
    assert world.code("carol", "Delete", {"reason": "author"}, tags=about(message)) == "UNAUTHORIZED"


@pytest.mark.parametrize(
    ("manifest", "type_", "alias"), [(DM, "invite", "invites"), (PERSONAL, "notice", "notices")], ids=["dm", "personal"]
)
def test_the_owner_closes_and_opens_the_inbox(manifest: Json, type_: str, alias: str) -> None:
    world = World(manifest)
    assert world.code("bob", "Gate", {"alias": alias, "state": "closed"}) == "UNAUTHORIZED"
    world.send("alice", "Gate", {"alias": alias, "state": "closed"})
    assert world.gate(alias) == CLOSED
    error = world.refused("bob", type_, "hello")
    assert (type(error), error.context) == (GateClosed, {"alias": alias})
    assert world.code("alice", type_, "hello") == "UNAUTHORIZED"
    world.send("alice", "Gate", {"alias": alias, "state": "open"})
    world.send("bob", type_, "hello")


def test_personal_dataview_is_pushed_what_it_may_not_read() -> None:
    world = World(PERSONAL)
    note = world.send("bob", "notice", "sealed")
    assert world.rights("dave", note) == ""
    world.send("alice", "Grant", give("dave", "dataview", endpoint="https://example.org/push"))
    assert world.effects.endpoints[0].url == "https://example.org/push"
    assert (world.rights("dave", note), bool(world.scope("dave"))) == ("P", False)
    private = world.send("alice", "private", "sealed")
    assert world.rights("dave", private) == ""
    world.send("alice", "Revoke", give("dave", "dataview"))
    assert world.rights("dave", note) == ""
    assert world.bitmask("dave") == 0


# Group


PENDING, MEMBER, BLOCKED, OWNER, ADMIN, MUTED = 1, 2, 3, 1 << 8, 1 << 9, 1 << 10


def test_group_apply_and_accept_or_turn_away_or_withdraw() -> None:
    world = World(GROUP)
    assert world.bitmask("alice") == MEMBER | OWNER | ADMIN
    for name in ("bob", "carol", "dave"):
        world.send(name, "Move", move(name, "OUTSIDER", "PENDING"))
        assert world.bitmask(name) == PENDING
        assert world.code(name, "message", "hi") == "UNAUTHORIZED"
        assert world.code(name, "Move", move(name, "PENDING", "MEMBER")) == "UNAUTHORIZED"
    world.send("alice", "Move", move("bob", "PENDING", "MEMBER", epoch={"n": 0}))
    world.send("alice", "Move", move("carol", "PENDING", "OUTSIDER"))
    world.send("dave", "Move", move("dave", "PENDING", "OUTSIDER"))
    assert [world.bitmask(name) for name in ("bob", "carol", "dave")] == [MEMBER, 0, 0]
    message = world.send("bob", "message", "hi")
    assert (world.rights("alice", message), world.rights("carol", message)) == ("R", "")


def test_group_gates_are_apart_and_auto_join_is_the_owners() -> None:
    world = World(GROUP)
    world.send("alice", "Gate", {"alias": "auto_join", "state": "closed"})
    error = world.refused("bob", "Move", move("bob", "OUTSIDER", "MEMBER"))
    assert (type(error), error.context) == (GateClosed, {"alias": "auto_join"})
    assert world.code("bob", "Move", move("bob", "OUTSIDER", "PENDING")) == ""
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    world.send("alice", "Grant", give("bob", "admin"))
    assert world.code("bob", "Gate", {"alias": "auto_join", "state": "open"}) == "UNAUTHORIZED"
    assert world.code("bob", "Gate", {"alias": "applications", "state": "closed"}) == ""
    world.send("alice", "Gate", {"alias": "auto_join", "state": "open"})
    world.send("carol", "Move", move("carol", "OUTSIDER", "MEMBER"))
    assert world.bitmask("carol") == MEMBER


@pytest.fixture
def group() -> World:
    """Return a group in which bob and carol are members, and bob is an admin."""
    world = World(GROUP)
    for name in ("bob", "carol"):
        world.send("alice", "Move", move(name, "OUTSIDER", "MEMBER"))
    world.send("alice", "Grant", give("bob", "admin"))
    return world


def test_group_mute(group: World) -> None:
    message = group.send("carol", "message", "one")
    group.send("bob", "Grant", give("carol", "muted"))
    assert group.bitmask("carol") == MEMBER | MUTED
    for type_ in ("message", "reaction"):
        assert group.code("carol", type_, "two") == "UNAUTHORIZED"
    assert group.code("carol", "Update", "two", tags=about(message)) == "UNAUTHORIZED"
    assert group.code("carol", "Delete", {"reason": "author"}, tags=about(message)) == ""
    assert group.rights("carol", message) == "R"
    assert group.code("carol", "Revoke", give("carol", "muted")) == "UNAUTHORIZED"
    group.send("bob", "Revoke", give("carol", "muted"))
    assert group.code("carol", "message", "two") == ""


def test_group_mute_of_an_admin_fails_for_rank(group: World) -> None:
    assert group.code("bob", "Grant", give("alice", "muted")) == "RANK_INSUFFICIENT"
    assert group.code("alice", "Grant", give("bob", "muted")) == ""


def test_group_block(group: World) -> None:
    message = group.send("carol", "message", "one")
    group.send("bob", "Grant", give("carol", "muted"))
    group.send("bob", "Move", move("carol", "MEMBER", "BLOCKED"))
    assert group.bitmask("carol") == BLOCKED
    for type_ in ("Update", "Delete"):
        assert group.code("carol", type_, {"reason": "author"}, tags=about(message)) == "UNAUTHORIZED"
    for to in ("OUTSIDER", "PENDING", "MEMBER"):
        assert group.code("carol", "Move", move("carol", "BLOCKED", to)) == "UNAUTHORIZED"
    assert group.code("carol", "Move", move("carol", "OUTSIDER", "MEMBER")) == "STATE_MISMATCH"
    assert group.rights("carol", message) == ""
    group.send("bob", "Delete", {"reason": "moderator"}, tags=about(message))
    group.send("bob", "Move", move("carol", "BLOCKED", "OUTSIDER"))
    assert group.code("carol", "Move", move("carol", "OUTSIDER", "PENDING")) == ""


def test_group_admins_do_not_remove_each_other_but_may_step_down(group: World) -> None:
    group.send("alice", "Grant", give("carol", "admin"))
    assert group.code("bob", "Move", move("carol", "MEMBER", "OUTSIDER")) == "RANK_INSUFFICIENT"
    assert group.code("bob", "Move", move("alice", "MEMBER", "BLOCKED")) == "RANK_INSUFFICIENT"
    assert group.code("bob", "Revoke", give("carol", "admin")) == "UNAUTHORIZED"
    group.send("bob", "Revoke", give("bob", "admin"))
    assert group.bitmask("bob") == MEMBER


def test_group_a_leaver_may_delete_but_not_edit(group: World) -> None:
    message, notice = group.send("bob", "message", "one"), group.send("bob", "notice", "one")
    group.send("bob", "Move", move("bob", "MEMBER", "OUTSIDER"))
    assert group.bitmask("bob") == 0
    assert group.code("bob", "Update", "two", tags=about(message)) == "UNAUTHORIZED"
    assert group.code("bob", "Update", "two", tags=about(notice)) == "UNAUTHORIZED"
    assert group.code("bob", "Delete", {"reason": "author"}, tags=about(message)) == ""
    assert group.code("bob", "Delete", {"reason": "author"}, tags=about(notice)) == "UNAUTHORIZED"


def test_group_slots_and_ownership(group: World) -> None:
    topic = group.send("bob", "Shared", {"key": "topic", "value": "cats"})
    assert group.shared("topic") == topic.content_hash
    assert group.code("carol", "Shared", {"key": "topic", "value": "dogs"}) == "UNAUTHORIZED"
    profile = group.send("carol", "Own", {"key": "profile", "value": "c"})
    assert group.own("carol", "profile") == profile.content_hash
    group.send("alice", "Transfer", give("carol", "owner"))
    assert (group.bitmask("alice"), group.bitmask("carol")) == (MEMBER | ADMIN, MEMBER | OWNER)
    assert group.code("alice", "Pause") == "UNAUTHORIZED"
    assert group.code("carol", "Pause") == ""


def test_group_dataview_is_pushed_messages_only(group: World) -> None:
    group.send("alice", "Grant", give("dora", "dataview", endpoint="https://example.org/"))
    message, reaction = group.send("carol", "message", "one"), group.send("carol", "reaction", "+")
    edited = group.send("carol", "Update", "two", tags=about(message))
    assert group.rights("dora", message) == "P"
    assert group.rights("dora", edited, message) == "P"
    assert group.rights("dora", reaction) == ""
