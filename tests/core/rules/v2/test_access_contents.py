"""Access control, version 2: slots, Update and Delete, malformed contents."""

from typing import Any

import pytest

from enc.core.errors import (
    EventDeleted,
    EventNotFound,
    InvalidCommit,
    InvalidTarget,
    Unauthorized,
)
from enc.core.primitives.types import PREDEFINED, Target
from enc.core.trees.state_key import DELETED
from tests.core.rules.v2.access_club import EDITABLE, EVERYTHING, GATED_NOTE, GONE, club, is_, slot, turn
from tests.core.world import NO_POINT, Json, about, give, grant, move, path, person, pub, rule

# Shared and Own


def test_a_shared_slot_holds_the_hash_of_the_content_that_set_it() -> None:
    world = club(slots=[rule("Shared", "admin", "C U D", key="topic")])
    before = world.state_hash
    first = world.send("adam", "Shared", slot("topic", "one"))
    assert world.shared("topic") == first.content_hash
    second = world.send("anna", "Shared", slot("topic", {"two": [2]}))
    assert world.shared("topic") == second.content_hash != first.content_hash
    assert world.effects.erases == ()
    world.send("adam", "Shared", slot("topic", None))
    assert (world.shared("topic"), world.state_hash) == (None, before)


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_only_null_deletes_a_slot(value: Any) -> None:
    world = club(slots=[rule("Shared", "admin", "C U", key="topic")])
    event = world.send("adam", "Shared", slot("topic", value))
    assert world.shared("topic") == event.content_hash


@pytest.mark.parametrize("type_", ["Shared", "Own"])
@pytest.mark.parametrize(
    ("ops", "unset", "set_", "delete"),
    [
        ("C", "", "UNAUTHORIZED", "UNAUTHORIZED"),
        ("C U", "", "", "UNAUTHORIZED"),
        ("C D", "", "UNAUTHORIZED", ""),
        ("C U _U", "", "UNAUTHORIZED", "UNAUTHORIZED"),
    ],
)
def test_setting_needs_c_changing_u_deleting_d(type_: str, ops: str, unset: str, set_: str, delete: str) -> None:
    world = club(slots=[rule(type_, "admin", ops, key="topic")])
    assert world.code("adam", type_, slot("topic", 1)) == unset
    assert world.code("adam", type_, slot("topic", None)) == delete
    world.send("adam", type_, slot("topic", 1))
    assert world.code("adam", type_, slot("topic", 2)) == set_
    assert world.code("adam", type_, slot("topic", 1)) == set_
    assert world.code("adam", type_, slot("topic", None)) == delete


@pytest.mark.parametrize("type_", ["Shared", "Own"])
def test_u_alone_does_not_set_an_unset_slot(type_: str) -> None:
    world = club(slots=[rule(type_, "admin", "U D", key="topic")])
    assert is_(world.refused("adam", type_, slot("topic", 1)), Unauthorized)
    before = world.state_hash
    world.send("adam", type_, slot("topic", None))
    assert world.state_hash == before


def test_a_deleted_slot_is_unset_again() -> None:
    world = club(slots=[rule("Shared", "admin", "C D", key="topic")])
    for _ in range(2):
        world.send("adam", "Shared", slot("topic", 1))
        world.send("adam", "Shared", slot("topic", None))
    assert world.shared("topic") is None


@pytest.mark.parametrize("key", ["other", "", "topic ", "lifecycle"])
def test_an_undeclared_slot_is_unauthorized(key: str) -> None:
    world = club(slots=[rule(type_, "MEMBER", "C U D", key="topic") for type_ in ("Shared", "Own")])
    assert is_(world.refused("olga", "Shared", slot(key, 1)), Unauthorized)
    assert is_(world.refused("olga", "Own", slot(key, 1)), Unauthorized)


def test_shared_and_own_slots_of_one_name_are_apart() -> None:
    world = club(slots=[rule("Shared", "admin", "C", key="nick"), rule("Own", "MEMBER", "C", key="nick")])
    assert is_(world.refused("mark", "Shared", slot("nick", 1)), Unauthorized)
    mine = world.send("mark", "Own", slot("nick", "m"))
    theirs = world.send("mary", "Own", slot("nick", "y"))
    ours = world.send("adam", "Shared", slot("nick", "all"))
    leaves = [world.own("mark", "nick"), world.own("mary", "nick"), world.shared("nick"), world.own("adam", "nick")]
    assert leaves == [mine.content_hash, theirs.content_hash, ours.content_hash, None]


@pytest.mark.parametrize(
    ("type_", "operator", "code"),
    [
        ("Own", "Self", ""),
        ("Own", "Public", ""),
        ("Own", "Sender", "UNAUTHORIZED"),
        ("Shared", "Self", "UNAUTHORIZED"),
        ("Shared", "Sender", "UNAUTHORIZED"),
        ("Shared", "Public", ""),
    ],
)
def test_contexts_of_slots(type_: str, operator: str, code: str) -> None:
    world = club(slots=[rule(type_, operator, "C U D", key="nick")])
    assert world.code("otto", type_, slot("nick", 1)) == code


# Update and Delete


def test_an_update_supersedes_its_target_and_erases_it() -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note", "one")
    update = world.send("mark", "Update", "two", tags=about(note))
    assert world.status(note) == update.id
    assert world.effects.erases == (note.id,)
    assert world.status(update) is None


def test_a_second_update_erases_the_first() -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note", "one")
    first = world.send("mark", "Update", "two", tags=about(note))
    second = world.send("adam", "Update", "", tags=about(note))
    assert world.status(note) == second.id
    assert set(world.effects.erases) == {note.id, first.id}


def test_a_delete_erases_its_target_and_the_latest_update() -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note", "one")
    world.send("mark", "Update", "two", tags=about(note))
    latest = world.send("mark", "Update", "three", tags=about(note))
    world.send("adam", "Delete", {"reason": "moderator", "note": "no"}, tags=about(note))
    assert world.status(note) == DELETED
    assert set(world.effects.erases) == {note.id, latest.id}
    assert world.effects.supersedes == ()


def test_a_delete_of_an_event_without_updates_erases_it_alone() -> None:
    world = club(customs=EDITABLE)
    note, other = world.send("mark", "note", "one"), world.send("mark", "note", "two")
    world.send("mark", "Delete", GONE, tags=about(note))
    assert world.effects.erases == (note.id,)
    assert (world.status(note), world.status(other)) == (DELETED, None)


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_a_deleted_event_stays_deleted(type_: str) -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note", "one")
    world.send("mark", "Delete", GONE, tags=about(note))
    assert is_(world.refused("mark", type_, GONE, tags=about(note)), EventDeleted)
    assert is_(world.refused("mary", type_, GONE, tags=about(note)), Unauthorized)


@pytest.mark.parametrize("type_", ["Update", "Delete"])
@pytest.mark.parametrize(
    ("operator", "allowed"),
    [
        ("Sender", "mark"),
        ("Self", "mark"),
        ("MEMBER", "mark mary adam"),
        ("admin", "adam"),
        ("Public", "mark mary adam otto"),
    ],
)
def test_revising_is_for_the_columns_named_on_the_targets_type(type_: str, operator: str, allowed: str) -> None:
    world = club(customs=[rule("note", "MEMBER", "C"), rule("note", operator, type_[0])])
    note = world.send("mark", "note")
    for name in ("mark", "mary", "adam", "otto"):
        assert world.code(name, type_, GONE, tags=about(note)) == ("" if name in allowed.split() else "UNAUTHORIZED")


@pytest.mark.parametrize(("type_", "op_"), [("Update", "D"), ("Delete", "U"), ("Update", "C"), ("Delete", "C")])
def test_u_is_not_d(type_: str, op_: str) -> None:
    world = club(customs=[rule("note", "Public", "C"), rule("note", "Public", op_)])
    note = world.send("mark", "note")
    assert is_(world.refused("mark", type_, GONE, tags=about(note)), Unauthorized)


def test_the_right_on_another_type_does_not_help() -> None:
    world = club(customs=[rule("note", "MEMBER", "C"), rule("page", "Public", "U D")])
    note = world.send("mark", "note")
    assert is_(world.refused("mark", "Delete", GONE, tags=about(note)), Unauthorized)


def test_a_denial_to_a_state_holds_against_the_sender() -> None:
    customs = [*EDITABLE, rule("note", "BLOCKED", "_U _D")]
    world = club(customs=customs, moves=[path("MEMBER", "BLOCKED", "owner")])
    note = world.send("mark", "note")
    world.send("olga", "Move", move("mark", "MEMBER", "BLOCKED"))
    for type_ in ("Update", "Delete"):
        assert is_(world.refused("mark", type_, GONE, tags=about(note)), Unauthorized)


def test_revising_asks_no_rank() -> None:
    world = club(customs=EDITABLE)
    note = world.send("olga", "note")
    assert world.code("adam", "Delete", {"reason": "moderator"}, tags=about(note)) == ""


def test_the_reason_is_not_compared_with_the_actor() -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note")
    assert world.code("mark", "Delete", {"reason": "moderator"}, tags=about(note)) == ""
    assert world.code("adam", "Delete", {"reason": "author"}, tags=about(note)) == ""


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_a_target_that_is_not_in_the_log(type_: str) -> None:
    world, other = club(customs=EDITABLE), club(customs=EDITABLE, meta={"n": 2})
    elsewhere = other.send("mark", "note")
    assert is_(world.refused("mark", type_, GONE, tags=about(elsewhere)), EventNotFound)


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_a_predefined_event_is_neither_updated_nor_deleted(type_: str) -> None:
    customs = [*EDITABLE, rule("*", "Public", "R")]
    world = club(customs=customs, **EVERYTHING, slots=[rule("Shared", "MEMBER", "C U D", key="k")])
    note = world.send("mark", "note")
    events = [
        world.events[0],
        world.send("mark", "Update", "new", tags=about(note)),
        world.send("mark", "Shared", slot("k", 1)),
        world.send("olga", "Gate", turn("closed", "mercy")),
        world.send("mark", "Delete", GONE, tags=about(note)),
    ]
    for event in events:
        assert is_(world.refused("mark", type_, GONE, tags=about(event)), InvalidTarget)


@pytest.mark.parametrize("target", sorted(PREDEFINED))
def test_no_predefined_type_is_a_target(target: str) -> None:
    world = club(customs=EDITABLE)
    world.memory.targets[bytes(32)] = Target(target, person("mark").public)
    assert is_(world.refused("mark", "Update", "x", tags=(("r", "00" * 32),)), InvalidTarget)


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_the_r_tag_may_say_target_and_stand_among_others(type_: str) -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note")
    tags = (("k", "v"), ("r", note.id.hex(), "target"), ("rr", "x"))
    assert world.code("mark", type_, GONE, tags=tags) == ""


@pytest.mark.parametrize("type_", ["Update", "Delete"])
@pytest.mark.parametrize(
    "tags",
    [
        (),
        (("R", "{id}"),),
        (("r",),),
        (("r", "{id}"), ("r", "{id}")),
        (("r", "{id}"), ("r", "{id}", "reply")),
        (("r", "{id}", "reply"),),
        (("r", "{id}", ""),),
        (("r", "{id}", "target", ""),),
        (("r", "{id}00"),),
        (("r", "{ID}"),),
        (("r", "no hex"),),
        (("r", ""),),
    ],
    ids=str,
)
def test_update_and_delete_carry_exactly_one_r_tag(type_: str, tags: tuple) -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note")
    spelled = {"id": note.id.hex(), "ID": note.id.hex().upper()}
    error = world.refused("mark", type_, GONE, tags=tuple(tuple(t.format(**spelled) for t in tag) for tag in tags))
    assert is_(error, InvalidCommit)
    assert error.message.startswith("tags: ")


def test_an_r_tag_binds_nothing_on_a_content_event() -> None:
    world = club(customs=EDITABLE)
    note = world.send("mark", "note")
    world.send("mary", "note", "re", tags=(("r", note.id.hex(), "reply"), ("r", "x"), ("r",)))
    assert world.status(note) is None


def test_update_is_judged_found_then_type_then_authorised_then_status() -> None:
    world = club(customs=[rule("note", "MEMBER", "C"), rule("note", "Sender", "D")])
    note = world.send("mark", "note")
    world.send("mark", "Delete", GONE, tags=about(note))
    assert world.code("mark", "Update", "x", tags=(("r", "00" * 32),)) == "EVENT_NOT_FOUND"
    assert world.code("otto", "Update", "x", tags=about(world.events[0])) == "INVALID_TARGET"
    assert world.code("mark", "Update", "x", tags=about(note)) == "UNAUTHORIZED"
    assert world.code("mark", "Delete", GONE, tags=about(note)) == "EVENT_DELETED"


# Contents that are malformed


CONTENTS: dict[str, Json] = {
    "Move": move("mark", "MEMBER", "PENDING"),
    "Grant": give("mark", "muted"),
    "Revoke": give("mark", "muted"),
    "Transfer": give("mark", "owner"),
    "Gate": turn("closed"),
    "Shared": slot("topic", 1),
    "Own": slot("topic", 1),
    "Delete": {"reason": "author"},
}


OF_ANY_KIND: list[Any] = [7, None, True, [], {}]


NO_TARGETS = [*OF_ANY_KIND, "", "xyz", pub("mark")[:-2], pub("mark") + "00", pub("mark").upper(), NO_POINT, "00" * 32]


@pytest.mark.parametrize(
    ("type_", "field", "value"),
    [
        *(("Move", field, value) for field in ("from", "to") for value in OF_ANY_KIND),
        *((type_, "trait", value) for type_ in ("Grant", "Revoke", "Transfer") for value in OF_ANY_KIND),
        *((type_, "target", value) for type_ in ("Move", "Grant", "Revoke", "Transfer") for value in NO_TARGETS),
        *(("Gate", "alias", value) for value in OF_ANY_KIND),
        *(("Gate", "state", value) for value in [*OF_ANY_KIND, "", "Open", "shut"]),
        *((type_, "key", value) for type_ in ("Shared", "Own") for value in OF_ANY_KIND),
        *(("Delete", "reason", value) for value in [*OF_ANY_KIND, "", "Author", "spam"]),
        *(("Delete", "note", value) for value in OF_ANY_KIND),
    ],
)
def test_a_mistyped_field_is_refused_by_name(type_: str, field: str, value: Any) -> None:
    error = club().refused("otto", type_, {**CONTENTS[type_], field: value}, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


@pytest.mark.parametrize(
    ("type_", "field"), [(type_, field) for type_, content in CONTENTS.items() for field in content]
)
def test_a_missing_field_is_refused_by_name(type_: str, field: str) -> None:
    content = {key: value for key, value in CONTENTS[type_].items() if key != field}
    error = club().refused("otto", type_, content, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


@pytest.mark.parametrize("type_", [*CONTENTS, "AC_Bundle", "Pause", "Terminate"])
@pytest.mark.parametrize(
    "content", ["[]", "7", "null", '"text"', "{", '{"a":1,"a":2}', '{"a":9007199254740992}', '{"a":NaN}']
)
def test_a_content_that_is_no_strict_json_object_is_refused(type_: str, content: str) -> None:
    error = club().refused("otto", type_, content, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith("content: ")


@pytest.mark.parametrize("type_", [*CONTENTS, "AC_Bundle"])
def test_an_empty_content_is_refused(type_: str) -> None:
    assert is_(club().refused("otto", type_, "", tags=(("r", "00" * 32),)), InvalidCommit)


@pytest.mark.parametrize("content", ["", "{}", '{"why":"because"}', " {} "])
def test_lifecycle_events_take_an_empty_content_or_an_object(content: str) -> None:
    world = club(lifecycle=[rule("Pause", "owner", "C"), rule("Terminate", "owner", "C")])
    assert world.code("olga", "Pause", content) == ""
    assert world.code("olga", "Terminate", content) == ""


@pytest.mark.parametrize("type_", CONTENTS)
def test_unknown_extra_fields_are_allowed(type_: str) -> None:
    sections: Json = {
        **EVERYTHING,
        "customs": [*EDITABLE, GATED_NOTE],
        "slots": [rule(slot_type, "Public", "C", key="topic") for slot_type in ("Shared", "Own")],
        "moves": [path("MEMBER", "PENDING", "owner")],
        "grants": [grant(grant_type, "owner", "muted") for grant_type in ("Grant", "Revoke")],
    }
    world = club(**sections)
    note = world.send("mark", "note")
    actor = {"Gate": "adam", "Delete": "mark"}.get(type_, "olga")
    content = {**CONTENTS[type_], "epoch": {"n": 0, "deep": [0.5]}, "type": "x"}
    assert world.code(actor, type_, content, tags=about(note)) == ""


def test_a_custom_entry_on_a_predefined_type_never_allows_it() -> None:
    world = club(customs=[rule(type_, "Public", "R P N") for type_ in sorted(PREDEFINED)])
    for type_, content in CONTENTS.items():
        if type_ != "Delete":
            assert is_(world.refused("olga", type_, content), Unauthorized)
