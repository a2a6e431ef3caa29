"""Which epochs count: with each condition broken alone, everyone ignores the epoch."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from enc.apps.group import GroupFold, Keys
from enc.client import Identity
from enc.core.primitives.encoding import compact_json
from tests.apps.group.circle import Circle, Json, pubkey
from tests.core.world import NO_POINT, START, give, move, person

EVERYBODY = ("", "alice", "bob", "carol", "dave", "erin")
FAR = str(START + 3_000_000)


@pytest.fixture
def circle() -> Circle:
    """Six members, bob is an admin too; dave has just left, so that the next epoch fills and
    climbs.
    """
    circle = Circle("bob", "carol", "dave", "erin", "frank", "grace")
    circle.send("alice", "Grant", give("bob", "admin"))
    circle.send("dave", "Move", move("dave", "MEMBER", "OUTSIDER"))
    return circle


def ignored(circle: Circle, why: str) -> None:
    """Check that the last event's epoch counts for nobody, and that the next one counts."""
    for name in EVERYBODY:
        fold = circle.fold(name)
        view = fold.epochs.views[-1]
        assert view.seq == circle.events[-1].seq
        assert not view.counts
        assert why in view.why, view.why
        assert len(fold.epochs.counted) == len(circle.public.epochs.counted)
    before = len(circle.public.epochs.counted)
    circle.rotate("alice")
    assert len(circle.public.epochs.counted) == before + 1
    for name in ("alice", "bob", "carol", "erin"):
        assert circle.fold(name).epochs.secret(before) is not None


def test_an_epoch_with_nothing_wrong_counts(circle: Circle) -> None:
    assert circle.public.is_stale
    circle.rotate("bob")
    assert circle.public.epochs.views[-1].counts
    assert not circle.public.is_stale
    envelope = circle.public.epochs.counted[-1].envelope
    assert envelope.fill
    assert len(envelope.path) >= 2


def other(hex_: str) -> str:
    return pubkey("mallory").hex() if hex_ != pubkey("mallory").hex() else pubkey("alice").hex()


def _n(epoch: Json) -> None:
    epoch["n"] += 1


def _n_again(epoch: Json) -> None:
    epoch["n"] -= 1


def _members(epoch: Json) -> None:
    epoch["members"] = "00" * 32


def _self(epoch: Json) -> None:
    epoch["self"]["to"] = other(epoch["self"]["to"])


def _eph(epoch: Json) -> None:
    epoch["eph"] = NO_POINT


def _fewer_fills(epoch: Json) -> None:
    epoch["fill"] = epoch["fill"][:-1]


def _more_fills(epoch: Json) -> None:
    epoch["fill"] = [*epoch["fill"], epoch["fill"][0]]


def _fill_to(epoch: Json) -> None:
    epoch["fill"][0]["wraps"][0]["to"] = other("")


def _fill_order(epoch: Json) -> None:
    epoch["fill"][0]["wraps"].reverse()


def _fill_pub(epoch: Json) -> None:
    epoch["fill"][0]["pub"] = NO_POINT


def _path_short(epoch: Json) -> None:
    epoch["path"] = epoch["path"][:-1]


def _path_long(epoch: Json) -> None:
    epoch["path"] = [*epoch["path"], epoch["path"][0]]


def _path_to(epoch: Json) -> None:
    epoch["path"][0]["wrap"]["to"] = other("")


def _path_pub(epoch: Json) -> None:
    epoch["path"][0]["pub"] = NO_POINT


def _form(epoch: Json) -> None:
    epoch["path"][0]["pub"] = 7


BREAKS: list[tuple[Callable[[Json], None], str]] = [
    (_n, "epoch.n"),
    (_n_again, "epoch.n"),
    (_members, "epoch.members"),
    (_self, "epoch.self.to"),
    (_eph, "epoch.eph"),
    (_fewer_fills, "epoch.fill"),
    (_more_fills, "epoch.fill"),
    (_fill_to, "epoch.fill[0].wraps"),
    (_fill_order, "epoch.fill[0].wraps"),
    (_fill_pub, "epoch.fill[0].pub"),
    (_path_short, "epoch.path"),
    (_path_long, "epoch.path"),
    (_path_to, "epoch.path[0].wrap.to"),
    (_path_pub, "epoch.path[0].pub"),
    (_form, "path[0].pub"),
]


@pytest.mark.parametrize(("alter", "why"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_what_tree_and_state_dictate(circle: Circle, alter: Callable[[Json], None], why: str) -> None:
    epoch = deepcopy(circle.propose("bob", circle.members))
    alter(epoch)
    circle.send("bob", "rotate", {"epoch": epoch})
    ignored(circle, why)


def test_the_author_is_an_admin_after_the_event(circle: Circle) -> None:
    epoch = circle.propose("bob", circle.members)
    operation = {"type": "Revoke", "target": pubkey("bob").hex(), "trait": "admin"}
    circle.send("bob", "AC_Bundle", {"operations": [operation], "epoch": epoch})
    ignored(circle, "not an admin")


def test_the_author_is_a_member_after_the_event(circle: Circle) -> None:
    epoch = circle.propose("bob", circle.members)
    circle.send("bob", "Move", move("bob", "MEMBER", "OUTSIDER", epoch=epoch))
    for name in EVERYBODY:
        assert "not an admin" in circle.fold(name).epochs.views[-1].why


def test_who_is_no_admin_makes_no_epoch_by_a_move_of_their_own(circle: Circle) -> None:
    circle.open("auto_join")
    after = circle.members | {pubkey("dave")}
    circle.send("dave", "Move", move("dave", "OUTSIDER", "MEMBER", epoch=circle.propose("dave", after)))
    assert "not an admin" in circle.public.epochs.views[-1].why


def test_the_members_are_those_after_the_event(circle: Circle) -> None:
    """A Move whose epoch leaves out the member it admits; and one after a member joined by
    themselves.
    """
    circle.send("bob", "Move", move("dave", "OUTSIDER", "MEMBER", epoch=circle.propose("bob", circle.members)))
    ignored(circle, "epoch.members")


def test_what_is_deleted_by_itself_carries_no_epoch(circle: Circle) -> None:
    epoch = circle.propose("bob", circle.members)
    circle.send("bob", "rotate", {"epoch": epoch}, tags=(("auto-delete", FAR),))
    ignored(circle, "auto-delete")


def test_the_content_is_strict_json(circle: Circle) -> None:
    epoch = circle.propose("bob", circle.members)
    circle.send("bob", "rotate", f'{{"epoch":{compact_json(epoch)},"x":1,"x":2}}')
    ignored(circle, "repeated")


@pytest.mark.parametrize(("content", "why"), [("no JSON", "not JSON"), ("[]", "object"), ("{}", "missing")])
def test_a_rotate_without_an_epoch(circle: Circle, content: str, why: str) -> None:
    circle.send("bob", "rotate", content)
    ignored(circle, why)


def test_an_epoch_of_an_operation_is_no_epoch_but_one_beside_the_operations_is(circle: Circle) -> None:
    after = circle.members | {pubkey("heidi")}
    epoch = circle.propose("bob", after)
    inside: dict[str, Any] = {"type": "Move", **move("heidi", "OUTSIDER", "MEMBER")}
    views = len(circle.public.epochs.views)
    circle.send("bob", "AC_Bundle", {"operations": [{**inside, "epoch": epoch}]})
    assert len(circle.public.epochs.views) == views
    assert circle.public.is_stale
    again = {"type": "Grant", "target": pubkey("carol").hex(), "trait": "muted"}
    circle.send("bob", "AC_Bundle", {"operations": [again], "epoch": epoch})
    assert circle.public.epochs.views[-1].counts
    assert circle.fold("heidi").can_seal


def test_a_secret_that_does_not_fit_changes_nothing_for_the_others_but_is_told(circle: Circle) -> None:
    """carol's wrap is invalid: the epoch counts, she reports it, and can seal nothing under it.

    The same for later ones that are sealed to the node whose key she lacks; admitting her again
    gives her all of them.
    """
    epoch = deepcopy(circle.propose("bob", circle.members))
    for wrap in [r["wrap"] for r in epoch["path"]] + [w for f in epoch["fill"] for w in f["wraps"]]:
        if wrap["to"] == pubkey("carol").hex():
            wrap["ct"] = "A" * 80
    circle.send("bob", "rotate", {"epoch": epoch})
    assert all(circle.fold(name).epochs.views[-1].counts for name in EVERYBODY)
    carol = circle.fold("carol")
    assert carol.epochs.views[-1].trouble
    assert not carol.can_seal
    assert circle.fold("alice").can_seal
    circle.move("alice", "carol", "MEMBER", "OUTSIDER")
    circle.move("alice", "carol", "OUTSIDER", "MEMBER")
    assert circle.fold("carol").can_seal


def test_a_sub_key_alone_opens_what_is_wrapped_to_it(circle: Circle) -> None:
    sub = Identity(person("carol")).sub_key()
    circle.rotate("bob", subs={pubkey("carol"): sub.public})
    circle.say("alice", "to both")
    fold = GroupFold(Keys(pubkey("carol"), None, sub))
    for event in circle.events:
        fold.apply(event)
    assert fold.epochs.views[-1].is_open
    assert not fold.epochs.views[-2].is_open
    assert [entry.text for entry in fold.messages.all()] == ["to both"]


def test_a_handoff_opens_the_epoch_of_its_event_if_it_fits(circle: Circle) -> None:
    """A handoff for a reader who could not open the epoch from the log: here one without any
    key.
    """
    event = circle.rotate("bob")
    epoch = circle.fold("alice").epochs.secret(circle.public.epochs.state.n)
    assert epoch is not None
    wrong = person("mallory")
    fold = GroupFold(Keys(pubkey("carol"), None, wrong))
    for each in circle.events:
        fold.apply(each)
    assert not fold.can_seal
    assert not fold.epochs.add_handoff(event.id, bytes(32))
    assert not fold.epochs.add_handoff(circle.events[0].id, epoch.root_secret)
    assert fold.epochs.add_handoff(event.id, epoch.root_secret)
    assert fold.can_seal
