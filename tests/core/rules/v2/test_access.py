"""Access control, version 2: content events."""

import pytest

from enc.core.errors import (
    Unauthorized,
)
from tests.core.rules.v2.access_club import club, is_
from tests.core.world import Json, rule


@pytest.mark.parametrize(
    ("operator", "allowed"),
    [
        ("MEMBER", "olga adam mute mark"),
        ("OUTSIDER", "otto dave"),
        ("admin", "adam"),
        (["admin", "muted"], "adam mute"),
        (["PENDING", "dataview"], "pete dave"),
        ("Public", "olga adam mute mark pete blake dave otto"),
        ("Self", ""),
        ("Sender", ""),
    ],
)
def test_creating_is_for_the_columns_named(operator: str | list[str], allowed: str) -> None:
    world = club(customs=[rule("note", operator, "C")])
    for name in "olga adam mute mark pete blake dave otto".split():
        assert world.code(name, "note", "hello") == ("" if name in allowed.split() else "UNAUTHORIZED")


def test_a_content_event_changes_nothing_but_the_log() -> None:
    world = club(customs=[rule("note", "MEMBER", "C")])
    before = world.state_hash
    world.send("mark", "note", "any text, {not json")
    assert (world.effects.writes, world.effects.erases, world.effects.endpoints) == ({}, (), ())
    assert world.state_hash == before


def test_an_undeclared_type_is_unauthorized() -> None:
    world = club(customs=[rule("note", "Public", "C U D R P N"), rule("*", "Public", "R P N")])
    assert is_(world.refused("olga", "Note", "x"), Unauthorized)
    assert is_(world.refused("olga", "*", "x"), Unauthorized)


def test_the_star_gives_no_creating() -> None:
    world = club(customs=[rule("*", "Public", "R")], readers=[{"type": "Public", "reads": "*"}])
    for type_ in ("note", "Pause", "Terminate"):
        assert is_(world.refused("olga", type_), Unauthorized)


@pytest.mark.parametrize("ops", ["R", "U", "D", "P", "N", "R U D P N"])
def test_other_ops_do_not_allow_creating(ops: str) -> None:
    assert is_(club(customs=[rule("note", "Public", ops)]).refused("mark", "note"), Unauthorized)


@pytest.mark.parametrize(
    ("entries", "name", "code"),
    [
        ([rule("note", "MEMBER", "C"), rule("note", "muted", "_C")], "mute", "UNAUTHORIZED"),
        ([rule("note", "MEMBER", "C"), rule("note", "muted", "_C")], "mark", ""),
        ([rule("note", "muted", "C"), rule("note", "MEMBER", "_C")], "mute", "UNAUTHORIZED"),
        (
            [rule("note", "muted", "_C"), rule("note", "MEMBER", "C"), rule("note", "Public", "C")],
            "mute",
            "UNAUTHORIZED",
        ),
        ([rule("note", "MEMBER", "C"), rule("note", "Public", "_C")], "mark", "UNAUTHORIZED"),
        ([rule("note", "MEMBER", "C _C")], "mark", "UNAUTHORIZED"),
        ([rule("note", "MEMBER", "C"), rule("note", "muted", "_U _D _R")], "mute", ""),
        ([rule("note", "MEMBER", "C"), rule("page", "muted", "_C")], "mute", ""),
        ([rule("note", "MEMBER", "C"), rule("note", ["PENDING", "muted"], "_C")], "mute", "UNAUTHORIZED"),
        ([rule("note", "MEMBER", "C"), rule("note", "Sender", "_C")], "mark", ""),
    ],
)
def test_a_denial_that_matches_outweighs_every_permission(entries: list[Json], name: str, code: str) -> None:
    assert club(customs=entries).code(name, "note") == code
