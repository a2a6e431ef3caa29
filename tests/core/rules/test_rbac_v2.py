"""Access control, version 2: who may do what, what it changes, and which error comes first."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enc.core.errors import (
    ACBundleFailed,
    EncError,
    EventDeleted,
    EventNotFound,
    GateClosed,
    InvalidCommit,
    InvalidEndpointUrl,
    InvalidStateForGrant,
    InvalidStateForTransfer,
    InvalidTarget,
    InvalidTransferTarget,
    RankInsufficient,
    StateMismatch,
    TraitAlreadyHeld,
    Unauthorized,
)
from enc.core.machine.enclave import view
from enc.core.primitives.types import PREDEFINED, Target
from enc.core.rules.manifest import parse_manifest
from enc.core.rules.policy import EndpointChange, Subject
from enc.core.trees.state_key import CLOSED, DELETED
from tests.core.world import NO_POINT, Json, World, about, gated, give, grant, init, move, path, person, pub, rule

STATES = ["PENDING", "MEMBER", "BLOCKED"]
PENDING, MEMBER, BLOCKED = 1, 2, 3
OWNER, ADMIN, MODERATOR, MUTED, DATAVIEW = (1 << 8 + i for i in range(5))

PEOPLE = {
    "olga": "MEMBER owner",
    "adam": "MEMBER admin",
    "anna": "MEMBER admin",
    "mona": "MEMBER moderator",
    "mute": "MEMBER muted",
    "mark": "MEMBER",
    "mary": "MEMBER",
    "pete": "PENDING",
    "blake": "BLOCKED",
    "dave": "OUTSIDER dataview",
}
"""Everybody else, such as otto, is OUTSIDER."""


def club(**sections: Any) -> World:
    manifest: Json = {
        "enc_v": 2,
        "states": STATES,
        "traits": ["owner(0)", "admin(1)", "moderator(1)", "muted(2)", "dataview(3)"],
        "init": init(**PEOPLE),
        **sections,
    }
    return World(manifest)


def ended(name: str, trait: str) -> EndpointChange:
    return EndpointChange(person(name).public, trait, None)


def is_(error: EncError, kind: type[EncError], **context: Any) -> bool:
    return (type(error), error.context) == (kind, context)


# Content events


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


# Move


def test_move_sets_the_state_and_clears_the_traits_with_their_endpoints() -> None:
    world = club(moves=[path("MEMBER", "BLOCKED", "owner")])
    world.send("olga", "Move", move("adam", "MEMBER", "BLOCKED"))
    assert world.bitmask("adam") == BLOCKED
    assert world.effects.endpoints == (ended("adam", "admin"),)
    assert world.bitmask("olga") == MEMBER | OWNER


def test_move_to_outsider_leaves_no_leaf() -> None:
    world = club(moves=[path("MEMBER", "OUTSIDER", "Self")])
    world.send("mark", "Move", move("mark", "MEMBER", "OUTSIDER"))
    assert list(world.effects.writes.values()) == [None]
    assert world.bitmask("mark") == 0


def test_move_of_someone_never_mentioned() -> None:
    world = club(moves=[path("OUTSIDER", "MEMBER", "owner")])
    world.send("olga", "Move", move("otto", "OUTSIDER", "MEMBER"))
    assert world.bitmask("otto") == MEMBER


def test_move_with_preserve_keeps_traits_and_endpoints() -> None:
    world = club(moves=[path("OUTSIDER", "MEMBER", "owner", preserve=True)])
    world.send("olga", "Move", move("dave", "OUTSIDER", "MEMBER"))
    assert world.bitmask("dave") == MEMBER | DATAVIEW
    assert world.effects.endpoints == ()


@pytest.mark.parametrize("claimed", [True, False])
def test_preserve_in_the_content_means_nothing(claimed: bool) -> None:
    world = club(moves=[path("MEMBER", "PENDING", "owner"), path("PENDING", "MEMBER", "owner", preserve=True)])
    world.send("olga", "Move", move("adam", "MEMBER", "PENDING", preserve=claimed))
    assert world.bitmask("adam") == PENDING


def test_preserve_of_an_entry_that_gives_the_actor_nothing_does_not_count() -> None:
    world = club(moves=[path("MEMBER", "PENDING", "owner"), path("MEMBER", "PENDING", "admin", preserve=True)])
    world.send("olga", "Move", move("mute", "MEMBER", "PENDING"))
    assert world.bitmask("mute") == PENDING


def test_preserve_of_one_authorising_entry_is_enough() -> None:
    moves = [path("MEMBER", "PENDING", "owner", preserve=True), path("MEMBER", "PENDING", "MEMBER")]
    world = club(moves=moves)
    world.send("olga", "Move", move("mute", "MEMBER", "PENDING"))
    assert world.bitmask("mute") == PENDING | MUTED


def test_preserve_behind_a_closed_gate_does_not_count() -> None:
    gate = gated("soft", "owner")
    world = club(moves=[path("MEMBER", "PENDING", "owner", preserve=True, **gate), path("MEMBER", "PENDING", "owner")])
    world.send("olga", "Gate", {"alias": "soft", "state": "closed"})
    world.send("olga", "Move", move("mute", "MEMBER", "PENDING"))
    assert world.bitmask("mute") == PENDING


@pytest.mark.parametrize(
    ("from_", "to"),
    [("PENDING", "BLOCKED"), ("MEMBER", "PENDING"), ("BLOCKED", "MEMBER"), ("NOWHERE", "MEMBER"), ("MEMBER", "admin")],
)
def test_a_move_that_no_entry_names_is_unauthorized(from_: str, to: str) -> None:
    world = club(moves=[path("MEMBER", "BLOCKED", "owner"), path("PENDING", "MEMBER", "owner")])
    assert is_(world.refused("olga", "Move", move("otto", from_, to)), Unauthorized)


def test_state_mismatch_names_both_states() -> None:
    world = club(moves=[path("PENDING", "MEMBER", "owner"), path("OUTSIDER", "MEMBER", "owner")])
    error = world.refused("olga", "Move", move("otto", "PENDING", "MEMBER"))
    assert is_(error, StateMismatch, expected="PENDING", actual="OUTSIDER")
    error = world.refused("olga", "Move", move("mark", "OUTSIDER", "MEMBER"))
    assert is_(error, StateMismatch, expected="OUTSIDER", actual="MEMBER")


def test_self_may_only_move_oneself() -> None:
    world = club(moves=[path("OUTSIDER", "PENDING", "Self")])
    assert is_(world.refused("otto", "Move", move("omar", "OUTSIDER", "PENDING")), Unauthorized)
    world.send("otto", "Move", move("otto", "OUTSIDER", "PENDING"))
    assert world.bitmask("otto") == PENDING


def test_public_may_move_anyone() -> None:
    world = club(moves=[path("OUTSIDER", "PENDING", "Public")])
    world.send("otto", "Move", move("omar", "OUTSIDER", "PENDING"))
    assert world.bitmask("omar") == PENDING


def test_sender_means_nothing_on_a_move() -> None:
    world = club(moves=[path("OUTSIDER", "PENDING", "Sender")])
    assert is_(world.refused("otto", "Move", move("otto", "OUTSIDER", "PENDING")), Unauthorized)


def test_a_denied_move_is_unauthorized() -> None:
    world = club(moves=[path("OUTSIDER", "PENDING", "Self"), path("OUTSIDER", "PENDING", "dataview", "_C")])
    assert world.code("otto", "Move", move("otto", "OUTSIDER", "PENDING")) == ""
    assert is_(world.refused("dave", "Move", move("dave", "OUTSIDER", "PENDING")), Unauthorized)


def test_move_is_judged_authorised_then_state_then_rank() -> None:
    world = club(moves=[path("MEMBER", "BLOCKED", "admin"), path("PENDING", "BLOCKED", "admin")])
    wrong_state_and_rank = move("olga", "PENDING", "BLOCKED")
    assert is_(world.refused("mark", "Move", wrong_state_and_rank), Unauthorized)
    assert is_(world.refused("adam", "Move", wrong_state_and_rank), StateMismatch, expected="PENDING", actual="MEMBER")
    assert is_(world.refused("adam", "Move", move("olga", "MEMBER", "BLOCKED")), RankInsufficient)


# Rank


@pytest.mark.parametrize(
    ("operator", "actor", "target", "code"),
    [
        ("admin", "adam", "mark", ""),
        ("admin", "adam", "mute", ""),
        ("admin", "adam", "anna", "RANK_INSUFFICIENT"),
        ("admin", "adam", "mona", "RANK_INSUFFICIENT"),
        ("admin", "adam", "olga", "RANK_INSUFFICIENT"),
        ("admin", "adam", "adam", ""),
        ("muted", "mute", "adam", "RANK_INSUFFICIENT"),
        ("muted", "mute", "mark", ""),
        (["admin", "owner"], "olga", "adam", ""),
        (["admin", "owner"], "adam", "olga", "RANK_INSUFFICIENT"),
        ("MEMBER", "mark", "olga", ""),
        (["MEMBER", "admin"], "adam", "olga", ""),
        ("Public", "otto", "olga", ""),
        (["Public", "admin"], "adam", "olga", ""),
        ("Self", "olga", "olga", ""),
        (["Self", "admin"], "adam", "olga", "RANK_INSUFFICIENT"),
        (["BLOCKED", "admin"], "adam", "olga", "RANK_INSUFFICIENT"),
    ],
)
@pytest.mark.parametrize("type_", ["Move", "Grant", "Revoke"])
def test_rank_is_asked_where_only_traits_give_the_authority(
    type_: str, operator: str | list[str], actor: str, target: str, code: str
) -> None:
    if type_ == "Move":
        world = club(moves=[path("MEMBER", "BLOCKED", operator)])
        assert world.code(actor, type_, move(target, "MEMBER", "BLOCKED")) == code
    else:
        world = club(grants=[grant(type_, operator, "dataview")])
        assert world.code(actor, type_, give(target, "dataview")) == code


def test_authority_of_a_state_in_another_entry_lifts_the_rank() -> None:
    world = club(moves=[path("MEMBER", "BLOCKED", "admin"), path("MEMBER", "BLOCKED", "MEMBER")])
    assert world.code("adam", "Move", move("olga", "MEMBER", "BLOCKED")) == ""


def test_authority_of_a_state_behind_a_closed_gate_does_not_lift_the_rank() -> None:
    moves = [path("MEMBER", "BLOCKED", "admin"), path("MEMBER", "BLOCKED", "MEMBER", **gated("all", "owner"))]
    world = club(moves=moves)
    world.send("olga", "Gate", {"alias": "all", "state": "closed"})
    assert is_(world.refused("adam", "Move", move("olga", "MEMBER", "BLOCKED")), RankInsufficient)


def test_authority_of_a_state_whose_scope_misses_the_target_does_not_lift_the_rank() -> None:
    world = club(grants=[grant("Grant", "admin", "muted"), grant("Grant", "MEMBER", "muted", "PENDING")])
    assert is_(world.refused("adam", "Grant", give("olga", "muted")), RankInsufficient)


def test_the_rank_of_an_identity_is_its_best_trait() -> None:
    people = init(**PEOPLE | {"anna": "MEMBER muted admin dataview", "mute": "MEMBER muted dataview"})
    world = club(init=people, moves=[path("MEMBER", "BLOCKED", ["admin", "muted"])])
    assert world.code("anna", "Move", move("mute", "MEMBER", "BLOCKED")) == ""
    assert world.code("adam", "Move", move("mute", "MEMBER", "BLOCKED")) == ""
    for name in ("adam", "mute"):
        assert is_(world.refused(name, "Move", move("anna", "MEMBER", "BLOCKED")), RankInsufficient)


def test_an_outsider_with_a_trait_is_ranked_too() -> None:
    world = club(moves=[path("OUTSIDER", "BLOCKED", ["admin", "dataview"])])
    assert is_(world.refused("dave", "Move", move("dora", "OUTSIDER", "MEMBER")), Unauthorized)
    assert world.code("adam", "Move", move("dave", "OUTSIDER", "BLOCKED")) == ""
    world = club(init=init(**PEOPLE, dora="OUTSIDER dataview"), moves=[path("OUTSIDER", "BLOCKED", "dataview")])
    assert is_(world.refused("dave", "Move", move("dora", "OUTSIDER", "BLOCKED")), RankInsufficient)


# Grant and Revoke


def test_grant_sets_the_bit_of_the_trait() -> None:
    world = club(grants=[grant("Grant", "owner", "admin muted", "MEMBER OUTSIDER")])
    world.send("olga", "Grant", give("mute", "admin"))
    assert world.bitmask("mute") == MEMBER | ADMIN | MUTED
    world.send("olga", "Grant", give("otto", "muted"))
    assert world.bitmask("otto") == MUTED
    assert world.effects.endpoints == ()


def test_grant_of_a_held_trait_changes_nothing() -> None:
    world = club(grants=[grant("Grant", "owner", "muted")])
    before = world.state_hash
    world.send("olga", "Grant", give("mute", "muted"))
    assert (world.bitmask("mute"), world.state_hash) == (MEMBER | MUTED, before)


def test_revoke_clears_the_bit_and_ends_the_endpoint() -> None:
    world = club(grants=[grant("Revoke", "owner", "admin")])
    world.send("olga", "Revoke", give("adam", "admin"))
    assert world.bitmask("adam") == MEMBER
    assert world.effects.endpoints == (ended("adam", "admin"),)


def test_revoke_of_a_missing_trait_changes_nothing() -> None:
    world = club(grants=[grant("Revoke", "owner", "dataview", "MEMBER OUTSIDER")])
    before = world.state_hash
    world.send("olga", "Revoke", give("mute", "dataview"))
    world.send("olga", "Revoke", give("otto", "dataview"))
    assert (world.bitmask("mute"), world.bitmask("otto"), world.state_hash) == (MEMBER | MUTED, 0, before)


def test_self_may_step_down_whatever_the_rank_but_not_pull_others_down() -> None:
    world = club(grants=[grant("Revoke", "Self", "owner admin")])
    assert is_(world.refused("adam", "Revoke", give("anna", "admin")), Unauthorized)
    world.send("adam", "Revoke", give("adam", "admin"))
    world.send("olga", "Revoke", give("olga", "owner"))
    assert (world.bitmask("adam"), world.bitmask("olga")) == (MEMBER, MEMBER)


def test_grant_with_endpoint_registers_it() -> None:
    world = club(grants=[grant("Grant", "owner", "dataview", "OUTSIDER")])
    world.send("olga", "Grant", give("dave", "dataview", endpoint="https://example.org/push"))
    assert world.effects.endpoints == (EndpointChange(person("dave").public, "dataview", "https://example.org/push"),)
    assert world.bitmask("dave") == DATAVIEW


@pytest.mark.parametrize("endpoint", ["x", "https://example.org/" + "x" * 2028])
def test_an_endpoint_has_1_to_2048_characters(endpoint: str) -> None:
    world = club(grants=[grant("Grant", "owner", "dataview", "OUTSIDER")])
    world.send("olga", "Grant", give("otto", "dataview", endpoint=endpoint))
    assert world.effects.endpoints[0].url == endpoint


@pytest.mark.parametrize("endpoint", ["", "x" * 2049, 7, True, None, [], {}])
def test_another_endpoint_is_refused(endpoint: Any) -> None:
    world = club(grants=[grant("Grant", "owner", "dataview", "OUTSIDER")])
    assert is_(world.refused("olga", "Grant", give("otto", "dataview", endpoint=endpoint)), InvalidEndpointUrl)


def test_a_revoke_ignores_an_endpoint() -> None:
    world = club(grants=[grant("Revoke", "owner", "dataview", "OUTSIDER")])
    world.send("olga", "Revoke", give("dave", "dataview", endpoint=7))
    assert world.effects.endpoints == (ended("dave", "dataview"),)


@pytest.mark.parametrize("type_", ["Grant", "Revoke"])
def test_a_target_outside_the_scope_is_refused(type_: str) -> None:
    world = club(grants=[grant(type_, "owner", "muted", "MEMBER PENDING")])
    for name in ("blake", "otto", "dave"):
        assert is_(world.refused("olga", type_, give(name, "muted")), InvalidStateForGrant)
    for name in ("mark", "pete"):
        assert world.code("olga", type_, give(name, "muted")) == ""


@pytest.mark.parametrize("type_", ["Grant", "Revoke"])
def test_a_scope_counts_only_in_an_entry_that_authorises(type_: str) -> None:
    world = club(grants=[grant(type_, "owner", "muted"), grant(type_, "admin", "muted", "PENDING")])
    assert is_(world.refused("olga", type_, give("pete", "muted")), InvalidStateForGrant)
    assert is_(world.refused("adam", type_, give("mark", "muted")), InvalidStateForGrant)
    assert world.code("adam", type_, give("pete", "muted")) == ""


@pytest.mark.parametrize("type_", ["Grant", "Revoke"])
@pytest.mark.parametrize("trait", ["admin", "nothing", "MEMBER", "muted(2)", ""])
def test_a_trait_that_no_entry_names_is_unauthorized(type_: str, trait: str) -> None:
    world = club(grants=[grant(type_, "owner", "muted")])
    assert is_(world.refused("olga", type_, give("mark", trait)), Unauthorized)


def test_a_grant_entry_says_nothing_about_revoke_nor_the_other_way_round() -> None:
    world = club(grants=[grant("Grant", "owner", "muted"), grant("Revoke", "owner", "admin")])
    assert is_(world.refused("olga", "Revoke", give("mute", "muted")), Unauthorized)
    assert is_(world.refused("olga", "Grant", give("mark", "admin")), Unauthorized)


def test_a_denied_grant_is_unauthorized() -> None:
    world = club(grants=[grant("Grant", "MEMBER", "muted"), grant("Grant", "muted", "muted", ops=["_C"])])
    assert world.code("mark", "Grant", give("mary", "muted")) == ""
    assert is_(world.refused("mute", "Grant", give("mary", "muted")), Unauthorized)


@pytest.mark.parametrize("type_", ["Grant", "Revoke"])
def test_grants_are_judged_authorised_then_state_then_rank(type_: str) -> None:
    people = init(**PEOPLE, boss="BLOCKED owner")
    world = club(init=people, grants=[grant(type_, "admin", "muted")])
    assert is_(world.refused("mark", type_, give("boss", "muted")), Unauthorized)
    assert is_(world.refused("adam", type_, give("boss", "muted")), InvalidStateForGrant)
    assert is_(world.refused("adam", type_, give("olga", "muted")), RankInsufficient)


def test_rank_comes_before_the_endpoint() -> None:
    world = club(grants=[grant("Grant", "admin", "muted")])
    assert is_(world.refused("adam", "Grant", give("olga", "muted", endpoint="")), RankInsufficient)
    assert is_(world.refused("adam", "Grant", give("mark", "muted", endpoint="")), InvalidEndpointUrl)


# Transfer

PASSES_ON = [{"trait": ["owner", "muted"], "scope": ["MEMBER", "PENDING"]}]


def test_transfer_moves_the_trait_and_ends_the_actors_endpoint() -> None:
    world = club(transfers=PASSES_ON)
    world.send("olga", "Transfer", give("adam", "owner"))
    assert (world.bitmask("olga"), world.bitmask("adam")) == (MEMBER, MEMBER | OWNER | ADMIN)
    assert world.effects.endpoints == (ended("olga", "owner"),)


def test_transfer_asks_no_rank() -> None:
    world = club(transfers=PASSES_ON)
    world.send("mute", "Transfer", give("olga", "muted"))
    assert (world.bitmask("mute"), world.bitmask("olga")) == (MEMBER, MEMBER | OWNER | MUTED)


@pytest.mark.parametrize(
    ("actor", "trait"),
    [
        ("mark", "owner"),
        ("adam", "owner"),
        ("olga", "muted"),
        ("adam", "admin"),
        ("olga", "nothing"),
        ("mute", "MEMBER"),
    ],
)
def test_transfer_is_for_holders_of_a_trait_that_may_be_passed_on(actor: str, trait: str) -> None:
    assert is_(club(transfers=PASSES_ON).refused(actor, "Transfer", give("pete", trait)), Unauthorized)


def test_transfer_to_oneself() -> None:
    assert is_(club(transfers=PASSES_ON).refused("olga", "Transfer", give("olga", "owner")), InvalidTransferTarget)


def test_transfer_of_what_the_target_holds() -> None:
    world = club(init=init(**PEOPLE, mick="BLOCKED muted"), transfers=PASSES_ON)
    assert is_(world.refused("mute", "Transfer", give("mick", "muted")), TraitAlreadyHeld)


@pytest.mark.parametrize("target", ["otto", "dave", "blake"])
def test_transfer_to_a_state_outside_the_scope(target: str) -> None:
    assert is_(club(transfers=PASSES_ON).refused("olga", "Transfer", give(target, "owner")), InvalidStateForTransfer)


def test_transfer_entries_speak_about_their_own_trait_only() -> None:
    transfers = [{"trait": "owner", "scope": "MEMBER"}, {"trait": "muted", "scope": "PENDING"}]
    world = club(init=init(**PEOPLE | {"olga": "MEMBER owner muted"}), transfers=transfers)
    assert is_(world.refused("olga", "Transfer", give("pete", "owner")), InvalidStateForTransfer)
    assert world.code("olga", "Transfer", give("pete", "muted")) == ""


# Gate

GATED_NOTE = rule("note", "MEMBER", "C", **gated("notes", "admin", "PENDING"))


def turn(state: str, alias: str = "notes") -> Json:
    return {"alias": alias, "state": state}


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

EVERYTHING: Json = {
    "moves": [path(a, b, "owner") for a in ["OUTSIDER", *STATES] for b in ["OUTSIDER", *STATES] if a != b]
    + [path("MEMBER", "BLOCKED", "admin"), path("BLOCKED", "MEMBER", "admin", **gated("mercy", "owner", "admin"))],
    "grants": [
        grant(type_, operator, trait, "OUTSIDER PENDING MEMBER")
        for type_ in ("Grant", "Revoke")
        for operator, trait in [("owner", "owner admin dataview"), ("admin", "muted")]
    ],
    "transfers": [{"trait": ["owner", "muted"], "scope": ["MEMBER"]}],
}


def op(type_: str, content: Json) -> Json:
    return {"type": type_, **content}


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
        EndpointChange(person("otto").public, "dataview", "https://example.org/"),
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


# Shared and Own


def slot(key: str, value: Any) -> Json:
    return {"key": key, "value": value}


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

EDITABLE = [rule("note", "MEMBER", "C"), rule("note", "Sender", "U D"), rule("note", "admin", "U D")]
GONE = {"reason": "author"}


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


# Reading, push and notify


def event(type_: str, **selects: Any) -> Subject:
    return Subject(type_, **selects)


def rights(world: World, name: str, subject: Subject, *, is_author: bool = False) -> str:
    found = world.policy.rights(subject, world.bitmask(name), is_author=is_author, is_closed=lambda alias: False)
    return "".join(op for op in "RPN" if op in found)


def test_readers_read_what_they_name() -> None:
    readers = [{"type": "MEMBER", "reads": ["note", "Move"]}, {"type": ["admin", "PENDING"], "reads": "page"}]
    world = club(readers=readers)
    table = {"mark": ("note", "Move"), "adam": ("note", "Move", "page"), "pete": ("page",), "otto": ()}
    for name, types in table.items():
        for type_ in ("note", "Move", "page", "Manifest", "other"):
            assert rights(world, name, event(type_)) == ("R" if type_ in types else "")
            assert world.scope(name).of(type_) == ("all" if type_ in types else "none")
        assert bool(world.scope(name)) == bool(types)


def test_the_star_reads_everything_the_predefined_types_included() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "*"}])
    for type_ in ("note", "Reg_Node", *PREDEFINED):
        assert rights(world, "mark", event(type_)) == "R"
        assert world.scope("mark").of(type_) == "all"
        assert world.scope("otto").of(type_) == "none"
    assert world.scope("mark").others == "all"
    assert world.scope("otto").others == "none"


def test_public_reads_for_everybody() -> None:
    world = club(readers=[{"type": "Public", "reads": "note"}])
    assert rights(world, "otto", event("note")) == "R"


@pytest.mark.parametrize("context", ["Sender", "Self"])
def test_authors_read_what_they_wrote(context: str) -> None:
    world = club(readers=[{"type": context, "reads": "note"}])
    assert rights(world, "otto", event("note"), is_author=True) == "R"
    assert rights(world, "otto", event("note")) == ""
    assert rights(world, "otto", event("page"), is_author=True) == ""
    assert (world.scope("otto").of("note"), world.scope("otto").of("page")) == ("own", "none")
    assert world.scope("otto")


def test_others_own_and_a_type_that_is_denied() -> None:
    world = club(readers=[{"type": "Sender", "reads": "*"}], customs=[rule("secret", "Public", "_R")])
    scope = world.scope("otto")
    assert (scope.others, scope.of("note"), scope.of("secret")) == ("own", "own", "none")


def test_a_denied_reader_reads_the_rest() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "*"}], customs=[rule("note", "muted", "_R")])
    assert (rights(world, "mute", event("note")), rights(world, "mute", event("page"))) == ("", "R")
    assert (world.scope("mute").of("note"), world.scope("mute").of("page")) == ("none", "all")
    assert world.scope("mark").of("note") == "all"


def test_a_star_denial_takes_all_reading() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": ["*", "note"]}], customs=[rule("*", "muted", "_R")])
    assert rights(world, "mute", event("note")) == ""
    assert not world.scope("mute")
    assert world.scope("mark")


def test_a_denial_to_the_sender_hides_ones_own_events_only() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "note"}], customs=[rule("note", "Sender", "_R")])
    assert rights(world, "mark", event("note"), is_author=True) == ""
    assert rights(world, "mark", event("note")) == "R"
    assert world.scope("mark").of("note") == "some"


def test_p_and_n_are_given_and_denied_like_r() -> None:
    customs = [
        rule("note", "dataview", "P N"),
        rule("note", "MEMBER", "N"),
        rule("note", "muted", "_N"),
        rule("*", "admin", "P"),
    ]
    world = club(customs=customs, readers=[{"type": "MEMBER", "reads": "*"}])
    assert [rights(world, name, event("note")) for name in ("dave", "mark", "mute", "adam", "otto")] == [
        "PN",
        "RN",
        "R",
        "RPN",
        "",
    ]
    assert rights(world, "adam", event("Manifest")) == "RP"


def test_p_and_n_are_not_reading() -> None:
    world = club(customs=[rule("note", "dataview", "P N")])
    assert world.scope("dave").of("note") == "none"
    assert not world.scope("dave")


SELECTIVE: Json = {
    "slots": [rule("Shared", "MEMBER", "C R", key="open"), rule("Shared", "admin", "C", key="closed")],
    "moves": [path("OUTSIDER", "PENDING", "Self", "C R"), path("OUTSIDER", "MEMBER", "Self", "C P")],
    "grants": [grant("Grant", ["owner"], "muted", ops=["C", "N"]), grant("Grant", ["owner"], "admin")],
}


@pytest.mark.parametrize(
    ("name", "subject", "expected"),
    [
        ("mark", event("Shared", key="open"), "R"),
        ("mark", event("Shared", key="closed"), ""),
        ("adam", event("Shared", key="closed"), ""),
        ("mark", event("Own", key="open"), ""),
        ("otto", event("Shared", key="open"), ""),
        ("olga", event("Grant", trait="muted"), "N"),
        ("olga", event("Grant", trait="admin"), ""),
        ("olga", event("Revoke", trait="muted"), ""),
    ],
)
def test_selectors_of_slots_and_grants_select_for_reading_too(name: str, subject: Subject, expected: str) -> None:
    assert rights(club(**SELECTIVE), name, subject) == expected


def test_selectors_of_moves_select_for_reading_too() -> None:
    world = club(**SELECTIVE)
    pending, member = (
        event("Move", from_state="OUTSIDER", to_state="PENDING"),
        event("Move", from_state="OUTSIDER", to_state="MEMBER"),
    )
    assert rights(world, "otto", pending, is_author=True) == "R"
    assert rights(world, "otto", pending) == ""
    assert rights(world, "otto", member, is_author=True) == "P"
    assert rights(world, "otto", event("Move", from_state="MEMBER", to_state="PENDING"), is_author=True) == ""


def test_a_type_of_which_only_some_events_are_readable() -> None:
    world = club(**SELECTIVE)
    assert world.scope("mark").of("Shared") == "some"
    assert world.scope("otto").of("Shared") == "none"
    assert world.scope("otto").of("Move") == "some"
    assert world.scope("olga").of("Grant") == "none"


def test_the_subject_of_an_event_carries_its_selectors() -> None:
    world = club(**EVERYTHING, customs=EDITABLE, slots=[rule("Own", "Self", "C", key="nick")])
    moved = world.send("olga", "Move", move("otto", "OUTSIDER", "MEMBER"))
    given = world.send("olga", "Grant", give("otto", "admin"))
    own = world.send("mark", "Own", slot("nick", "m"))
    bundle = world.send("adam", "AC_Bundle", {"operations": [op("Grant", give("mark", "muted"))]})
    closed = world.send("adam", "Gate", turn("closed", "mercy"))
    passed = world.send("olga", "Transfer", give("mark", "owner"))
    assert [world.policy.subject(e, None) for e in (moved, given, own, bundle, closed, passed, world.events[0])] == [
        Subject("Move", from_state="OUTSIDER", to_state="MEMBER"),
        Subject("Grant", trait="admin"),
        Subject("Own", key="nick"),
        Subject("AC_Bundle"),
        Subject("Gate"),
        Subject("Transfer", trait="owner"),
        Subject("Manifest"),
    ]


def test_an_update_or_delete_counts_as_its_targets_type() -> None:
    customs = [*EDITABLE, rule("note", "dataview", "P"), rule("note", "PENDING", "N"), rule("page", "BLOCKED", "R P N")]
    world = club(customs=customs, readers=[{"type": "MEMBER", "reads": "note"}])
    note = world.send("mark", "note")
    update = world.send("mark", "Update", "new", tags=about(note))
    delete = world.send("mark", "Delete", GONE, tags=about(note))
    for revision in (update, delete):
        assert world.policy.subject(revision, Target("note", b"")) == Subject("note")
        found = [world.rights(name, revision, note) for name in ("mary", "dave", "pete", "blake", "otto")]
        assert found == ["R", "P", "N", "", ""]


def test_an_entry_that_names_update_matches_nothing() -> None:
    customs = [*EDITABLE, rule("Update", "PENDING", "R P N"), rule("Delete", "PENDING", "R P N")]
    world = club(customs=customs)
    note = world.send("mark", "note")
    update = world.send("mark", "Update", "new", tags=about(note))
    assert world.rights("pete", update, note) == ""


def test_rights_are_those_of_the_present_bitmask() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "*", "retention": "snapshot"}], customs=EDITABLE, **EVERYTHING)
    note = world.send("mark", "note")
    assert (world.rights("mary", note), world.rights("otto", note)) == ("R", "")
    world.send("olga", "Move", move("mary", "MEMBER", "BLOCKED"))
    world.send("olga", "Move", move("otto", "OUTSIDER", "MEMBER"))
    assert (world.rights("mary", note), world.rights("otto", note)) == ("", "R")


def test_without_readers_nobody_reads_not_even_the_author() -> None:
    world = club(customs=[rule("note", "Public", "C U D P N")], **EVERYTHING)
    note = world.send("olga", "note")
    for name in ("olga", "mark", "otto"):
        assert "R" not in world.rights(name, note)
        assert not world.scope(name)


@pytest.mark.parametrize(
    ("sections", "closed"),
    [
        pytest.param({"slots": [rule("Shared", "MEMBER", "_R", key="k")]}, "", id="only a selective denial"),
        pytest.param(
            {"slots": [rule("Shared", "MEMBER", "R", key="k", **gated("g", "owner"))]}, "g", id="behind a closed gate"
        ),
        pytest.param(
            {"slots": [rule("Shared", "MEMBER", "R", key="k")], "customs": [rule("*", "MEMBER", "_R")]},
            "",
            id="a selective permission under a general denial",
        ),
        pytest.param({"readers": [{"type": "MEMBER", "reads": ["Update", "Delete"]}]}, "", id="only revisions as such"),
    ],
)
def test_whoever_can_read_no_event_at_all_has_an_empty_scope(sections: Json, closed: str) -> None:
    world = club(**sections)
    if closed:
        world.send("olga", "Gate", turn("closed", closed))
    assert not world.scope("mark")


# Properties

COLUMNS = ["OUTSIDER", *STATES, "owner", "admin", "moderator", "muted", "dataview", "Public", "Self", "Sender"]
EVERYBODY = [*PEOPLE, "otto"]

columns = st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4)
ops = st.lists(st.sampled_from([*"CRUDPN", "_C", "_U", "_R"]), min_size=1, max_size=4).map(" ".join)
rules = st.lists(st.builds(rule, st.sampled_from(["note", "page"]), columns, ops), max_size=8)


@settings(deadline=None, max_examples=60)
@given(extra=st.dictionaries(st.sampled_from(list(PEOPLE)), st.sampled_from(COLUMNS[4:9])), data=st.data())
def test_a_policy_of_init_alone_allows_nothing_to_anybody(extra: dict[str, str], data: st.DataObject) -> None:
    texts = {
        name: text if extra.get(name, "x") in text else f"{text} {extra.get(name, '')}" for name, text in PEOPLE.items()
    }
    world = club(init=init(**texts))
    name, other = data.draw(st.sampled_from(EVERYBODY)), data.draw(st.sampled_from(EVERYBODY))
    state = ["OUTSIDER", *STATES][world.bitmask(other) & 0xFF]
    world.memory.targets[bytes(32)] = Target("note", person(name).public)
    tries: list[tuple[str, Any]] = [
        ("note", "text"),
        ("Move", move(other, state, data.draw(st.sampled_from(STATES)))),
        *((type_, give(other, trait)) for type_ in ("Grant", "Revoke", "Transfer") for trait in COLUMNS[4:9]),
        ("Gate", turn("closed")),
        ("Shared", slot("k", 1)),
        ("Own", slot("k", None)),
        ("Update", "x"),
        ("Delete", GONE),
        ("Pause", ""),
        ("Terminate", {}),
    ]
    for type_, content in tries:
        assert world.code(name, type_, content, tags=(("r", "00" * 32),)) == "UNAUTHORIZED"
    bundle = {"operations": [op(type_, content) for type_, content in tries[1:17]]}
    assert is_(world.refused(name, "AC_Bundle", bundle), ACBundleFailed, failed_index=0, reason="UNAUTHORIZED")
    if not world.bitmask(name) & OWNER:
        assert is_(world.refused(name, "Migrate", world.migrate("node2")), Unauthorized)
    assert not world.scope(name)
    assert world.rights(name, world.events[0]) == ""


def effective(world: World, name: str, *, is_author: bool) -> str:
    """All ops that someone has on notes."""
    world.memory.targets[bytes(32)] = Target("note", person(name if is_author else "nobody").public)
    tags = (("r", "00" * 32),)
    tries = {"C": ("note", ""), "U": ("Update", ""), "D": ("Delete", GONE)}
    found = {key for key, what in tries.items() if not world.code(name, *what, tags=tags)}
    return "".join(sorted(found | set(rights(world, name, event("note"), is_author=is_author))))


@settings(deadline=None, max_examples=120)
@given(
    entries=rules,
    name=st.sampled_from(EVERYBODY),
    is_author=st.booleans(),
    op_=st.sampled_from("CRUDPN"),
    data=st.data(),
)
def test_a_denial_to_one_column_takes_the_op_whatever_else_is_given(
    entries: list[Json], name: str, is_author: bool, op_: str, data: st.DataObject
) -> None:
    before = club(customs=entries)
    contexts = ["Sender", "Self"] if is_author and op_ != "C" else []
    column = data.draw(st.sampled_from(sorted(before.policy.columns_of(before.bitmask(name), contexts))))
    place = data.draw(st.integers(0, len(entries)))
    after = club(customs=[*entries[:place], rule("note", column, f"_{op_}"), *entries[place:]])
    had = effective(before, name, is_author=is_author)
    assert effective(after, name, is_author=is_author) == had.replace(op_, "")


@settings(deadline=None, max_examples=120)
@given(entries=rules, name=st.sampled_from(EVERYBODY), is_author=st.booleans())
def test_effective_is_what_some_entry_gives_less_what_any_denies(
    entries: list[Json], name: str, is_author: bool
) -> None:
    world = club(customs=entries)
    mask = world.bitmask(name)
    held = {STATES[(mask & 0xFF) - 1] if mask & 0xFF else "OUTSIDER", "Public"}
    held |= {trait for i, trait in enumerate(COLUMNS[4:9]) if mask >> 8 + i & 1}
    expected = set()
    for op_ in "CRUDPN":
        columns_ = held | ({"Sender", "Self"} if is_author and op_ != "C" else set())
        speaks = [set(e["ops"]) for e in entries if e["event"] == "note" and columns_ & set(e["operator"])]
        if any(op_ in e for e in speaks) and not any(f"_{op_}" in e for e in speaks):
            expected.add(op_)
    assert effective(world, name, is_author=is_author) == "".join(sorted(expected))


KINDS = [
    event("note"),
    event("Manifest"),
    *(event(type_, key=key) for type_ in ("Shared", "Own") for key in ("k", "l")),
    *(event("Move", from_state=a, to_state=b) for a, b in [("OUTSIDER", "MEMBER"), ("MEMBER", "PENDING")]),
    *(event(type_, trait=trait) for type_ in ("Grant", "Revoke") for trait in ("muted", "admin")),
]
who = st.sampled_from(["MEMBER", "muted", "Public", "Self", "Sender"])
reading = st.sampled_from(["R", "_R", "P", "R _P"])
speaking = st.fixed_dictionaries(
    {
        "readers": st.builds(
            lambda column, type_: {"type": column, "reads": type_}, who, st.sampled_from(["*", "note", "Move"])
        ),
        "slots": st.builds(
            lambda type_, *to: rule(type_, *to, key="k"), st.sampled_from(["Shared", "Own"]), who, reading
        ),
        "moves": st.builds(lambda *to: path("OUTSIDER", "MEMBER", *to), who, reading),
        "grants": st.builds(lambda column, ops: grant("Grant", column, "muted", ops=ops.split()), who, reading),
        "customs": st.builds(rule, st.sampled_from(["*", "Shared", "Move"]), who, reading),
    }
).map(lambda entries: entries.items())
"""One entry for each section that gives or denies reading, of a whole type or of a part of it."""


@settings(deadline=None, max_examples=200)
@given(entries=speaking, chosen=st.lists(st.sampled_from(["", "plain", "open", "closed"]), min_size=5, max_size=5))
def test_the_scope_says_what_the_rights_say(entries: list[tuple[str, Json]], chosen: list[str]) -> None:
    sections = {
        section: [entry | (gated(f"{how}{i}", "owner") if how != "plain" else {})]
        for i, ((section, entry), how) in enumerate(zip(entries, chosen, strict=True))
        if how
    }
    world = club(**sections)

    def is_closed(alias: str) -> bool:
        return alias.startswith("closed")

    for name in ("mark", "mute", "otto"):
        mask = world.bitmask(name)
        scope = world.policy.read_scope(mask, is_closed)
        readable = {
            (subject, is_author): "R" in world.policy.rights(subject, mask, is_author=is_author, is_closed=is_closed)
            for subject in KINDS
            for is_author in (False, True)
        }
        for (subject, is_author), allowed in readable.items():
            reach = scope.of(subject.type)
            assert allowed in {"all": (True,), "none": (False,), "own": (is_author,), "some": (True, False)}[reach]
        assert bool(scope) == any(readable.values())


names = st.sampled_from(["olga", "adam", "anna", "mute", "mark", "pete", "dave", "otto"])
states = st.sampled_from(["OUTSIDER", *STATES])
traits = st.sampled_from(["owner", "admin", "muted", "dataview"])
operations = st.one_of(
    st.builds(lambda name, to: op("Move", move(name, "as it is", to)), names, states),
    st.builds(lambda name, from_, to: op("Move", move(name, from_, to)), names, states, states),
    st.builds(lambda type_, *what: op(type_, give(*what)), st.sampled_from(["Grant", "Revoke"]), names, traits),
    st.builds(lambda *what: op("Transfer", give(*what)), names, st.sampled_from(["owner", "muted"])),
    st.builds(lambda name: op("Grant", give(name, "dataview", endpoint="https://example.org/")), names),
    st.builds(lambda state: op("Gate", turn(state, "mercy")), st.sampled_from(["open", "closed"])),
)


def one_by_one(world: World, actor: str, listed: list[Json]) -> tuple[int, str, list[EndpointChange]]:
    """How many operations succeed as single events, the code of the one that does not, and what they gave."""
    endpoints: list[EndpointChange] = []
    for i, operation in enumerate(listed):
        if operation.get("from") == "as it is":
            mask = view(world.state, world.memory).bitmask(bytes.fromhex(operation["target"]))
            operation["from"] = world.policy.state_of(mask)
        if code := world.code(actor, operation["type"], operation):
            return i, code, endpoints
        world.send(actor, operation["type"], operation)
        endpoints += world.effects.endpoints
    return len(listed), "", endpoints


@settings(deadline=None, max_examples=200)
@given(actor=st.sampled_from(["olga", "adam"]), listed=st.lists(operations, min_size=1, max_size=6))
def test_an_ac_bundle_equals_its_operations_one_by_one_or_changes_nothing(actor: str, listed: list[Json]) -> None:
    everyone = init(**PEOPLE | {"olga": "MEMBER owner admin"})
    singly, together = club(init=everyone, **EVERYTHING), club(init=everyone, **EVERYTHING)
    done, code, endpoints = one_by_one(singly, actor, listed)
    before, leaves = together.state, dict(together.state.pending)
    if code:
        error = together.refused(actor, "AC_Bundle", {"operations": listed})
        assert is_(error, ACBundleFailed, failed_index=done, reason=code)
        assert together.state is before
        assert together.state.pending == leaves
    else:
        together.send(actor, "AC_Bundle", {"operations": listed})
        assert together.state_hash == singly.state_hash
        assert list(together.effects.endpoints) == endpoints
        assert [together.bitmask(name) for name in EVERYBODY] == [singly.bitmask(name) for name in EVERYBODY]


def test_the_bitmask_of_init_is_state_and_traits() -> None:
    world = club()
    expected = {
        "olga": MEMBER | OWNER, "adam": MEMBER | ADMIN, "mona": MEMBER | MODERATOR, "mute": MEMBER | MUTED,
        "mark": MEMBER, "pete": PENDING, "blake": BLOCKED, "dave": DATAVIEW, "otto": 0,
    }  # fmt: skip
    assert {name: world.bitmask(name) for name in expected} == expected


def test_the_author_of_the_manifest_gets_no_right_by_that() -> None:
    world = club(customs=[rule("note", STATES, "C")])
    assert world.bitmask("alice") == 0
    assert is_(world.refused("alice", "note"), Unauthorized)


def test_an_identity_of_bitmask_zero_has_no_leaf() -> None:
    policy = parse_manifest(club().events[0].content or "")
    assert policy.state_of(0) == "OUTSIDER"
    assert len(club(init=init(**PEOPLE, zoe="OUTSIDER")).effects.writes) == len(PEOPLE) + 1
    assert club(init=init(**PEOPLE, zoe="OUTSIDER")).state_hash == club().state_hash
