"""`enc dm` with a node that is down, a narrow terminal, or somebody who is not a contact."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from enc.cli.common.output import visible
from enc.client import Identity
from tests.cli.dm.mailboxes import Pair, thread_of, with_mailbox
from tests.cli.people import Person
from tests.node.running import RunningNode

QUICK = ("--timeout", "0.4")


class Far:
    """A node that can be stopped, and started again at the same address."""

    def __init__(self, data: Path) -> None:
        self.data, self.node = data, RunningNode(data)

    def leave(self) -> None:
        self.node.stop()

    def return_(self) -> None:
        self.node = RunningNode(self.data, "--port", str(urlsplit(self.node.url).port))


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    found = Far(tmp_path / "far")
    try:
        yield found
    finally:
        with suppress(ProcessLookupError):
            found.node.kill()


@pytest.fixture
def apart(tmp_path: Path, running_node: RunningNode, far: Far) -> Pair:
    """Return alice on the node of all tests, and bob on a node of his own."""
    alice, bob = with_mailbox(tmp_path / "alice", running_node), with_mailbox(tmp_path / "bob", far.node)
    for one, name, other, node in ((alice, "bob", bob, far.node), (bob, "alice", alice, running_node)):
        one.ask("me", "know", name, key(other), "--mailbox", other.mailbox, "--at", node.url)  # type: ignore[attr-defined]
    alice.ask("dm", "add", "bob", "--greeting", "hi, Bob")
    bob.ask("dm", "accept", "alice")
    bob.ask("dm", "send", "alice", "hello")
    return alice, bob


def key(person: Any) -> str:
    return str(person.hex)


def test_what_waits_for_a_node_is_neither_lost_nor_mistaken(apart: Pair, far: Far) -> None:
    alice, bob = apart
    alice.ask("dm", "send", "bob", "C")
    far.leave()
    kept = alice.refused("dm", "send", "bob", "D", *QUICK, code=3)
    assert (kept["code"], kept["kept"]) == ("UNREACHABLE", True)
    shown = alice.ask("dm", "send", "bob", "E", *QUICK, code=3).stderr
    assert "is stored: `enc dm repair`, or the next `enc dm chat` with them, sends it\n" in shown
    assert "has not arrived yet: `enc dm repair` first" in alice.refused("dm", "edit", "bob", "D2", code=2)["message"]
    (left,) = alice.ask_json("dm", "repair", *QUICK, code=3)
    assert left["delivered"] == []
    assert [(each["text"], each["code"], each["pending"]) for each in left["failed"]] == [
        ("D", "UNREACHABLE", True),
        ("E", "UNREACHABLE", True),
    ]
    lines = alice.ask("dm", "repair", *QUICK, code=3).stdout.splitlines()
    assert lines == ["bob: D: still pending, UNREACHABLE", "bob: E: still pending, UNREACHABLE"]
    far.return_()
    assert alice.ask("dm", "repair").stdout.splitlines() == ["bob: D: delivered", "bob: E: delivered"]
    assert alice.ask("dm", "repair").stdout == "nothing is pending\n"
    alice.ask("dm", "edit", "bob", "E2")
    assert [text for text, *_ in thread_of(bob, "alice")[-3:]] == ["C", "D", "E2"]


def test_an_error_says_whose_node_is_away(apart: Pair, far: Far) -> None:
    alice, bob = apart
    far.leave()
    url = far.node.url
    error = alice.refused("dm", "send", "bob", "D", *QUICK, code=3)
    assert error["message"].startswith(f"the node of bob ({key(bob)[:8]}…), {url}, does not answer: cannot reach {url}")
    assert (error["contact"], error["node"]) == (key(bob), url)
    alice.ask("me", "forget", "bob")
    shown = alice.ask("dm", "send", key(bob), "E", *QUICK, code=3).stderr
    assert shown.startswith(f"enc: UNREACHABLE: the node of {key(bob)}, {url}, does not answer: ")
    assert "enc up" not in shown, "the hint is about one's own node"
    shown = bob.ask("dm", "send", "alice", "x", *QUICK, code=3).stderr
    assert shown.startswith(f"enc: UNREACHABLE: your own node does not answer: cannot reach {url}")
    assert "enc up" in shown


def test_what_is_refused_in_the_end_is_said(apart: Pair, far: Far) -> None:
    alice, bob = apart
    far.leave()
    alice.ask("dm", "send", "bob", "D", *QUICK, code=3)
    far.return_()
    bob.ask("dm", "block", "alice")
    assert alice.ask("dm", "repair", code=1).stdout == "bob: D: refused, UNAUTHORIZED\n"


def test_one_s_own_node_keeps_nothing_while_it_is_away(apart: Pair, far: Far) -> None:
    _, bob = apart
    far.leave()
    lost = bob.refused("dm", "send", "alice", "x", *QUICK, code=3)
    assert (lost["code"], lost["kept"]) == ("UNREACHABLE", False)
    assert "nothing was stored" in bob.ask("dm", "edit", "alice", "x", *QUICK, code=3).stderr
    far.return_()
    assert bob.ask("dm", "repair").stdout == "nothing is pending\n"


def test_somebody_who_went_is_invited_again(pair: Pair) -> None:
    alice, bob = pair
    bob.ask("dm", "remove", "alice")
    alice.ask("dm", "add", "bob", "--greeting", "again?")
    assert [each["greeting"] for each in bob.ask_json("dm", "invites")] == ["again?"]
    bob.ask("dm", "invitations", "closed")
    assert bob.ask("dm", "invitations").stdout == "closed\n"
    assert alice.refused("dm", "add", "bob", code=1)["code"] == "GATE_CLOSED"
    bob.ask("dm", "block", "alice")
    assert alice.refused("dm", "add", "bob", code=1)["code"] == "UNAUTHORIZED"


def test_people_are_named(pair: Pair) -> None:
    alice, _ = pair
    assert alice.ask("dm", "unblock", "bob", code=2).stderr == "enc: bob is not blocked\n"
    stranger = Identity.new().hex
    assert alice.refused("dm", "unblock", stranger, code=2)["message"] == f"{stranger} is not blocked"
    assert f"no messages with {stranger}" in alice.refused("dm", "read", stranger, code=2)["message"]
    message = alice.refused("dm", "send", stranger, "x", code=2)["message"]
    assert "--mailbox ID" in message
    assert "--at URL" in message
    assert alice.ask("dm", "rotate", "bob").stdout == "epoch 1 is sent to bob with your next message\n"
    alice.ask("dm", "block", "bob")
    assert alice.ask("dm", "send", "bob", "x").stderr == "you have blocked bob: they cannot answer\n"


def test_no_command_about_somebody_is_without_yes(pair: Pair) -> None:
    alice, _ = pair
    for word in "add accept decline remove block unblock rotate send edit retract delete read chat".split():
        assert "--yes" in alice.ask("dm", word, "--help").stdout, word
    for word in "notify grant revoke whois".split():
        assert "--yes" in alice.ask("me", word, "--help").stdout, word


def test_a_narrow_terminal_shows_the_key(pair: Pair) -> None:
    alice, bob = pair
    narrow = alice.ask("dm", "contacts", FORCE_COLOR="1", COLUMNS="50").stdout
    assert f"key       {key(bob)}\n" in narrow
    assert "who       bob\n" in narrow
    wide = alice.ask("dm", "contacts", FORCE_COLOR="1", COLUMNS="150").stdout
    assert len(wide.splitlines()) == 2


def test_an_emoji_of_several_is_shown_whole() -> None:
    family, heart = "👩\u200d👩\u200d👧", "\u2764\ufe0f\u200d🔥"
    assert visible(f"{family} {heart}\x1b") == f"{family} {heart}\\x1b"
    assert visible("ad\u200dmin") == "ad\\u200dmin"


def test_another_mailbox_is_created_on_purpose_alone(strangers: Pair) -> None:
    alice, _ = strangers
    assert "--again" in alice.refused("dm", "create", code=2)["message"]
    (made,) = alice.ask_json("dm", "create", "--again")
    assert made["mailbox"] != alice.mailbox  # type: ignore[attr-defined]
    assert json.loads(alice.ask("dm", "status", "--json").stdout)["mailbox"] == made["mailbox"]


def test_a_node_without_the_mailbox_is_named(strangers: Pair, running_node: RunningNode) -> None:
    alice: Person = strangers[0]
    assert running_node.url in alice.refused("dm", "use", "ab" * 32, code=1)["message"]
