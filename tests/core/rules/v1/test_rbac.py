"""Access control, version 1: who may do what, what it changes, and which error comes first."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import (
    ACBundleFailed,
    BitmaskMismatch,
    EncError,
    EventDeleted,
    EventNotFound,
    InvalidCommit,
    InvalidEndpointUrl,
    InvalidTarget,
    OwnerBitProtected,
    OwnerSelfRevokeForbidden,
    Unauthorized,
)
from enc.core.machine.enclave import view
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, Target
from enc.core.rules.manifest import parse_manifest
from enc.core.rules.policy import EndpointChange, Subject, recipients
from enc.core.rules.v1.content import OPERATIONS
from enc.core.trees.state_key import DELETED, identity_key
from tests.core.strategies import examples
from tests.core.test_fuzz import damage
from tests.core.world import NO_POINT, Json, World, about, person, pub
from tests.core.world_v1 import ENDPOINT, OWNER, bundle, change, has, initial, manifest, row

# The first row of every schema here names all roles, so that each has the same bit everywhere.
ROLES = ("Admin", "Member", "Guest", "DataView")
ADMIN, MEMBER, GUEST, DATAVIEW = (1 << 32 + i for i in range(4))
BIT = dict(zip(ROLES, (ADMIN, MEMBER, GUEST, DATAVIEW), strict=True))
DECLARES = row("declares", "Owner", "", *ROLES)

PEOPLE = {
    "olga": "Owner",
    "adam": "Admin Member",
    "mark": "Member",
    "mary": "Member",
    "gina": "Guest",
    "dave": "DataView",
    "both": "Member Guest",
}
"""Everybody else, such as otto, has no role."""
EVERYBODY = "olga adam mark gina dave otto node".split()


def club(*schema: Json, **people: str) -> World:
    return World(manifest([DECLARES, *schema], initial(**PEOPLE | people)))


def is_(error: EncError, kind: type[EncError], **context: Any) -> bool:
    return (type(error), error.context) == (kind, context)


def ended(name: str, role: str) -> EndpointChange:
    return EndpointChange(person(name).public, role, None)


def allowed(world: World, *what: Any, **more: Any) -> str:
    """Who of everybody may do it; all others are unauthorized."""
    codes = {name: world.code(name, *what, **more) for name in EVERYBODY}
    assert set(codes.values()) <= {"", "UNAUTHORIZED"}
    return " ".join(name for name, code in codes.items() if not code)


# Roles and the schema


@pytest.mark.parametrize(
    ("role", "who"),
    [
        ("Owner", "olga"),
        ("Admin", "adam"),
        ("Member", "adam mark"),
        ("Guest", "gina"),
        ("Node", "node"),
        ("Any", "olga adam mark gina dave otto node"),
        ("Self", ""),
    ],
)
def test_creating_is_for_the_role_named(role: str, who: str) -> None:
    assert allowed(club(row("m", role, "C")), "m", "hello") == who
    assert allowed(club(row("Pause", role, "C")), "Pause") == who


def test_entries_add_up() -> None:
    world = club(row("m", "Guest", "C"), row("m", "Admin", "C"), row("m", "Guest", "R"))
    assert allowed(world, "m") == "adam gina"


@pytest.mark.parametrize("ops", ["", "R", "U", "D", "P", "N", "RUDPN"])
def test_other_ops_do_not_allow_creating(ops: str) -> None:
    world = club(row("m", "Any", ops), row("*", "Any", ops))
    assert allowed(world, "m") == ""


def test_an_empty_schema_allows_nothing_but_the_owner_s_migrate() -> None:
    world = club()
    note = world.events[0]
    for type_, content in EVERY_CONTENT.items():
        for name in EVERYBODY:
            assert world.code(name, type_, content, tags=about(note)) in ("UNAUTHORIZED", "INVALID_TARGET"), type_
    assert allowed(world, "m") == ""
    assert allowed(world, "Migrate", world.migrate("node2")) == "olga"
    assert not any(world.scope(name) for name in EVERYBODY)


def test_an_undeclared_type_is_unauthorized() -> None:
    world = club(row("m", "Any", "CRUDPN"))
    for type_ in ("M", "m ", "Chat_Message", "Terminate"):
        assert is_(world.refused("olga", type_), Unauthorized)


@pytest.mark.parametrize("type_", ["m", "Chat_Message", "Pause", "Terminate", "Transfer", "Gate", "Reg_Node"])
def test_the_star_is_every_type(type_: str) -> None:
    assert allowed(club(row("*", "Guest", "C")), type_) == "gina"


def test_the_sequencer_is_node_as_long_as_it_is_the_sequencer() -> None:
    world = club(row("m", "Node", "CR"), row("m", "Any", "C"))
    schema = club(row("m", "Node", "CR"))
    assert (schema.code("node", "m"), schema.code("node2", "m")) == ("", "UNAUTHORIZED")
    event = world.send("mark", "m")
    assert (world.rights("node", event), world.rights("node2", event), world.rights("mark", event)) == ("R", "", "")
    assert (world.scope("node").of("m"), bool(world.scope("node2"))) == ("all", False)
    for each in (world, schema):
        each.send("olga", "Migrate", each.migrate("node2"))
    assert (schema.code("node", "m"), schema.code("node2", "m")) == ("UNAUTHORIZED", "")
    assert (world.rights("node", event), world.rights("node2", event)) == ("", "R")


def test_self_on_creating_is_whom_the_event_is_about() -> None:
    world = club(
        *(row(type_, "Self", "C", "Guest") for type_ in ("Grant", "Grant_Push", "Revoke", "Revoke_Self", "Move")),
        row("Force_Move", "Self", "C"),
    )
    for type_ in ("Grant", "Revoke", "Grant_Push"):
        assert world.code("otto", type_, has("otto", "Guest", endpoint=ENDPOINT)) == ""
        assert world.code("otto", type_, has("omar", "Guest", endpoint=ENDPOINT)) == "UNAUTHORIZED"
    assert world.code("otto", "Revoke_Self", {"role": "Guest"}) == ""
    for type_ in ("Move", "Force_Move"):
        assert world.code("otto", type_, change("otto", 0, GUEST)) == ""
        assert world.code("otto", type_, change("omar", 0, GUEST)) == "UNAUTHORIZED"


# Grant and Grant_Push


@pytest.mark.parametrize("type_", ["Grant", "Grant_Push"])
def test_grant_sets_the_bit_of_the_role(type_: str) -> None:
    world = club(row(type_, "Owner", "C", "Guest"))
    world.send("olga", type_, has("mark", "Guest", endpoint=ENDPOINT))
    world.send("olga", type_, has("otto", "Guest", endpoint=ENDPOINT))
    assert (world.bitmask("mark"), world.bitmask("otto")) == (MEMBER | GUEST, GUEST)


def test_grant_of_a_held_role_succeeds_and_changes_nothing() -> None:
    world = club(row("Grant", "Owner", "C", "Member"))
    before = world.state_hash
    world.send("olga", "Grant", has("mark", "Member"))
    assert (world.effects.writes, world.effects.endpoints, world.state_hash) == ({}, (), before)


def test_a_grant_registers_no_endpoint_and_leaves_the_one_that_is_there() -> None:
    world = club(row("Grant", "Owner", "C", "Guest"))
    world.send("olga", "Grant", has("otto", "Guest", endpoint=ENDPOINT))
    assert world.effects.endpoints == ()


def test_grant_push_registers_the_endpoint_of_the_role() -> None:
    world = club(row("Grant_Push", "Owner", "C", "DataView"))
    world.send("olga", "Grant_Push", has("otto", "DataView", endpoint=ENDPOINT))
    assert world.effects.endpoints == (EndpointChange(person("otto").public, "DataView", ENDPOINT),)
    assert world.bitmask("otto") == DATAVIEW


def test_grant_push_to_a_holder_of_the_role_changes_only_the_endpoint() -> None:
    world = club(row("Grant_Push", "Owner", "C", "DataView"))
    world.send("olga", "Grant_Push", has("dave", "DataView", endpoint=ENDPOINT))
    assert world.effects.endpoints == (EndpointChange(person("dave").public, "DataView", ENDPOINT),)
    assert (world.effects.writes, world.bitmask("dave")) == ({}, DATAVIEW)


@pytest.mark.parametrize("endpoint", ["x", "https://example.org/" + "x" * 2028])
def test_an_endpoint_has_1_to_2048_characters(endpoint: str) -> None:
    world = club(row("Grant_Push", "Owner", "C", "DataView"))
    world.send("olga", "Grant_Push", has("otto", "DataView", endpoint=endpoint))
    assert world.effects.endpoints[0].url == endpoint


@pytest.mark.parametrize("endpoint", ["", "x" * 2049, 7, True, None, [], {}])
def test_another_endpoint_fails_the_whole_grant_push(endpoint: Any) -> None:
    world = club(row("Grant_Push", "Owner", "C", "DataView"))
    assert is_(world.refused("olga", "Grant_Push", has("otto", "DataView", endpoint=endpoint)), InvalidEndpointUrl)
    assert is_(world.refused("adam", "Grant_Push", has("otto", "DataView", endpoint=endpoint)), Unauthorized)
    assert is_(world.refused("olga", "Grant_Push", has("otto", "Member", endpoint=endpoint)), Unauthorized)


def test_grant_and_grant_push_are_apart() -> None:
    grants, pushes = club(row("Grant", "Admin", "C", "Guest")), club(row("Grant_Push", "Admin", "C", "Guest"))
    content = has("otto", "Guest", endpoint=ENDPOINT)
    assert (grants.code("adam", "Grant", content), grants.code("adam", "Grant_Push", content)) == ("", "UNAUTHORIZED")
    assert (pushes.code("adam", "Grant", content), pushes.code("adam", "Grant_Push", content)) == ("UNAUTHORIZED", "")


# Revoke and Revoke_Self


def test_revoke_clears_the_bit_and_ends_the_endpoint() -> None:
    world = club(row("Revoke", "Owner", "C", "Admin", "DataView"))
    world.send("olga", "Revoke", has("adam", "Admin"))
    assert (world.bitmask("adam"), world.effects.endpoints) == (MEMBER, (ended("adam", "Admin"),))


@pytest.mark.parametrize(("type_", "name"), [("Revoke", "olga"), ("Revoke_Self", "dave")])
def test_the_last_role_removed_leaves_no_leaf(type_: str, name: str) -> None:
    world = club(row("Revoke", "Owner", "C", "DataView"), row("Revoke_Self", "DataView", "C", "DataView"))
    world.send(name, type_, has("dave", "DataView"))
    assert world.effects.writes == {identity_key(person("dave").public): None}
    assert world.leaf(identity_key(person("dave").public)) is None
    assert world.effects.endpoints == (ended("dave", "DataView"),)


@pytest.mark.parametrize(("type_", "name"), [("Revoke", "olga"), ("Revoke_Self", "otto")])
def test_revoke_of_a_missing_role_succeeds_and_changes_nothing(type_: str, name: str) -> None:
    world = club(row("Revoke", "Owner", "C", "Guest"), row("Revoke_Self", "Any", "C", "Guest"))
    before = world.state_hash
    world.send(name, type_, has("otto", "Guest"))
    assert (world.effects.writes, world.effects.endpoints, world.state_hash) == ({}, (), before)


def test_revoke_self_is_about_the_sender_whatever_the_content_names() -> None:
    world = club(row("Revoke_Self", "Member", "C", "Member"))
    world.send("mark", "Revoke_Self", has("mary", "Member"))
    assert (world.bitmask("mark"), world.bitmask("mary")) == (0, MEMBER)


def test_revoke_self_gives_no_revoke_nor_the_other_way_round() -> None:
    world = club(row("Revoke_Self", "Member", "C", "Member"), row("Revoke", "Admin", "C", "Guest"))
    assert world.code("mark", "Revoke", has("mark", "Member")) == "UNAUTHORIZED"
    assert world.code("adam", "Revoke_Self", {"role": "Guest"}) == "UNAUTHORIZED"


def test_whoever_may_revoke_may_do_it_to_oneself() -> None:
    world = club(row("Revoke", "Admin", "C", "Admin"))
    world.send("adam", "Revoke", has("adam", "Admin"))
    assert world.bitmask("adam") == MEMBER


@pytest.mark.parametrize("name", ["olga", "adam", "otto"])
def test_the_owner_role_is_not_self_revoked(name: str) -> None:
    world = club(row("Revoke_Self", "Any", "C", *ROLES), row("*", "Any", "C", *ROLES))
    error = world.refused(name, "Revoke_Self", {"role": "Owner"})
    assert is_(error, OwnerSelfRevokeForbidden)
    assert error.to_wire() == {
        "type": "Error",
        "code": "OWNER_SELF_REVOKE_FORBIDDEN",
        "message": "Owner role cannot be self-revoked",
    }


# target_roles


@pytest.mark.parametrize("type_", ["Grant", "Grant_Push", "Revoke", "Revoke_Self"])
def test_only_target_roles_are_granted_and_revoked(type_: str) -> None:
    world = club(row(type_, "Owner", "C", "Admin", "Member"), row(type_, "Admin", "C", "Member"))
    for name, roles in (("olga", "Admin Member"), ("adam", "Member"), ("mark", "")):
        for role in (*ROLES, "Owner", "Self", "Node", "Any", "nothing", "admin", ""):
            code = world.code(name, type_, has("gina", role, endpoint=ENDPOINT))
            if (type_, role) == ("Revoke_Self", "Owner"):
                assert code == "OWNER_SELF_REVOKE_FORBIDDEN"
            else:
                assert code == ("" if role in roles.split() else "UNAUTHORIZED"), (name, role)


@pytest.mark.parametrize("type_", ["Grant", "Revoke"])
def test_target_roles_count_only_in_an_entry_that_gives_c_to_the_actor(type_: str) -> None:
    world = club(
        row(type_, "Admin", "C", "Guest"), row(type_, "Member", "R", "Member"), row(type_, "Owner", "C", "Admin")
    )
    assert world.code("adam", type_, has("otto", "Guest")) == ""
    assert world.code("adam", type_, has("otto", "Member")) == "UNAUTHORIZED"
    assert world.code("adam", type_, has("otto", "Admin")) == "UNAUTHORIZED"
    assert world.code("mark", type_, has("otto", "Member")) == "UNAUTHORIZED"


def test_target_roles_of_two_entries_for_one_role_add_up() -> None:
    world = club(row("Grant", "Admin", "C", "Guest"), row("Grant", "Admin", "CR", "DataView"))
    assert [world.code("adam", "Grant", has("otto", role)) for role in ("Guest", "DataView")] == ["", ""]


def test_a_target_role_named_twice_counts_once() -> None:
    world = club(row("Grant", "Owner", "C", "Guest", "Guest"))
    assert [role for role in ROLES if not world.code("olga", "Grant", has("otto", role))] == ["Guest"]


def test_empty_target_roles_allow_nothing() -> None:
    world = club(row("Grant", "Any", "C", target_roles=[]), row("Move", "Any", "C", target_roles=[]))
    assert allowed(world, "Grant", has("otto", "Member")) == ""
    assert allowed(world, "Move", change("otto", 0, MEMBER)) == ""


def test_the_star_brings_its_own_target_roles() -> None:
    with_targets, without = club(row("*", "Admin", "C", "Guest")), club(row("*", "Admin", "C"))
    for type_ in ("Grant", "Grant_Push", "Revoke", "Revoke_Self"):
        content = has("otto", "Guest", endpoint=ENDPOINT)
        assert (with_targets.code("adam", type_, content), without.code("adam", type_, content)) == ("", "UNAUTHORIZED")
        assert with_targets.code("adam", type_, has("otto", "Member", endpoint=ENDPOINT)) == "UNAUTHORIZED"
    assert with_targets.code("adam", "Move", change("otto", 0, GUEST)) == ""
    assert without.code("adam", "Move", change("otto", 0, GUEST)) == "UNAUTHORIZED"
    assert without.code("adam", "Force_Move", change("otto", 0, GUEST)) == ""


def test_target_roles_on_other_types_restrict_nothing() -> None:
    world = club(row("Force_Move", "Admin", "C", "Guest"), row("m", "Admin", "C", "Guest"))
    assert world.code("adam", "Force_Move", change("otto", 0, MEMBER)) == ""
    assert world.code("adam", "m") == ""


# Move and Force_Move

MOVES = row("Move", "Owner", "C", "Admin", "Member", "Guest"), row("Move", "Admin", "C", "Member", "Guest")
FORCED = row("Force_Move", "Owner", "C")


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
def test_move_replaces_the_roles_at_once_and_ends_the_endpoints_of_those_lost(type_: str) -> None:
    world = club(*MOVES, FORCED)
    world.send("olga", type_, change("both", MEMBER | GUEST, MEMBER | ADMIN))
    assert world.bitmask("both") == MEMBER | ADMIN
    assert world.effects.endpoints == (ended("both", "Guest"),)


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
def test_move_to_zero_leaves_no_leaf(type_: str) -> None:
    world = club(*MOVES, FORCED)
    world.send("olga", type_, change("both", MEMBER | GUEST, 0))
    assert world.effects.writes == {identity_key(person("both").public): None}
    assert world.effects.endpoints == (ended("both", "Member"), ended("both", "Guest"))


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
def test_move_of_someone_without_roles(type_: str) -> None:
    world = club(*MOVES, FORCED)
    world.send("olga", type_, change("otto", 0, GUEST))
    assert world.bitmask("otto") == GUEST


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
def test_move_to_what_is_changes_nothing(type_: str) -> None:
    world = club(*MOVES, FORCED)
    world.send("olga", type_, change("dave", DATAVIEW, DATAVIEW))
    assert (world.effects.writes, world.effects.endpoints) == ({}, ())


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
@pytest.mark.parametrize(
    ("name", "from_", "actual"), [("both", MEMBER, MEMBER | GUEST), ("otto", GUEST, 0), ("mark", 0, MEMBER)]
)
def test_a_bitmask_mismatch_names_both_bitmasks(type_: str, name: str, from_: int, actual: int) -> None:
    error = club(*MOVES, FORCED).refused("olga", type_, change(name, from_, GUEST))
    assert is_(error, BitmaskMismatch, expected=hex(from_), actual=hex(actual))
    assert error.code == "BITMASK_MISMATCH"


@pytest.mark.parametrize(
    ("name", "before", "after", "code"),
    [
        ("otto", 0, GUEST, ""),
        ("otto", 0, MEMBER | GUEST, ""),
        ("otto", 0, ADMIN, "UNAUTHORIZED"),
        ("otto", 0, DATAVIEW | GUEST, "UNAUTHORIZED"),
        ("both", MEMBER | GUEST, 0, ""),
        ("adam", ADMIN | MEMBER, MEMBER, "UNAUTHORIZED"),
        ("adam", ADMIN | MEMBER, ADMIN, ""),
        ("adam", ADMIN | MEMBER, 0, "UNAUTHORIZED"),
        ("dave", DATAVIEW, DATAVIEW | GUEST, ""),
        ("dave", DATAVIEW, GUEST, "UNAUTHORIZED"),
        ("olga", OWNER, OWNER | GUEST, ""),
        ("olga", OWNER, 0, "OWNER_BIT_PROTECTED"),
        ("olga", OWNER, GUEST, "OWNER_BIT_PROTECTED"),
        ("olga", OWNER, ADMIN, "OWNER_BIT_PROTECTED"),
        ("otto", 0, OWNER, "OWNER_BIT_PROTECTED"),
        ("otto", 0, OWNER | ADMIN, "OWNER_BIT_PROTECTED"),
    ],
)
def test_every_bit_that_a_move_changes_is_in_the_target_roles(name: str, before: int, after: int, code: str) -> None:
    assert club(*MOVES).code("adam", "Move", change(name, before, after)) == code


def test_target_roles_of_several_roles_add_up_in_a_move() -> None:
    world = club(
        row("Move", "Admin", "C", "Admin"), row("Move", "Member", "C", "Guest"), row("Move", "Any", "C", "DataView")
    )
    assert world.code("adam", "Move", change("otto", 0, ADMIN | GUEST | DATAVIEW)) == ""
    assert world.code("adam", "Move", change("otto", 0, ADMIN | GUEST | MEMBER)) == "UNAUTHORIZED"
    assert world.code("mark", "Move", change("otto", 0, ADMIN | GUEST)) == "UNAUTHORIZED"


def test_a_force_move_passes_the_target_roles_by() -> None:
    world = club(FORCED)
    world.send("olga", "Force_Move", change("adam", ADMIN | MEMBER, GUEST | DATAVIEW))
    assert world.bitmask("adam") == GUEST | DATAVIEW
    assert world.code("adam", "Force_Move", change("otto", 0, GUEST)) == "UNAUTHORIZED"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("olga", OWNER, 0), ("olga", OWNER, OWNER), ("olga", OWNER, OWNER | GUEST), ("otto", 0, OWNER)],
)
def test_a_force_move_never_touches_the_owner(name: str, before: int, after: int) -> None:
    error = club(FORCED).refused("olga", "Force_Move", change(name, before, after))
    assert is_(error, OwnerBitProtected)
    assert error.message == "Owner role cannot be modified by Force_Move"


def test_moves_are_judged_form_then_c_then_bitmask_then_owner_then_targets() -> None:
    world = club(*MOVES, FORCED)
    assert world.code("otto", "Move", change("olga", 1 << 40, 0)) == "INVALID_COMMIT"
    assert world.code("otto", "Move", change("olga", GUEST, OWNER)) == "UNAUTHORIZED"
    assert world.code("adam", "Move", change("olga", GUEST, OWNER | ADMIN)) == "BITMASK_MISMATCH"
    assert world.code("adam", "Move", change("olga", OWNER, ADMIN)) == "OWNER_BIT_PROTECTED"
    assert world.code("adam", "Move", change("olga", OWNER, OWNER | ADMIN)) == "UNAUTHORIZED"
    assert world.code("otto", "Force_Move", change("olga", GUEST, 0)) == "UNAUTHORIZED"
    assert world.code("olga", "Force_Move", change("olga", GUEST, 0)) == "BITMASK_MISMATCH"
    assert world.code("olga", "Force_Move", change("olga", OWNER, 0)) == "OWNER_BIT_PROTECTED"


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
@pytest.mark.parametrize("field", ["from", "to"])
@pytest.mark.parametrize("bit", [0, 2, 3, 4, 31, 36, 255])
def test_reserved_and_undefined_bits_are_no_bitmask(type_: str, field: str, bit: int) -> None:
    error = club(*MOVES, FORCED).refused("olga", type_, {**change("otto", 0, GUEST), field: hex(1 << bit | GUEST)})
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


NO_BITMASKS = [
    "0",
    "",
    "0x",
    "0x00",
    "0x0100000000",
    "0X0",
    "0xA00000000",
    "100000000",
    "-0x1",
    "0x1_0",
    " 0x0",
    "0x0\n",
]


@pytest.mark.parametrize("type_", ["Move", "Force_Move"])
@pytest.mark.parametrize("field", ["from", "to"])
@pytest.mark.parametrize("text", [*NO_BITMASKS, "0x1" + "0" * 64, "0x٣", 0, None, 7, [], {}])
def test_a_bitmask_has_one_spelling(type_: str, field: str, text: Any) -> None:
    error = club(*MOVES, FORCED).refused("olga", type_, {**change("otto", 0, GUEST), field: text})
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


# Transfer_Owner

PASSES_ON = row("Transfer_Owner", "Owner", "C")


def test_transfer_owner_moves_the_bit_and_keeps_all_other_roles() -> None:
    world = club(PASSES_ON, olga="Owner Guest")
    world.send("olga", "Transfer_Owner", {"new_owner": pub("adam")})
    assert (world.bitmask("olga"), world.bitmask("adam")) == (GUEST, OWNER | ADMIN | MEMBER)
    assert world.effects.endpoints == (ended("olga", "Owner"),)


def test_an_owner_without_other_roles_has_no_leaf_after_the_transfer() -> None:
    world = club(PASSES_ON)
    world.send("olga", "Transfer_Owner", {"new_owner": pub("otto")})
    assert (world.leaf(identity_key(person("olga").public)), world.bitmask("otto")) == (None, OWNER)


def test_a_transfer_to_oneself_succeeds_and_changes_nothing() -> None:
    world = club(PASSES_ON)
    before = world.state_hash
    world.send("olga", "Transfer_Owner", {"new_owner": pub("olga")})
    assert (world.effects.writes, world.effects.endpoints, world.state_hash) == ({}, (), before)


def test_only_the_owner_passes_the_ownership_on_and_only_by_an_entry() -> None:
    content = {"new_owner": pub("mary")}
    assert allowed(club(PASSES_ON), "Transfer_Owner", content) == "olga"
    assert allowed(club(row("Transfer_Owner", "Any", "C")), "Transfer_Owner", content) == "olga"
    assert allowed(club(row("Transfer_Owner", "Admin", "C")), "Transfer_Owner", content) == ""
    assert allowed(club(), "Transfer_Owner", content) == ""


def test_what_the_owner_may_goes_with_the_role() -> None:
    world = club(PASSES_ON, row("Pause", "Owner", "C"))
    sequencer = world.state.sequencer
    world.send("olga", "Transfer_Owner", {"new_owner": pub("mark")})
    assert world.state.sequencer == sequencer
    assert (world.code("olga", "Pause"), world.code("mark", "Pause")) == ("UNAUTHORIZED", "")
    assert world.code("olga", "Migrate", world.migrate("node2")) == "UNAUTHORIZED"
    assert world.code("mark", "Migrate", world.migrate("node2")) == ""
    assert world.code("olga", "Transfer_Owner", {"new_owner": pub("olga")}) == "UNAUTHORIZED"
    world.send("mark", "Transfer_Owner", {"new_owner": pub("olga")})
    assert (world.bitmask("olga"), world.bitmask("mark")) == (OWNER, MEMBER)


# Migrate


@pytest.mark.parametrize(
    "schema", [[], [row("Migrate", "Owner", "C")], [row("Migrate", "Any", "C")], [row("*", "Any", "C")]]
)
def test_migrate_is_the_owner_s_whatever_the_schema_says(schema: list[Json]) -> None:
    world = club(*schema)
    assert allowed(world, "Migrate", world.migrate("node2")) == "olga"


# AC_Bundle

EVERYTHING = (
    *(row(type_, "Owner", "C", *ROLES) for type_ in ("Grant", "Grant_Push", "Revoke", "Move")),
    *(row(type_, "Admin", "C", "Member", "Guest") for type_ in ("Grant", "Revoke", "Move")),
    row("Revoke_Self", "Any", "C", *ROLES),
    FORCED,
    PASSES_ON,
)


def test_an_ac_bundle_does_all_its_operations_in_order() -> None:
    world = club(*EVERYTHING)
    operations = bundle(
        ("Grant", has("otto", "Member")),
        ("Grant_Push", has("otto", "DataView", endpoint=ENDPOINT)),
        ("Revoke", has("adam", "Admin")),
        ("Move", change("otto", MEMBER | DATAVIEW, GUEST | DATAVIEW)),
        ("Force_Move", change("gina", GUEST, 0)),
        ("Revoke_Self", {"role": "Guest"}),
    )
    world.send("olga", "AC_Bundle", {**operations, "extra": 1})
    assert [world.bitmask(name) for name in ("otto", "adam", "gina")] == [GUEST | DATAVIEW, MEMBER, 0]
    assert world.effects.endpoints == (
        EndpointChange(person("otto").public, "DataView", ENDPOINT),
        ended("adam", "Admin"),
        ended("otto", "Member"),
        ended("gina", "Guest"),
    )


def test_the_document_s_dependent_operations() -> None:
    world = club(*EVERYTHING)
    world.send(
        "olga", "AC_Bundle", bundle(("Grant", has("otto", "Member")), ("Move", change("otto", MEMBER, ADMIN | MEMBER)))
    )
    assert world.bitmask("otto") == ADMIN | MEMBER


def test_each_operation_is_judged_after_the_ones_before_it() -> None:
    world = club(*EVERYTHING)
    operations = bundle(
        ("Grant", has("otto", "Guest")), ("Revoke_Self", {"role": "Admin"}), ("Grant", has("omar", "Guest"))
    )
    error = world.refused("adam", "AC_Bundle", operations)
    assert is_(error, ACBundleFailed, failed_index=2, reason="UNAUTHORIZED")
    assert error.code == "AC_BUNDLE_FAILED"


@pytest.mark.parametrize(
    ("name", "operation", "reason"),
    [
        ("otto", ("Grant", has("mary", "Guest")), "UNAUTHORIZED"),
        ("adam", ("Grant", has("mary", "Admin")), "UNAUTHORIZED"),
        ("adam", ("Grant_Push", has("mary", "Guest", endpoint=ENDPOINT)), "UNAUTHORIZED"),
        ("olga", ("Grant_Push", has("mary", "Guest", endpoint="")), "INVALID_ENDPOINT_URL"),
        ("olga", ("Revoke", has("olga", "Owner")), "UNAUTHORIZED"),
        ("olga", ("Revoke_Self", {"role": "Owner"}), "OWNER_SELF_REVOKE_FORBIDDEN"),
        ("olga", ("Move", change("mary", 0, GUEST)), "BITMASK_MISMATCH"),
        ("olga", ("Force_Move", change("mary", 0, GUEST)), "BITMASK_MISMATCH"),
        ("olga", ("Move", change("olga", OWNER, GUEST)), "OWNER_BIT_PROTECTED"),
        ("olga", ("Force_Move", change("olga", OWNER, OWNER)), "OWNER_BIT_PROTECTED"),
    ],
)
def test_a_failed_operation_gives_its_reason(name: str, operation: tuple[str, Json], reason: str) -> None:
    world = club(*EVERYTHING)
    error = world.refused(name, "AC_Bundle", bundle(("Revoke_Self", {"role": "DataView"}), operation))
    assert is_(error, ACBundleFailed, failed_index=1, reason=reason)


def test_an_ac_bundle_needs_no_entry_and_an_entry_gives_it_no_right() -> None:
    world = club(row("Grant", "Admin", "C", "Guest"), row("AC_Bundle", "Guest", "C"))
    assert world.code("adam", "AC_Bundle", bundle(("Grant", has("otto", "Guest")))) == ""
    assert world.code("gina", "AC_Bundle", bundle(("Grant", has("otto", "Guest")))) == "AC_BUNDLE_FAILED"


def test_1000_operations_and_no_more() -> None:
    world = club(*EVERYTHING)
    grants = [("Grant", has("mark", "Guest"))] * 1000
    assert world.code("adam", "AC_Bundle", bundle(*grants)) == ""
    assert is_(world.refused("adam", "AC_Bundle", bundle(*grants, grants[0])), InvalidCommit)


@pytest.mark.parametrize(
    "type_", ["Transfer_Owner", "AC_Bundle", "Pause", "Migrate", "Update", "Delete", "Manifest", "m", "*"]
)
def test_nothing_else_is_an_operation_of_an_ac_bundle(type_: str) -> None:
    content = {**has("otto", "Guest"), "new_owner": pub("otto"), "operations": []}
    error = club(*EVERYTHING, row("*", "Any", "C", *ROLES)).refused("olga", "AC_Bundle", bundle((type_, content)))
    assert is_(error, InvalidCommit)
    assert error.message.startswith("operations[0]: ")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({}, "operations"),
        ({"operations": []}, "operations"),
        ({"operations": {}}, "operations"),
        ({"operations": [7]}, "operations[0]"),
        ({"operations": [{}]}, "operations[0]"),
        (bundle(("Grant", has("otto", "Guest")), ("Grant", {"role": "Guest"})), "operations[1].identity"),
        (bundle(("Grant", {"identity": pub("otto")})), "operations[0].role"),
        (bundle(("Revoke_Self", {})), "operations[0].role"),
        (bundle(("Grant_Push", has("otto", "Guest"))), "operations[0].endpoint"),
        (bundle(("Move", {**change("otto", 0, 0), "from": "0"})), "operations[0].from"),
        (bundle(("Force_Move", change("otto", 0, 1 << 2))), "operations[0].to"),
    ],
)
def test_a_malformed_ac_bundle_is_refused_by_name(content: Json, named: str) -> None:
    error = club(*EVERYTHING).refused("olga", "AC_Bundle", content)
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"{named}: ")


# Update and Delete

EDITABLE = row("m", "Any", "C"), row("m", "Self", "UD"), row("m", "Admin", "D")
GONE = {"reason": "author"}


def test_an_update_supersedes_its_target_and_erases_it() -> None:
    world = club(*EDITABLE)
    message = world.send("mark", "m", "one")
    first = world.send("mark", "Update", "two", tags=about(message))
    assert (world.status(message), world.effects.erases) == (first.id, (message.id,))
    second = world.send("mark", "Update", "", tags=about(message))
    assert world.status(message) == second.id
    assert set(world.effects.erases) == {message.id, first.id}


def test_a_delete_is_for_good_also_after_an_update() -> None:
    world = club(*EDITABLE)
    message = world.send("mark", "m", "one")
    update = world.send("mark", "Update", "two", tags=about(message))
    world.send("adam", "Delete", {"reason": "moderator", "note": "policy violation"}, tags=about(message))
    assert world.status(message) == DELETED
    assert set(world.effects.erases) == {message.id, update.id}
    for type_ in ("Update", "Delete"):
        assert is_(world.refused("mark", type_, GONE, tags=about(message)), EventDeleted)


@pytest.mark.parametrize(("type_", "op"), [("Update", "U"), ("Delete", "D")])
@pytest.mark.parametrize(
    ("role", "who"), [("Self", "mark"), ("Member", "adam mark"), ("Owner", "olga"), ("Any", " ".join(EVERYBODY))]
)
def test_revising_needs_u_or_d_on_the_target_s_type(type_: str, op: str, role: str, who: str) -> None:
    world = club(row("m", "Any", "C"), row("m", role, op), row(type_, "Any", "C"), row("n", "Any", "UD"))
    message = world.send("mark", "m")
    assert allowed(world, type_, GONE, tags=about(message)) == who
    other = club(row("m", "Any", "C"), row("m", role, {"U": "D", "D": "U"}[op]))
    assert allowed(other, type_, GONE, tags=about(other.send("mark", "m"))) == ""


def test_u_and_d_by_the_star() -> None:
    world = club(row("m", "Any", "C"), row("*", "Admin", "D"), row("*", "Self", "U"))
    message = world.send("mark", "m")
    assert allowed(world, "Delete", GONE, tags=about(message)) == "adam"
    assert allowed(world, "Update", "new", tags=about(message)) == "mark"


@pytest.mark.parametrize("type_", ["Update", "Delete"])
@pytest.mark.parametrize("target", sorted(PREDEFINED_V1))
def test_no_predefined_type_is_a_target(type_: str, target: str) -> None:
    world = club(row("*", "Any", "UD"), row(target, "Any", "UD"))
    world.memory.targets[bytes(32)] = Target(target, person("mark").public)
    assert is_(world.refused("mark", type_, GONE, tags=(("r", "00" * 32),)), InvalidTarget)


@pytest.mark.parametrize("target", sorted(PREDEFINED - PREDEFINED_V1))
def test_what_only_version_2_predefines_is_a_content_event(target: str) -> None:
    world = club(row(target, "Any", "CU"))
    event = world.send("otto", target, "any text, {not json")
    assert (world.effects.writes, world.effects.endpoints) == ({}, ())
    assert world.code("otto", "Update", "new", tags=about(event)) == ""


def test_update_and_delete_are_judged_found_then_type_then_authorised_then_status() -> None:
    world = club(*EDITABLE)
    message = world.send("mark", "m")
    world.send("mark", "Delete", GONE, tags=about(message))
    assert is_(world.refused("mark", "Update", "x", tags=(("r", "00" * 32),)), EventNotFound)
    assert is_(world.refused("otto", "Update", "x", tags=about(world.events[0])), InvalidTarget)
    assert is_(world.refused("otto", "Update", "x", tags=about(message)), Unauthorized)
    assert is_(world.refused("mark", "Update", "x", tags=about(message)), EventDeleted)


@pytest.mark.parametrize("type_", ["Update", "Delete"])
@pytest.mark.parametrize(
    "tags", [(), (("r", "no hex"),), (("r", "00" * 32), ("r", "00" * 32)), (("r", "00" * 32, "reply"),)]
)
def test_update_and_delete_carry_exactly_one_r_tag(type_: str, tags: tuple) -> None:
    assert is_(club(*EDITABLE).refused("mark", type_, GONE, tags=tags), InvalidCommit)


# Contents that are malformed

EVERY_CONTENT: dict[str, Json] = {
    "Grant": has("mark", "Guest"),
    "Grant_Push": has("mark", "Guest", endpoint=ENDPOINT),
    "Revoke": has("mark", "Guest"),
    "Revoke_Self": {"role": "Guest"},
    "Move": change("mark", MEMBER, 0),
    "Force_Move": change("mark", MEMBER, 0),
    "Transfer_Owner": {"new_owner": pub("mark")},
    "Delete": {"reason": "author"},
}
OF_ANY_KIND: list[Any] = [7, None, True, [], {}]
NO_IDENTITIES = [
    *OF_ANY_KIND,
    "",
    "xyz",
    pub("mark")[:-2],
    pub("mark").upper(),
    f"0x{pub('mark')}",
    NO_POINT,
    "00" * 32,
]
FIELDS = {
    "role": OF_ANY_KIND,
    "identity": NO_IDENTITIES,
    "new_owner": NO_IDENTITIES,
    "from": OF_ANY_KIND,
    "to": OF_ANY_KIND,
    "reason": [*OF_ANY_KIND, "", "spam"],
}


@pytest.mark.parametrize(
    ("type_", "field", "value"),
    [
        (type_, field, value)
        for type_, content in EVERY_CONTENT.items()
        for field in content
        for value in FIELDS.get(field, [])
    ],
)
def test_a_mistyped_field_is_refused_by_name(type_: str, field: str, value: Any) -> None:
    error = club().refused("otto", type_, {**EVERY_CONTENT[type_], field: value}, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


@pytest.mark.parametrize(
    ("type_", "field"), [(type_, field) for type_, content in EVERY_CONTENT.items() for field in content]
)
def test_a_missing_field_is_refused_by_name(type_: str, field: str) -> None:
    content = {key: value for key, value in EVERY_CONTENT[type_].items() if key != field}
    error = club().refused("otto", type_, content, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith(f"content.{field}: ")


@pytest.mark.parametrize("type_", [*EVERY_CONTENT, "AC_Bundle", "Pause", "Terminate", "Migrate"])
@pytest.mark.parametrize("content", ["[]", "7", "null", "{", '{"a":1,"a":2}', '{"a":9007199254740992}', '{"a":NaN}'])
def test_a_content_that_is_no_strict_json_object_is_refused(type_: str, content: str) -> None:
    error = club().refused("otto", type_, content, tags=(("r", "00" * 32),))
    assert is_(error, InvalidCommit)
    assert error.message.startswith("content: ")


@pytest.mark.parametrize("content", ["", "{}", '{"why":"because"}'])
def test_lifecycle_events_take_an_empty_content_or_an_object(content: str) -> None:
    world = club(row("Pause", "Owner", "C"), row("Terminate", "Owner", "C"))
    assert (world.code("olga", "Pause", content), world.code("olga", "Terminate", content)) == ("", "")


@pytest.mark.parametrize("type_", EVERY_CONTENT)
def test_unknown_extra_fields_are_allowed(type_: str) -> None:
    world = club(*EVERYTHING, *EDITABLE, row("m", "Any", "D"))
    message = world.send("mark", "m")
    assert world.code("olga", type_, {**EVERY_CONTENT[type_], "note": "why", "more": [1]}, tags=about(message)) == ""


def test_the_predefined_types_are_those_of_the_document_s_registry() -> None:
    ac_events = "Manifest Grant Grant_Push Revoke Revoke_Self Move Force_Move Transfer_Owner AC_Bundle".split()
    lifecycle_events, mutation_events = ["Pause", "Resume", "Terminate", "Migrate"], ["Update", "Delete"]
    assert {*ac_events, *lifecycle_events, *mutation_events} == PREDEFINED_V1


def test_every_predefined_type_has_its_rules_and_every_other_is_content() -> None:
    """A content that is no JSON passes exactly where nothing reads it."""
    world = club(row("*", "Any", "CUD", *ROLES))
    message = world.send("olga", "m")
    types = PREDEFINED_V1 | PREDEFINED | {"m", "Reg_Node", "Reg_Enclave", "Reg_Identity"}
    read = {type_ for type_ in types if world.code("olga", type_, "{not json", tags=about(message))}
    assert read == PREDEFINED_V1 - {"Update"}
    assert world.policy.predefined == PREDEFINED_V1


# Reading, push and notify


@pytest.mark.parametrize("op", ["R", "P", "N"])
@pytest.mark.parametrize(
    ("role", "who"),
    [("Owner", "olga"), ("Member", "adam mark"), ("Node", "node"), ("Any", " ".join(EVERYBODY)), ("Self", "mark")],
)
def test_rights_are_for_the_role_named(op: str, role: str, who: str) -> None:
    for event in ("m", "*"):
        world = club(row("m", "Any", "C"), row(event, role, op))
        message = world.send("mark", "m")
        assert " ".join(name for name in EVERYBODY if world.rights(name, message)) == who
        assert {world.rights(name, message) for name in who.split()} == {op}


def test_rights_on_one_type_are_none_on_another() -> None:
    world = club(row("m", "Any", "C"), row("n", "Any", "CRPN"), row("Grant", "Any", "RPN"))
    assert world.rights("olga", world.send("mark", "m")) == ""


def test_access_control_events_are_read_like_others_whatever_role_they_are_about() -> None:
    world = club(row("Grant", "Owner", "C", "Guest"), row("Grant", "Member", "R"), row("*", "DataView", "N"))
    event = world.send("olga", "Grant", has("otto", "Guest"))
    assert (world.rights("mark", event), world.rights("dave", event), world.rights("otto", event)) == ("R", "N", "")
    assert world.rights("mark", world.events[0]) == ""


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_an_update_or_delete_counts_as_its_target_s_type(type_: str) -> None:
    world = club(*EDITABLE, row("m", "DataView", "P"), row(type_, "Guest", "RPN"))
    message = world.send("mark", "m")
    event = world.send("mark", type_, GONE, tags=about(message))
    assert (world.rights("dave", event, message), world.rights("gina", event, message)) == ("P", "")
    assert not world.scope("gina")


def test_authors_read_what_they_wrote() -> None:
    world = club(row("m", "Any", "C"), row("m", "Self", "R"), row("*", "Owner", "R"), row("n", "Member", "R"))
    assert [world.scope(name).of("m") for name in ("mark", "otto", "olga")] == ["own", "own", "all"]
    assert [world.scope(name).of("n") for name in ("mark", "otto", "olga")] == ["all", "none", "all"]
    assert [world.scope(name).of("other") for name in ("mark", "otto", "olga")] == ["none", "none", "all"]


def test_own_by_the_star_is_for_every_type() -> None:
    world = club(row("*", "Self", "R"), row("m", "Member", "R"))
    assert (world.scope("otto").others, world.scope("otto").of("m"), world.scope("mark").of("m")) == (
        "own",
        "own",
        "all",
    )


def test_whoever_can_read_no_event_at_all_has_an_empty_scope() -> None:
    world = club(row("m", "Member", "R"), row("m", "DataView", "PN"), row("Update", "Any", "R"))
    assert [name for name in EVERYBODY if world.scope(name)] == ["adam", "mark"]


def test_push_outranks_notify_and_the_node_may_be_among_the_recipients() -> None:
    world = club(row("m", "DataView", "PN"), row("m", "Guest", "N"), row("m", "Node", "N"))
    names = ("dave", "gina", "node", "otto")
    bitmasks = {person(name).public: world.bitmask(name) for name in names}
    is_closed = view(world.state, world.memory).is_closed
    author, sequencer = person("mark").public, world.state.sequencer
    found = recipients(world.policy, Subject("m"), author, bitmasks, is_closed, sequencer)
    assert [found.get(person(name).public) for name in names] == ["P", "N", "N", None]
    found = recipients(world.policy, Subject("m"), author, bitmasks, is_closed)
    assert person("node").public not in found


def test_roles_are_the_names_for_people() -> None:
    policy = club().policy
    assert policy.traits_of(OWNER | GUEST | ADMIN) == ["Owner", "Admin", "Guest"]
    assert (policy.traits_of(0), policy.state_of(0), policy.state_of(OWNER | ADMIN)) == ([], "", "")
    assert (policy.is_owner(OWNER | ADMIN), policy.is_owner(ADMIN)) == (True, False)


# Properties

NAMES = ("olga", "adam", "mark", "otto")
people = st.sampled_from(NAMES)
roles = st.sampled_from([*ROLES, "Owner", "Any", "nothing"])
masks = st.sets(st.sampled_from([OWNER, ADMIN, MEMBER, GUEST, DATAVIEW])).map(sum)
schemas = st.lists(
    st.builds(
        lambda event, role, targets: row(event, role, "C", target_roles=sorted(targets)),
        st.sampled_from([*sorted(OPERATIONS), "Transfer_Owner", "*"]),
        st.sampled_from([*ROLES, "Owner", "Self", "Any", "Node"]),
        st.sets(st.sampled_from(ROLES)),
    ),
    max_size=12,
)


@st.composite
def operations(draw: st.DrawFn) -> tuple[str, Json]:
    """One operation; a Move names the present bitmask more often than not (None stands for it)."""
    type_, name = draw(st.sampled_from(sorted(OPERATIONS))), draw(people)
    if type_ in ("Move", "Force_Move"):
        from_ = draw(st.one_of(st.none(), st.none(), masks))
        return type_, {"name": name, "from": from_, "to": draw(masks)}
    return type_, has(name, draw(roles), endpoint=ENDPOINT)


def filled(operation: tuple[str, Json], world: World) -> tuple[str, Json]:
    type_, content = operation
    if type_ not in ("Move", "Force_Move"):
        return operation
    from_ = world.bitmask(content["name"]) if content["from"] is None else content["from"]
    return type_, change(content["name"], from_, content["to"])


def owners(world: World) -> list[str]:
    return [name for name in NAMES if world.bitmask(name) & OWNER]


@examples(150)
@given(schemas, st.lists(st.tuples(people, operations()), max_size=12), st.lists(people, max_size=2))
def test_there_is_always_one_owner_and_no_bit_that_is_not_a_role(
    schema: list[Json], steps: list[tuple[str, tuple[str, Json]]], heirs: list[str]
) -> None:
    world = club(*schema)
    acts = [(name, *operation) for name, operation in steps]
    acts += [(actor, "Transfer_Owner", {"new_owner": pub(heir)}) for heir in heirs for actor in NAMES]
    for name, type_, content in acts:
        type_, content = filled((type_, content), world) if type_ in OPERATIONS else (type_, content)
        if world.code(name, type_, content):
            continue
        before = owners(world)
        world.send(name, type_, content)
        assert len(owners(world)) == 1
        assert type_ == "Transfer_Owner" or owners(world) == before
    assert not any(world.bitmask(name) & ~(OWNER | ADMIN | MEMBER | GUEST | DATAVIEW) for name in NAMES)


@examples(150)
@given(schemas, people, st.lists(operations(), min_size=1, max_size=6))
def test_an_ac_bundle_equals_its_operations_one_by_one_or_changes_nothing(
    schema: list[Json], actor: str, steps: list[tuple[str, Json]]
) -> None:
    single, world = club(*schema), club(*schema)
    done: list[tuple[str, Json]] = []
    endpoints: list[EndpointChange] = []
    code = ""
    for step in steps:
        operation = filled(step, single)
        done.append(operation)
        if code := single.code(actor, *operation):
            break
        single.send(actor, *operation)
        endpoints += single.effects.endpoints
    before = world.state_hash
    if code:
        error = world.refused(actor, "AC_Bundle", bundle(*done))
        assert is_(error, ACBundleFailed, failed_index=len(done) - 1, reason=code)
        assert world.state_hash == before
    else:
        world.send(actor, "AC_Bundle", bundle(*done))
        assert world.state_hash == single.state_hash
        assert world.effects.endpoints == tuple(endpoints)


@examples(150)
@given(schemas, st.sampled_from(sorted(OPERATIONS)), people, roles, masks, masks)
def test_more_roles_never_take_a_right_away(
    schema: list[Json], type_: str, target: str, role: str, to: int, more: int
) -> None:
    poor = club(*schema, poor="Guest")
    rich = club(*schema, poor=" ".join(["Guest", *(name for name in ROLES if name != "Guest" and BIT[name] & more)]))
    move = type_ in ("Move", "Force_Move")
    content = change(target, poor.bitmask(target), to) if move else has(target, role, endpoint=ENDPOINT)
    if not poor.code("poor", type_, content):
        assert rich.code("poor", type_, content) == ""


rows = st.builds(
    lambda event, role, ops: row(event, role, "".join(sorted(ops)), target_roles=[]),
    st.sampled_from(["m", "n", "Grant", "*"]),
    st.sampled_from([*ROLES, "Owner", "Self", "Any", "Node"]),
    st.sets(st.sampled_from("CRUDPN")),
)


@examples(200)
@given(st.lists(rows, max_size=6), masks, st.booleans(), st.booleans(), st.sampled_from(["m", "n", "Grant", "other"]))
def test_rights_and_scope_are_what_the_entries_say(
    schema: list[Json], mask: int, is_author: bool, is_node: bool, type_: str
) -> None:
    policy = club(*schema).policy
    now = {"Any", *policy.traits_of(mask), *(["Self"] if is_author else []), *(["Node"] if is_node else [])}
    given_ops = {op for e in schema if e["event"] in (type_, "*") and e["role"] in now for op in e["ops"]}
    found = policy.rights(Subject(type_), mask, is_author=is_author, is_closed=lambda alias: False, is_node=is_node)
    assert found == given_ops & set("RPN")
    reach = policy.read_scope(mask, lambda alias: False, is_node=is_node).of(type_)
    assert ("R" in found) == (reach == "all" or (reach == "own" and is_author))


def test_damaged_contents_are_judged_or_refused_and_nothing_else() -> None:
    random, codes = Random(22), set[str]()
    world = club(*EVERYTHING, row("m", "Any", "CUD"))
    message = world.send("mark", "m")
    contents = {**EVERY_CONTENT, "AC_Bundle": bundle(*((type_, EVERY_CONTENT[type_]) for type_ in sorted(OPERATIONS)))}
    for _ in range(4_000):
        type_ = random.choice(sorted(contents))
        content = deepcopy(contents[type_])
        damage(random, content)
        codes.add(world.code("olga", type_, content, tags=about(message)))
    assert codes >= {"", "INVALID_COMMIT", "UNAUTHORIZED", "BITMASK_MISMATCH", "AC_BUNDLE_FAILED"}


def test_judging_looks_up_and_does_not_search() -> None:
    """Ten thousand rows for one type and role are one lookup and, for target roles, one step."""
    schema = [row("Grant", "Admin", "C", "Guest")] * 10_000 + [row(f"t{i}", "Any", "C") for i in range(1_000)]
    policy = club(*schema).policy
    assert len(policy._targets["Grant"]) == 1
    assert policy._given["Grant", "C"] == ADMIN


def test_a_policy_is_made_of_the_manifest_alone() -> None:
    content = club(*EVERYTHING).events[0].content
    assert content
    assert parse_manifest(content) == club(*EVERYTHING).policy
