"""Access control, version 1: Move, Force_Move, Transfer_Owner, Migrate and AC_Bundle."""

from typing import Any

import pytest

from enc.core.errors import (
    ACBundleFailed,
    BitmaskMismatch,
    InvalidCommit,
    OwnerBitProtected,
)
from enc.core.rules.policy_types import EndpointChange
from enc.core.trees.state_key import identity_key
from tests.core.rules.v1.access_people import (
    ADMIN,
    DATAVIEW,
    EVERYTHING,
    FORCED,
    GUEST,
    MEMBER,
    PASSES_ON,
    ROLES,
    allowed,
    club,
    ended,
    is_,
)
from tests.core.world import Json, person, pub
from tests.core.world_v1 import ENDPOINT, OWNER, bundle, change, has, row

# Move and Force_Move


MOVES = row("Move", "Owner", "C", "Admin", "Member", "Guest"), row("Move", "Admin", "C", "Member", "Guest")


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
    assert world.effects.endpoints == (ended("both", "Member", "Guest"),)


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
        EndpointChange(person("otto").public, ("DataView",), ENDPOINT),
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
