"""`enc dm chat`: in a terminal, and through a pipe."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enc.apps import Mailbox
from enc.apps.dm.outbox import Outbox
from enc.cli import profiles
from enc.client import Client, Identity
from tests.cli.people import ENC, PATIENCE_S, Person
from tests.cli.test_dm import Pair, know, said, somebody
from tests.node.running import RunningNode

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Tty:
    """A terminal with somebody in front of it."""

    def __init__(self, person: Person, *args: str) -> None:
        self._main, self.side = pty.openpty()
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        self.before = termios.tcgetattr(self.side)
        plain = {name: value for name, value in person.environment.items() if name not in ("NO_COLOR", "COLUMNS")}
        env = {**plain, "TERM": "xterm-256color", "TZ": "UTC"}
        self.process = subprocess.Popen(
            [ENC, *args], stdin=self.side, stdout=self.side, stderr=self.side, env=env, start_new_session=True
        )
        self.raw = ""

    def expect(self, *words: str) -> str:
        """Reads until all of it stands there, colours aside, in what came since the last time; gives that."""
        until, seen = time.monotonic() + PATIENCE_S, ""
        while not all(word in seen for word in words):
            ready, _, _ = select.select([self._main], [], [], max(until - time.monotonic(), 0))
            assert ready, f"{words} did not come: {seen!r}"
            self.raw += os.read(self._main, 1 << 16).decode(errors="replace")
            seen = COLOUR.sub("", self.raw)
        self.raw = ""
        return seen

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def ends(self, code: int = 0) -> None:
        assert self.process.wait(PATIENCE_S) == code
        assert termios.tcgetattr(self.side) == self.before, "the terminal is as it was"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)
        os.close(self.side)


@contextmanager
def at_terminal(person: Person, *args: str) -> Iterator[Tty]:
    tty = Tty(person, "dm", "chat", *args)
    try:
        yield tty
    finally:
        tty.close()


@pytest.fixture
def pair(tmp_path: Path, running_node: RunningNode) -> Pair:
    alice, bob = somebody(tmp_path / "alice", running_node), somebody(tmp_path / "bob", running_node)
    know(alice, "bob", bob)
    know(bob, "alice", alice)
    alice.ask("dm", "add", "bob", "--greeting", "hi")
    bob.ask("dm", "accept", "alice")
    bob.ask("dm", "send", "alice", "hello, Alice")
    return alice, bob


def test_a_conversation_at_a_terminal(pair: Pair) -> None:
    alice, bob = pair
    with at_terminal(alice, "bob") as tty:
        seen = tty.expect("you: (invites) hi ✓", "bob: hello, Alice", "> ")
        assert "— 20" in seen, "the day"
        tty.type("how are you?\r")
        tty.expect("you: how are you? ✓")
        bob.ask("dm", "send", "alice", "fine \x1b[2J!")
        tty.expect("bob: fine \\x1b[2J!")
        bob.ask("dm", "edit", "alice", "splendid")
        tty.expect("bob: splendid (edited)")
        bob.ask("dm", "retract", "alice")
        tty.expect("bob: (retracted)")
        tty.type("/edit how do you do?\r")
        tty.expect("you: how do you do? (edited) ✓")
        tty.type("//quit is a command\r")
        tty.expect("you: /quit is a command ✓")
        tty.type("/retract\r")
        tty.expect("you: (retracted)")
        tty.type("/wave\r")
        tty.expect("there is no /wave")
        tty.type("/quit\r")
        tty.ends()
    assert [each[0] for each in said(bob, "alice")][2:] == ["how do you do?", None, None]


def test_colours_and_the_line_that_is_typed(pair: Pair) -> None:
    """What comes stands above what is being typed, which is drawn again and goes on."""
    alice, bob = pair
    with at_terminal(alice, "bob", "--history", "0") as tty:
        tty.expect("> ")
        tty.type("half a li")
        tty.expect("half a li")
        bob.ask("dm", "send", "alice", "me first")
        seen = tty.expect("bob: me first", "> half a li")
        assert "\r\x1b[K" in seen
        tty.type("ne\r")
        tty.expect("you: half a line ✓")
        tty.type("\x04")
        tty.ends()
    assert said(bob, "alice")[-1][0] == "half a line"


def test_a_refusal_is_told(pair: Pair) -> None:
    alice, bob = pair
    bob.ask("dm", "block", "alice")
    with at_terminal(alice, "bob") as tty:
        tty.expect("> ")
        tty.type("are you there?\r")
        tty.expect("you: are you there? ✗ UNAUTHORIZED", "UNAUTHORIZED: no entry of the manifest allows")
        tty.process.send_signal(signal.SIGINT)
        tty.ends()


def test_the_terminal_is_left_as_it_was_when_nothing_more_can_come(pair: Pair) -> None:
    alice, _ = pair
    with at_terminal(alice, "bob") as tty:
        tty.expect("> ")
        alice.ask("commit", "Terminate", "", "--enclave", alice.mailbox)  # type: ignore[attr-defined]
        tty.expect("ENCLAVE_TERMINATED")
        tty.ends(1)


def test_through_a_pipe(pair: Pair) -> None:
    """Each line is sent, and each comes out once, as it ended."""
    alice, bob = pair
    printed = alice.run("dm", "chat", "bob", stdin="one\n\ntwo\n/edit TWO\n")
    assert "\x1b" not in printed
    lines = [line.split(" ", 2)[2] for line in printed.splitlines()]
    assert lines[:2] == ["you: (invites) hi ✓", "bob: hello, Alice"]
    assert lines[2] == "you: one ✓"
    assert lines[-1] == "you: TWO (edited) ✓"
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line) for line in printed.splitlines())
    assert [each[0] for each in said(bob, "alice")][2:] == ["one", "TWO"]


def test_for_programs(pair: Pair) -> None:
    alice, bob = pair
    out = alice.run("dm", "chat", "bob", "--json", "--history", "1", stdin="one")
    found = [(each["text"], each["state"]) for each in map(json.loads, out.splitlines())]
    assert found[0] == ("hello, Alice", "received")
    assert found[-1] == ("one", "delivered")
    bob.ask("dm", "block", "alice")
    alice.run("dm", "chat", "bob", "--json", "--history", "0", stdin="two\n", code=1)
    assert json.loads(alice.stderr)["error"]["code"] == "UNAUTHORIZED"


def test_what_was_interrupted_is_finished_first(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another device died between its own copy and the message."""
    alice, bob = pair

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    node = profiles.read(alice.config)["default"]["node"]
    with Client(node, Identity.load(alice.key()), pins=None) as client, monkeypatch.context() as patch:
        patch.setattr(Outbox, "settle", die)
        with pytest.raises(Killed):
            Mailbox(client, alice.mailbox).send(bob.hex, "almost lost")  # type: ignore[attr-defined]
    assert said(alice, "bob")[-1] == ("almost lost", "pending", False)
    printed = alice.run("dm", "chat", "bob")
    assert printed.splitlines()[-1].endswith("you: almost lost ✓")
    assert said(bob, "alice")[-1] == ("almost lost", "received", False)


def test_a_node_that_was_away_for_longer_than_a_command_waits(tmp_path: Path) -> None:
    """The chat goes on: nothing is missing, and what is written meanwhile fails and says so."""
    with RunningNode(tmp_path / "node") as node:
        alice, bob = somebody(tmp_path / "alice", node), somebody(tmp_path / "bob", node)
        know(alice, "bob", bob)
        alice.ask("dm", "add", "bob")
        bob.ask("dm", "accept", alice.hex)  # type: ignore[attr-defined]
        with at_terminal(alice, "bob", "--timeout", "0.2") as tty:
            tty.expect("> ")
            node.kill()
            tty.type("anybody?\r")
            tty.expect("UNREACHABLE")
            with RunningNode(tmp_path / "node", "--port", node.url.rpartition(":")[2]):
                bob.ask("dm", "send", alice.hex, "back again")  # type: ignore[attr-defined]
                tty.expect("bob: back again")
                tty.type("/quit\r")
                tty.ends()
