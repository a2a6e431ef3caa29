"""The event-operator matrix of a mailbox and its State transitions, cell by cell, on a real node
over HTTP.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from enc.client import Client, Enclave, Identity
from enc.core.errors import PeerError
from tests.client.moved import Town
from tests.core.rules.v2.matrices import DM_MATRIX, expected

STATES = ("OWNER", "OUTSIDER", "FRIEND", "BLOCKED")
WRITERS = {"invite": "OUTSIDER", "message": "FRIEND"}
"""Events that others than the owner write: the author must have the right State when it writes."""


class Mailbox:
    """A new mailbox, and everyone's view of it."""

    def __init__(self, town: Town, stack: ExitStack) -> None:
        self._url, self._stack = town.nodes["a"].url, stack
        self.owner = self._client().create("dm")

    def _client(self) -> Client:
        return self._stack.enter_context(Client(self._url, Identity.new(), pins=None, patience=0.0))

    def somebody(self, state: str) -> "Enclave":
        if state == "OWNER":
            return self.owner
        view = self._client().enclave(self.owner.id)
        self.become(view, "OUTSIDER", state)
        return view

    def become(self, view: Enclave, from_: str, to: str) -> None:
        """Move a person by the manifest's path, which is never longer than one step."""
        if from_ != to:
            self.owner.move(who(view), from_, to)


def who(view: Enclave) -> bytes:
    return view._client.identity.public


@pytest.fixture
def mailbox(two_nodes: Town) -> Iterator[Mailbox]:
    with ExitStack() as stack:
        yield Mailbox(two_nodes, stack)


def code(call: Callable[[], Any]) -> str:
    """Return the code of the refusal; "" if it was allowed."""
    try:
        call()
    except PeerError as e:
        return e.code
    return ""


def is_taken(call: Callable[[], Any], refusal: str = "UNAUTHORIZED") -> bool:
    found = code(call)
    assert found in ("", refusal)
    return not found


def reads(view: Enclave, event: bytes) -> bool:
    """A reader without any rights gets an error; one with some rights, but not this, gets an empty
    answer.
    """
    return is_taken(lambda: view.event(event)) and view.event(event) is not None


def creating(mailbox: Mailbox, event: str, view: Enclave) -> Callable[[], Any]:
    """Return the call that writes such an event."""
    if event == "Gate(invites)":
        return lambda: view.gate("invites", open=False)
    if event == "Terminate":
        return view.terminate
    if event.startswith("Move"):
        from_, to = re.findall("[A-Z]{3,}", event)
        target = who(mailbox.somebody(from_))
        return lambda: view.move(target, from_, to)
    return lambda: view.commit(event, "sealed", tags=[("to", "00" * 32)])


def made(mailbox: Mailbox, event: str, author: Enclave, state: str) -> bytes:
    """Return an event by `author`, who has the State `state` afterwards."""
    needed = WRITERS.get(event, "OWNER")
    if author is not mailbox.owner:
        mailbox.become(author, state, needed)
    found: bytes = creating(mailbox, event, author)().id
    if author is not mailbox.owner:
        mailbox.become(author, needed, state)
    return found


def revising(view: Enclave, event: bytes, refusal: str) -> set[str]:
    found = {"U"} if is_taken(lambda: view.update(event, "anew"), refusal) else set()
    return found | ({"D"} if is_taken(lambda: view.delete(event), refusal) else set())


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", DM_MATRIX)
def test_cell(mailbox: Mailbox, event: str, state: str) -> None:
    """What each person may do to an event of another; the owner's events are always only the
    owner's.
    """
    view = mailbox.somebody(state)
    author = mailbox.somebody(WRITERS[event]) if event in WRITERS else mailbox.owner
    found = set[str]()
    if event != "Terminate":  # there is one, and it is the last
        subject = made(mailbox, event, author, WRITERS.get(event, "OWNER"))
        found |= {"R"} if reads(view, subject) else set()
        found |= revising(view, subject, "UNAUTHORIZED" if event.islower() else "INVALID_TARGET")
        if event == "Gate(invites)":
            mailbox.owner.gate("invites", open=True)
    create = creating(mailbox, event, view)
    if is_taken(create):
        found.add("C")
    if event == "Terminate":
        if "C" not in found:
            mailbox.owner.terminate()
        last = next(mailbox.owner.query(type="Terminate"))
        found |= {"R"} if reads(view, last.id) else set()
    assert found == set(expected(DM_MATRIX[event], [state]))


@pytest.mark.parametrize("state", ["OUTSIDER", "FRIEND", "BLOCKED"])
@pytest.mark.parametrize("event", WRITERS)
def test_cell_of_the_author(mailbox: Mailbox, event: str, state: str) -> None:
    """What an author may do to its own event, in any later State."""
    for op, act in (("U", lambda view, id_: view.update(id_, "anew")), ("D", lambda view, id_: view.delete(id_))):
        view = mailbox.somebody(state)
        subject = made(mailbox, event, view, state)
        assert not reads(view, subject)
        assert is_taken(lambda: act(view, subject)) == (op in expected(DM_MATRIX[event], [state, "Sender"]))  # noqa: B023


TRANSITIONS = [(a, b) for a in ("OUTSIDER", "FRIEND", "BLOCKED") for b in ("OUTSIDER", "FRIEND", "BLOCKED", "OWNER")]
ALLOWED = {tuple(re.findall("[A-Z]{3,}", event)) for event in DM_MATRIX if event.startswith("Move")}


@pytest.mark.parametrize(("from_", "to"), TRANSITIONS)
@pytest.mark.parametrize("state", [*STATES, "themselves"])
def test_transition(mailbox: Mailbox, from_: str, to: str, state: str) -> None:
    """Every possible Move, by everyone: six are the owner's, and there are no others."""
    target = mailbox.somebody(from_)
    actor = target if state == "themselves" else mailbox.somebody(state)
    is_allowed = state == "OWNER" and (from_, to) in ALLOWED
    assert is_taken(lambda: actor.move(who(target), from_, to)) == is_allowed
    writes = is_taken(lambda: target.commit("message", "x"))
    assert writes == ((to if is_allowed else from_) == "FRIEND")


def test_there_are_six_transitions() -> None:
    assert len(ALLOWED) == 6


def test_a_move_says_where_from(mailbox: Mailbox) -> None:
    frank = mailbox.somebody("FRIEND")
    assert code(lambda: mailbox.owner.move(who(frank), "OUTSIDER", "BLOCKED")) == "STATE_MISMATCH"
    assert code(lambda: mailbox.owner.move(who(mailbox.owner), "OWNER", "FRIEND")) == "UNAUTHORIZED"


def test_the_gate(mailbox: Mailbox) -> None:
    """A closed gate is closed for everyone, and does not affect messages."""
    otto, frank = mailbox.somebody("OUTSIDER"), mailbox.somebody("FRIEND")
    mailbox.owner.gate("invites", open=False)
    assert code(lambda: otto.commit("invite", "hi")) == "GATE_CLOSED"
    assert code(lambda: frank.commit("message", "x")) == ""
    mailbox.owner.gate("invites", open=True)
    assert code(lambda: otto.commit("invite", "hi")) == ""


def test_what_is_deleted_is_revised_no_more(mailbox: Mailbox) -> None:
    frank = mailbox.somebody("FRIEND")
    subject = frank.commit("message", "x").id
    mailbox.owner.delete(subject, reason="moderator")
    assert code(lambda: frank.update(subject, "y")) == code(lambda: frank.delete(subject)) == "EVENT_DELETED"
