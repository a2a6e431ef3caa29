"""`enc dm`: two people at their terminals, who write to each other through a node."""

import json
from pathlib import Path

import pytest

from enc.cli.common import profiles
from tests.cli.dm.mailboxes import Pair, know, thread_of
from tests.cli.people import Person


def test_from_an_invitation_to_a_conversation(strangers: Pair) -> None:
    alice, bob = strangers
    assert alice.ask("dm", "invites").stdout == ""
    know(alice, "bob", bob)
    assert alice.ask("dm", "add", "bob", "--greeting", "hi, Bob").stdout == "bob is FRIEND\n"
    (invite,) = bob.ask_json("dm", "invites")
    assert (invite["identity"], invite["greeting"]) == (alice.hex, "hi, Bob")  # type: ignore[attr-defined]
    assert bob.ask_json("dm", "accept", alice.hex)[0]["state"] == "FRIEND"  # type: ignore[attr-defined]
    (sent,) = bob.ask_json("dm", "send", alice.hex, "hello")  # type: ignore[attr-defined]
    assert (sent["text"], sent["state"]) == ("hello", "delivered")
    assert alice.ask("dm", "send", "bob", "-", stdin="two\nlines\n").stdout.startswith("delivered ")
    assert thread_of(alice, "bob") == [
        ("hi, Bob", "delivered", False),
        ("hello", "received", False),
        ("two\nlines", "delivered", False),
    ]
    lines = alice.ask("dm", "read", "bob", "--limit", "2").stdout.splitlines()
    assert [line.split("\t")[1:] for line in lines] == [
        ["bob", "received", "hello"],
        ["you", "delivered", "two\\nlines"],
    ]


def test_revising(pair: Pair) -> None:
    alice, bob = pair
    alice.ask("dm", "send", "bob", "one")
    (two,) = alice.ask_json("dm", "send", "bob", "two")
    alice.ask("dm", "edit", "bob", "TWO")
    (one,) = [each for each in alice.ask_json("dm", "read", "bob") if each["text"] == "one"]
    alice.ask("dm", "retract", "bob", "--message", one["id"][:12])
    assert thread_of(bob, "alice")[2:] == [(None, "retracted", False), ("TWO", "received", True)]
    bob.ask("dm", "delete", "alice", two["id"])
    assert thread_of(bob, "alice")[2:] == [(None, "retracted", False)]
    assert alice.ask_json("dm", "edit", "bob", "2")[0]["state"] == "removed"
    assert alice.refused("dm", "retract", "bob", "--message", "ff", code=2)["code"] == "MISUSE"


def test_contacts(pair: Pair) -> None:
    alice, bob = pair
    assert alice.ask_json("dm", "block", "bob")[0]["state"] == "BLOCKED"
    assert bob.refused("dm", "send", "alice", "psst", code=1)["code"] == "UNAUTHORIZED"
    assert thread_of(bob, "alice")[-1] == ("psst", "refused", False)
    assert alice.ask_json("dm", "unblock", "bob")[0] == {"identity": bob.hex, "state": "FRIEND", "epoch": 0}  # type: ignore[attr-defined]
    assert alice.ask_json("dm", "rotate", "bob")[0]["epoch"] == 1
    (contact,) = alice.ask_json("dm", "contacts")
    assert (contact["name"], contact["own_epoch"], contact["given_epoch"]) == ("bob", 1, 0)
    assert alice.ask_json("dm", "remove", "bob")[0]["state"] == "OUTSIDER"
    alice.ask("dm", "invitations", "closed")
    (status,) = alice.ask_json("dm", "status")
    assert (status["open"], status["contacts"], status["refused"]) == (False, 0, [])
    assert alice.ask_json("dm", "repair") == [{"delivered": [], "failed": []}]


def test_an_invitation_is_declined(strangers: Pair) -> None:
    alice, bob = strangers
    alice.ask("dm", "add", bob.hex, "--mailbox", bob.mailbox)  # type: ignore[attr-defined]
    bob.ask("dm", "decline", alice.hex)  # type: ignore[attr-defined]
    assert bob.ask_json("dm", "invites") == []


def test_people_and_messages_are_named_by_prefixes(strangers: Pair) -> None:
    alice, bob = strangers
    me, you = alice.hex, bob.hex  # type: ignore[attr-defined]
    alice.ask("dm", "add", you, "--mailbox", bob.mailbox)  # type: ignore[attr-defined]
    accepted = bob.ask("dm", "accept", me[:8], "--mailbox", alice.mailbox[:63] + "…", code=2)  # type: ignore[attr-defined]
    assert "no enclave that you know starts with this" in accepted.stderr
    accepted = bob.ask("dm", "accept", me[:8], "--mailbox", alice.mailbox)  # type: ignore[attr-defined]
    assert accepted.stderr.splitlines()[0] == f"{me[:8]} is {me}"
    bob.ask("dm", "send", f"{me[:8]}…", "hello")
    (here,) = (each for each in alice.ask_json("dm", "read", you[:8]) if each["text"] == "hello")
    assert "expected a message's id" in alice.refused("dm", "delete", you, here["id"][:3], code=2)["message"]
    assert "no message starts with this" in alice.refused("dm", "delete", you, "00" * 8, code=2)["message"]
    alice.ask("dm", "delete", you[:8], here["id"][:4])
    assert [each for each in alice.ask_json("dm", "read", you) if each["text"] == "hello"] == []


def test_a_new_device_needs_the_key_alone(pair: Pair, tmp_path: Path) -> None:
    alice, _ = pair
    phone = Person(tmp_path / "phone")
    phone.key().parent.mkdir(parents=True)
    phone.key().write_bytes(alice.key().read_bytes())
    phone.key().chmod(0o600)
    profiles.store(phone.config, "default", "identity", str(phone.key()))
    profiles.store(phone.config, "default", "node", profiles.read(alice.config)["default"]["node"])
    assert "enc dm create" in phone.refused("dm", "contacts", code=2)["message"]
    phone.ask("dm", "use", alice.mailbox)  # type: ignore[attr-defined]
    bob = pair[1].hex  # type: ignore[attr-defined]
    assert phone.ask_json("dm", "read", bob) == alice.ask_json("dm", "read", bob)
    phone.ask("dm", "send", bob, "from the phone")
    assert thread_of(pair[1], "alice")[-1] == ("from the phone", "received", False)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("send", "nobody", "x"), "no person named nobody is known"),
        (("send", "ab" * 32, "x"), "their mailbox is unknown"),
        (("send", "bob", "x"), "no key to write to them with: add them first"),
        (("create",), "you have a mailbox already"),
        (("add", "bob", "--at", "http://127.0.0.1:1"), "--at: needs --mailbox"),
        (("retract", "bob"), "no such message"),
        (("accept", "ab" * 32), "has not invited you"),
    ],
)
def test_wrong_uses(strangers: Pair, args: tuple[str, ...], word: str) -> None:
    know(strangers[0], "bob", strangers[1])
    assert word in strangers[0].refused("dm", *args, code=2)["message"]


def test_nothing_is_printed_that_commands_a_terminal(pair: Pair) -> None:
    alice, bob = pair
    bob.ask("dm", "send", "alice", "\x1b[2Jgone\u202e")
    printed = alice.ask("dm", "read", "bob").stdout
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert "\\x1b[2Jgone" in printed
    assert json.loads(alice.ask("dm", "read", "bob", "--json").stdout.splitlines()[-1])["text"] == "\x1b[2Jgone\u202e"
