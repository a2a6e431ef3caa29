"""Access control, version 1: roles, the schema, Grant, Revoke and target roles."""

from typing import Any

import pytest

from enc.core.errors import (
    InvalidEndpointUrl,
    OwnerSelfRevokeForbidden,
    Unauthorized,
)
from enc.core.rules.policy_types import EndpointChange
from enc.core.trees.state_key import identity_key
from tests.core.rules.v1.access_people import (
    DATAVIEW,
    EVERY_CONTENT,
    EVERYBODY,
    GUEST,
    MEMBER,
    ROLES,
    allowed,
    club,
    ended,
    is_,
)
from tests.core.world import about, person
from tests.core.world_v1 import ENDPOINT, change, has, row

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
    assert world.effects.endpoints == (EndpointChange(person("otto").public, ("DataView",), ENDPOINT),)
    assert world.bitmask("otto") == DATAVIEW


def test_grant_push_to_a_holder_of_the_role_changes_only_the_endpoint() -> None:
    world = club(row("Grant_Push", "Owner", "C", "DataView"))
    world.send("olga", "Grant_Push", has("dave", "DataView", endpoint=ENDPOINT))
    assert world.effects.endpoints == (EndpointChange(person("dave").public, ("DataView",), ENDPOINT),)
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
