"""Access control, version 2: Move, rank, Grant, Revoke and Transfer."""

from typing import Any

import pytest

from enc.core.errors import (
    InvalidEndpointUrl,
    InvalidStateForGrant,
    InvalidStateForTransfer,
    InvalidTransferTarget,
    RankInsufficient,
    StateMismatch,
    TraitAlreadyHeld,
    Unauthorized,
)
from enc.core.rules.policy_types import EndpointChange
from tests.core.rules.v2.access_club import (
    ADMIN,
    BLOCKED,
    DATAVIEW,
    MEMBER,
    MUTED,
    OWNER,
    PENDING,
    PEOPLE,
    club,
    ended,
    is_,
)
from tests.core.world import gated, give, grant, init, move, path, person

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
    assert world.effects.endpoints == (
        EndpointChange(person("dave").public, ("dataview",), "https://example.org/push"),
    )
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
