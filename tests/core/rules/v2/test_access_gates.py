"""Access control, version 2: gates and AC_Bundles."""

from typing import Any

import pytest

from enc.core.errors import (
    ACBundleFailed,
    GateClosed,
    InvalidCommit,
    Unauthorized,
)
from enc.core.rules.policy_types import EndpointChange
from enc.core.trees.state_key import CLOSED
from tests.core.rules.v2.access_club import (
    DATAVIEW,
    EVERYTHING,
    GATED_NOTE,
    MEMBER,
    OWNER,
    PEOPLE,
    club,
    ended,
    is_,
    op,
    turn,
)
from tests.core.world import Json, about, gated, give, grant, init, move, path, person, rule

# Gate


def test_a_gate_is_open_at_creation_and_closes_and_opens_with_its_leaf() -> None:
    world = club(customs=[GATED_NOTE])
    before = world.state_hash
    assert world.gate("notes") is None
    assert world.code("mark", "note") == ""
    world.send("adam", "Gate", turn("closed"))
    assert world.gate("notes") == CLOSED
    assert is_(world.refused("mark", "note"), GateClosed, alias="notes")
    world.send("pete", "Gate", turn("open"))
    assert world.gate("notes") is None
    assert world.state_hash == before
    assert world.code("mark", "note") == ""


def test_turning_a_gate_to_what_it_is_succeeds() -> None:
    world = club(customs=[GATED_NOTE])
    for state, leaf in [("open", None), ("closed", CLOSED), ("closed", CLOSED), ("open", None), ("open", None)]:
        world.send("adam", "Gate", turn(state))
        assert world.gate("notes") == leaf


@pytest.mark.parametrize("name", ["olga", "mark", "otto", "mute"])
def test_a_gate_is_for_its_operators(name: str) -> None:
    assert is_(club(customs=[GATED_NOTE]).refused(name, "Gate", turn("closed")), Unauthorized)


def test_an_unknown_gate_is_unauthorized() -> None:
    world = club(customs=[GATED_NOTE, rule("page", "Public", "C", alias="pages")])
    for alias in ("pages", "nothing", ""):
        assert is_(world.refused("adam", "Gate", turn("closed", alias)), Unauthorized)


@pytest.mark.parametrize(("column", "code"), [("Public", ""), ("Self", "UNAUTHORIZED"), ("Sender", "UNAUTHORIZED")])
def test_contexts_as_operators_of_a_gate(column: str, code: str) -> None:
    world = club(customs=[rule("note", "MEMBER", "C", **gated("notes", column))])
    assert world.code("otto", "Gate", turn("closed")) == code


def test_another_open_entry_still_serves_while_a_gate_is_closed() -> None:
    world = club(customs=[GATED_NOTE, rule("note", "muted", "C")])
    world.send("adam", "Gate", turn("closed"))
    assert world.code("mute", "note") == ""
    assert is_(world.refused("mark", "note"), GateClosed, alias="notes")


def test_whom_even_an_open_gate_would_not_let_through_is_unauthorized() -> None:
    world = club(customs=[GATED_NOTE, rule("note", "muted", "_C")])
    world.send("adam", "Gate", turn("closed"))
    assert is_(world.refused("otto", "note"), Unauthorized)
    assert is_(world.refused("mute", "note"), Unauthorized)
    assert is_(world.refused("mark", "page"), Unauthorized)


def test_a_denial_behind_a_closed_gate_does_not_count() -> None:
    customs = [rule("note", "MEMBER", "C"), rule("note", "muted", "_C", **gated("quiet", "owner"))]
    world = club(customs=customs)
    assert is_(world.refused("mute", "note"), Unauthorized)
    world.send("olga", "Gate", turn("closed", "quiet"))
    assert world.code("mute", "note") == ""


def test_gates_do_not_touch_each_other() -> None:
    world = club(customs=[GATED_NOTE, rule("page", "MEMBER", "C", **gated("pages", "admin"))])
    world.send("adam", "Gate", turn("closed", "pages"))
    assert world.code("mark", "note") == ""
    assert is_(world.refused("mark", "page"), GateClosed, alias="pages")


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        (
            {"moves": [path("MEMBER", "PENDING", "MEMBER", **gated("g", "owner"))]},
            ("Move", move("mark", "MEMBER", "PENDING")),
        ),
        ({"grants": [grant("Grant", "MEMBER", "muted", **gated("g", "owner"))]}, ("Grant", give("mary", "muted"))),
        ({"grants": [grant("Revoke", "MEMBER", "muted", **gated("g", "owner"))]}, ("Revoke", give("mary", "muted"))),
        (
            {"transfers": [{"trait": "owner", "scope": "MEMBER", **gated("g", "owner")}]},
            ("Transfer", give("mary", "owner")),
        ),
        (
            {"slots": [rule("Shared", "MEMBER", "C", key="k", **gated("g", "owner"))]},
            ("Shared", {"key": "k", "value": 1}),
        ),
        ({"slots": [rule("Own", "Self", "C", key="k", **gated("g", "owner"))]}, ("Own", {"key": "k", "value": 1})),
        ({"lifecycle": [rule("Pause", "MEMBER", "C", **gated("g", "owner"))]}, ("Pause", {})),
        ({"lifecycle": [rule("Terminate", "MEMBER", "C", **gated("g", "owner"))]}, ("Terminate", {})),
        ({"customs": [rule("note", "MEMBER", "C", **gated("g", "owner"))]}, ("note", "x")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_an_entry_of_every_section_can_have_a_gate(sections: Json, what: tuple) -> None:
    world = club(**sections)
    assert world.code("olga", *what) == ""
    world.send("olga", "Gate", turn("closed", "g"))
    assert is_(world.refused("olga", *what), GateClosed, alias="g")


def test_a_gate_on_update_and_delete() -> None:
    world = club(customs=[rule("note", "MEMBER", "C"), rule("note", "Sender", "U D", **gated("edits", "owner"))])
    note = world.send("mark", "note")
    world.send("olga", "Gate", turn("closed", "edits"))
    assert is_(world.refused("mark", "Update", "new", tags=about(note)), GateClosed, alias="edits")
    assert is_(world.refused("mark", "Delete", {"reason": "author"}, tags=about(note)), GateClosed, alias="edits")
    assert is_(world.refused("mary", "Update", "new", tags=about(note)), Unauthorized)


def test_a_gate_on_a_push_entry_and_on_a_reader() -> None:
    customs = [rule("note", "MEMBER", "C"), rule("note", "dataview", "P", **gated("feed", "owner"))]
    readers = [{"type": "MEMBER", "reads": ["note", "page"], **gated("reading", "owner")}]
    world = club(customs=customs, readers=readers)
    note = world.send("mark", "note")
    assert (world.rights("dave", note), world.rights("mary", note)) == ("P", "R")
    world.send("olga", "Gate", turn("closed", "feed"))
    assert (world.rights("dave", note), world.rights("mary", note)) == ("", "R")
    world.send("olga", "Gate", turn("closed", "reading"))
    assert world.rights("mary", note) == ""
    assert not world.scope("mary")
    world.send("olga", "Gate", turn("open", "reading"))
    assert world.scope("mary").of("note") == "all"


# AC_Bundle


def test_an_ac_bundle_does_all_its_operations_in_order() -> None:
    world = club(**EVERYTHING)
    operations = [
        op("Move", move("otto", "OUTSIDER", "MEMBER")),
        op("Grant", give("otto", "dataview", endpoint="https://example.org/")),
        op("Gate", turn("closed", "mercy")),
        op("Revoke", give("adam", "admin")),
        op("Transfer", give("otto", "owner")),
    ]
    world.send("olga", "AC_Bundle", {"operations": operations, "epoch": {"n": 1}})
    assert [world.bitmask(name) for name in ("otto", "adam", "olga")] == [MEMBER | DATAVIEW | OWNER, MEMBER, MEMBER]
    assert world.gate("mercy") == CLOSED
    assert world.effects.endpoints == (
        EndpointChange(person("otto").public, ("dataview",), "https://example.org/"),
        ended("adam", "admin"),
        ended("olga", "owner"),
    )


def test_each_operation_is_judged_after_the_ones_before_it() -> None:
    world = club(**EVERYTHING)
    bundle = {"operations": [op("Transfer", give("mark", "owner")), op("Grant", give("mark", "admin"))]}
    error = world.refused("olga", "AC_Bundle", bundle)
    assert is_(error, ACBundleFailed, failed_index=1, reason="UNAUTHORIZED")


@pytest.mark.parametrize(
    ("actor", "operation", "reason"),
    [
        ("mark", op("Grant", give("mary", "admin")), "UNAUTHORIZED"),
        ("olga", op("Gate", turn("closed", "nothing")), "UNAUTHORIZED"),
        ("olga", op("Move", move("mark", "PENDING", "MEMBER")), "STATE_MISMATCH"),
        ("adam", op("Move", move("anna", "MEMBER", "BLOCKED")), "RANK_INSUFFICIENT"),
        ("olga", op("Grant", give("blake", "admin")), "INVALID_STATE_FOR_GRANT"),
        ("olga", op("Grant", give("mark", "admin", endpoint="")), "INVALID_ENDPOINT_URL"),
        ("olga", op("Transfer", give("olga", "owner")), "INVALID_TRANSFER_TARGET"),
        ("mute", op("Transfer", give("mick", "muted")), "TRAIT_ALREADY_HELD"),
        ("olga", op("Transfer", give("otto", "owner")), "INVALID_STATE_FOR_TRANSFER"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_failed_operation_gives_its_reason(actor: str, operation: Json, reason: str) -> None:
    world = club(init=init(**PEOPLE, mick="MEMBER muted"), **EVERYTHING)
    error = world.refused(actor, "AC_Bundle", {"operations": [operation]})
    assert is_(error, ACBundleFailed, failed_index=0, reason=reason)


def test_a_gate_closed_in_a_bundle_holds_for_its_later_operations() -> None:
    world = club(**EVERYTHING)
    operations = [op("Gate", turn("closed", "mercy")), op("Move", move("blake", "BLOCKED", "MEMBER"))]
    error = world.refused("adam", "AC_Bundle", {"operations": operations})
    assert is_(error, ACBundleFailed, failed_index=1, reason="GATE_CLOSED")
    world.send("adam", "AC_Bundle", {"operations": [*operations[:1], op("Gate", turn("open", "mercy")), operations[1]]})
    assert world.bitmask("blake") == MEMBER


def test_1000_operations_and_no_more() -> None:
    world = club(**EVERYTHING)
    grants = [op("Grant", give("mark", "muted"))] * 1000
    assert world.code("adam", "AC_Bundle", {"operations": grants}) == ""
    error = world.refused("adam", "AC_Bundle", {"operations": [*grants, grants[0]]})
    assert is_(error, InvalidCommit)
    assert error.message.startswith("operations: ")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({}, "operations"),
        ({"operations": []}, "operations"),
        ({"operations": {}}, "operations"),
        ({"operations": None}, "operations"),
        ({"operations": [7]}, "operations[0]"),
        ({"operations": [{}]}, "operations[0]"),
        ({"operations": [op("Gate", turn("open", "mercy")), op("note", {})]}, "operations[1]"),
        ({"operations": [op("AC_Bundle", {"operations": []})]}, "operations[0]"),
        ({"operations": [op("Shared", {"key": "k", "value": 1})]}, "operations[0]"),
        ({"operations": [op("Pause", {})]}, "operations[0]"),
        ({"operations": [op("Gate", {"alias": "mercy"})]}, "operations[0].state"),
        (
            {"operations": [op("Move", move("mark", "PENDING", "MEMBER")), op("Grant", {"trait": "x"})]},
            "operations[1].target",
        ),
        ({"operations": [op("Move", {**move("mark", "A", "B"), "to": 7})]}, "operations[0].to"),
    ],
)
def test_a_malformed_ac_bundle_is_refused_before_anything_is_judged(content: Json, named: str) -> None:
    error = club(**EVERYTHING).refused("olga", "AC_Bundle", content)
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"{named}: ")


@pytest.mark.parametrize("type_", [[], {}, ["Move"]])
def test_an_operation_whose_type_is_no_string_is_refused(type_: Any) -> None:
    world = club(**EVERYTHING)
    assert world.code("olga", "AC_Bundle", {"operations": [{"type": type_}]}) == "INVALID_COMMIT"


def test_a_gate_that_a_bundle_turns_counts_for_its_next_operations() -> None:
    world = club(**EVERYTHING)
    free, block = (
        op("Move", move("blake", "BLOCKED", "MEMBER")),
        op("Move", move("blake", "MEMBER", "BLOCKED")),
    )
    close, reopen = op("Gate", turn("closed", "mercy")), op("Gate", turn("open", "mercy"))
    refused = world.refused("adam", "AC_Bundle", {"operations": [free, close, block, free]})
    assert is_(refused, ACBundleFailed, failed_index=3, reason="GATE_CLOSED")
    assert world.code("adam", "AC_Bundle", {"operations": [free, close, block, reopen, free]}) == ""
