"""`enc dm chat`: in a terminal, and through a pipe."""

import json
import os
import re
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from enc.apps import Mailbox
from enc.apps.dm.outbox import Outbox
from enc.cli.chat.source import AWAY, BACK
from enc.cli.common import profiles
from enc.client import Client, Identity
from tests.cli.dm.mailboxes import Pair, know, thread_of, with_mailbox
from tests.cli.people import PATIENCE_S, Person
from tests.cli.seat import Seat, at_terminal
from tests.cli.terminal_screen import TerminalScreen
from tests.node.running import RunningNode


def chatting(person: Person, *args: str, colour: bool = False) -> AbstractContextManager[Seat]:
    return at_terminal(person, "dm", "chat", *args, colour=colour)


@pytest.fixture
def pair(tmp_path: Path, running_node: RunningNode) -> Pair:
    alice, bob = with_mailbox(tmp_path / "alice", running_node), with_mailbox(tmp_path / "bob", running_node)
    know(alice, "bob", bob)
    know(bob, "alice", alice)
    alice.ask("dm", "add", "bob", "--greeting", "hi")
    bob.ask("dm", "accept", "alice")
    bob.ask("dm", "send", "alice", "hello, Alice")
    return alice, bob


def test_a_conversation_at_a_terminal(pair: Pair) -> None:
    alice, bob = pair
    with chatting(alice, "bob") as seat:
        seat.sees("— 20")  # the heading of the day
        seat.sees("you: (invites) hi  ✓")
        seat.sees("bob: hello, Alice")
        seat.sees("FRIEND")
        seat.types("how are you?\r")
        seat.sees("you: how are you?  ✓")
        bob.ask("dm", "send", "alice", "fine \x1b[2J!")
        seat.sees("bob: fine \\x1b[2J!")
        bob.ask("dm", "edit", "alice", "splendid")
        seat.sees("bob: splendid  (edited)")
        bob.ask("dm", "retract", "alice")
        seat.sees("bob: (retracted)")
        seat.types("/edit how do you do?\r")
        seat.sees("you: how do you do?  (edited) ✓")
        seat.types("//quit is a command\r")
        seat.sees("you: /quit is a command  ✓")
        seat.types("/retract\r")
        seat.sees("you: (retracted)")
        seat.types("/wave\r")
        seat.sees("/wave: unknown command")
        seat.types("/quit\r")
        assert seat.ends() == 0
    assert [each[0] for each in thread_of(bob, "alice")][2:] == ["how do you do?", None, None]


def test_colours_and_the_line_that_is_typed(pair: Pair) -> None:
    """A new message appears above the line that is being typed; that line is drawn again and can be continued."""
    alice, bob = pair
    with chatting(alice, "bob", "--history", "0") as seat:
        seat.sees("\n>")
        seat.types("half a li")
        seat.sees("half a li")
        bob.ask("dm", "send", "alice", "me first")
        seat.sees("bob: me first")
        seat.sees("> half a li")
        assert "\x1b[J" in seat.raw
        seat.types("ne\r")
        seat.sees("… half a line")
        seat.sees("you: half a line  …")
        assert "… half a line" not in seat.sees("you: half a line  ✓"), "the message is shown once at a time"
        shown = TerminalScreen(100, 24).feed(seat.raw).text
        assert shown.count("half a line") == 1, "it replaces the line that showed the message as pending"
        seat.types("\x04")
        assert seat.ends() == 0
    assert thread_of(bob, "alice")[-1][0] == "half a line"


def test_a_refusal_is_told(pair: Pair) -> None:
    alice, bob = pair
    bob.ask("dm", "block", "alice")
    with chatting(alice, "bob") as seat:
        seat.sees("\n>")
        seat.types("are you there?\r")
        seat.shows("you: are you there? ✗ UNAUTHORIZED")
        seat.shows("! UNAUTHORIZED: no entry of the manifest allows")
        seat.process.send_signal(signal.SIGINT)
        assert seat.ends() == 0


def test_the_terminal_is_left_as_it_was_when_nothing_more_can_come(pair: Pair) -> None:
    alice, _ = pair
    with chatting(alice, "bob") as seat:
        seat.sees("\n>")
        alice.ask("commit", "Terminate", "", "--enclave", alice.mailbox)  # type: ignore[attr-defined]
        seat.sees("ENCLAVE_TERMINATED")
        assert seat.ends() == 1


def test_a_paste_of_lines_is_one_message_and_history_shows_it(pair: Pair) -> None:
    alice, bob = pair
    with chatting(alice, "bob") as seat:
        seat.sees("FRIEND")
        seat.types("\x1b[200~one\rtwo\x1b[201~")
        seat.sees("one")
        seat.sees("two")
        seat.types("\r")
        seat.sees("you: one\n      two  ✓")
        seat.types("/history 1\r")
        seat.sees("you: one\n      two  ✓")
        seat.types("/help\r")
        seat.sees("/retract")
        seat.types("/edit\r")
        seat.sees("! MISUSE: use: /edit TEXT")
        seat.types("half a line\x03")
        assert seat.ends() == 0
    assert thread_of(bob, "alice")[-1][0] == "one\ntwo"


def test_a_terminal_of_another_size_is_drawn_anew(pair: Pair) -> None:
    alice, bob = pair
    with chatting(alice, "bob") as seat:
        seat.sees("FRIEND")
        bob.ask("dm", "send", "alice", "hello")
        seat.sees("bob: hello")
        seat.types("x")
        seat.sees("x")  # the chat listens, and no other input follows: only the signal makes it draw
        seat.resize(20)
        seat.sees(f"bob | {bob.hex[:8]}… | F\n> x")  # type: ignore[attr-defined]
        seat.types("\x7f\x04")
        assert seat.ends() == 0


def test_the_status_says_how_one_stands_with_the_contact(pair: Pair) -> None:
    alice, _ = pair
    with chatting(alice, "bob") as seat:
        seat.sees("| FRIEND")
        alice.ask("dm", "block", "bob")
        seat.sees("BLOCKED")
        seat.types("\x04")
        assert seat.ends() == 0


def test_it_stays_and_listens_if_it_is_told_to(pair: Pair) -> None:
    alice, bob = pair
    with alice.start("dm", "chat", "bob", "--stay", "--json", "--history", "1") as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            assert json.loads(process.stdout.readline())["text"] == "hello, Alice"
            bob.ask("dm", "send", "alice", "are you there?")
            assert json.loads(process.stdout.readline())["text"] == "are you there?"
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        finally:
            process.kill()


def test_through_a_pipe(pair: Pair) -> None:
    """Each line is sent, and each is printed once, with its final state."""
    alice, bob = pair
    printed = alice.run("dm", "chat", "bob", stdin="one\n\ntwo\n/edit TWO\n")
    assert "\x1b" not in printed
    lines = [line.split("  ", 1)[1] for line in printed.splitlines()]
    assert lines[:2] == ["you: (invites) hi  ✓", "bob: hello, Alice"]
    assert lines[2] == "you: one  ✓"
    assert lines[-1] == "you: TWO  (edited) ✓"
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line) for line in printed.splitlines())
    assert [each[0] for each in thread_of(bob, "alice")][2:] == ["one", "TWO"]


def test_what_was_sent_before_quit_is_seen_and_what_comes_after_is_not_sent(pair: Pair) -> None:
    alice, bob = pair
    printed = alice.run("dm", "chat", "bob", "--history", "0", stdin="one\n/quit\nnever\n")
    assert [line.split("  ", 1)[1] for line in printed.splitlines()] == ["you: one  ✓"]
    assert thread_of(bob, "alice")[-1][0] == "one"


def test_for_programs(pair: Pair) -> None:
    alice, bob = pair
    out = alice.run("dm", "chat", "bob", "--json", "--history", "1", stdin="one")
    found = [(each["text"], each["state"]) for each in map(json.loads, out.splitlines())]
    assert found[0] == ("hello, Alice", "received")
    assert found[-1] == ("one", "delivered")
    refs = [each["ref"] for each in map(json.loads, out.splitlines()) if each["text"] == "one"]
    assert len(set(refs)) == 1, "pending, then delivered: one message"
    bob.ask("dm", "block", "alice")
    alice.run("dm", "chat", "bob", "--json", "--history", "0", stdin="two\n", code=1)
    assert json.loads(alice.stderr)["error"]["code"] == "UNAUTHORIZED"


def test_what_was_interrupted_is_finished_first(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another device died between writing its own copy and sending the message."""
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
    assert thread_of(alice, "bob")[-1] == ("almost lost", "pending", False)
    printed = alice.run("dm", "chat", "bob")
    assert printed.splitlines()[-1].endswith("you: almost lost  ✓")
    assert thread_of(bob, "alice")[-1] == ("almost lost", "received", False)


def test_a_node_that_was_away_for_longer_than_a_command_waits(tmp_path: Path) -> None:
    """The chat continues: no message is missing, and messages written meanwhile are sent in order, each once."""
    with RunningNode(tmp_path / "node") as node:
        alice, bob = with_mailbox(tmp_path / "alice", node), with_mailbox(tmp_path / "bob", node)
        know(alice, "bob", bob)
        alice.ask("dm", "add", "bob")
        bob.ask("dm", "accept", alice.hex)  # type: ignore[attr-defined]
        bob.ask("dm", "send", alice.hex, "hello")  # type: ignore[attr-defined]
        with chatting(alice, "bob", "--timeout", "0.2") as seat:
            seat.sees("\n>")
            bob.ask("dm", "send", alice.hex, "live")  # type: ignore[attr-defined]
            seat.sees("bob: live")  # the chat is subscribed
            node.kill()
            seat.types("anybody?\r")
            seat.sees("… anybody?")
            seat.shows(f"! {AWAY}")
            seat.shows("! not sent yet; the chat tries again: UNREACHABLE: your own node does not answer")
            seat.shows("offline, trying again | 1 waiting | bob")
            seat.types("/help\rhello?\r/edit HELLO?\r")
            seat.shows("list the commands")
            seat.shows("| 3 waiting | bob")
            with RunningNode(tmp_path / "node", "--port", node.url.rpartition(":")[2]):
                seat.shows(f"! {BACK}")
                seat.shows("you: anybody? ✓")
                seat.shows("you: HELLO? (edited) ✓")
                bob.ask("dm", "send", alice.hex, "back again")  # type: ignore[attr-defined]
                seat.shows("bob: back again")
                seat.types("/quit\r")
                assert seat.ends() == 0
                assert [each[0] for each in thread_of(bob, alice.hex)[-3:]] == ["anybody?", "HELLO?", "back again"]  # type: ignore[attr-defined]


def test_messages_that_a_stalled_node_takes_later_arrive_once(tmp_path: Path) -> None:
    """The node has the requests of all tries in its buffers, and handles them when it continues."""
    with RunningNode(tmp_path / "node") as node:
        alice, bob = with_mailbox(tmp_path / "alice", node), with_mailbox(tmp_path / "bob", node)
        know(alice, "bob", bob)
        alice.ask("dm", "add", "bob")
        bob.ask("dm", "accept", alice.hex)  # type: ignore[attr-defined]
        bob.ask("dm", "send", alice.hex, "hello")  # type: ignore[attr-defined]
        with chatting(alice, "bob", "--timeout", "0.3") as seat:
            seat.sees("bob: hello")
            os.kill(node.pid, signal.SIGSTOP)
            seat.types("one\rtwo\r")
            seat.shows("! not sent yet; the chat tries again: TIMED_OUT")
            seat.shows("2 waiting | bob")
            seat.types("/retry\r/retry\rthree\r")
            seat.shows("3 waiting | bob")
            os.kill(node.pid, signal.SIGCONT)
            seat.shows("you: three ✓")
            seat.types("/quit\r")
            assert seat.ends() == 0
        assert [each[0] for each in thread_of(bob, alice.hex)[-4:]] == ["hello", "one", "two", "three"]  # type: ignore[attr-defined]


def test_a_contact_s_node_that_is_away_gets_the_messages_when_it_is_back(
    tmp_path: Path, running_node: RunningNode
) -> None:
    far = RunningNode(tmp_path / "far")
    alice, bob = with_mailbox(tmp_path / "alice", running_node), with_mailbox(tmp_path / "bob", far)
    for one, name, other, node in ((alice, "bob", bob, far), (bob, "alice", alice, running_node)):
        one.ask("me", "know", name, other.hex, "--mailbox", other.mailbox, "--at", node.url)  # type: ignore[attr-defined]
    alice.ask("dm", "add", "bob")
    bob.ask("dm", "accept", "alice")
    bob.ask("dm", "send", "alice", "hello")
    far.kill()
    quick = ("--timeout", "0.3")
    alice.ask("dm", "send", "bob", "before", *quick, code=3)
    with chatting(alice, "bob", *quick) as seat:
        seat.shows(f"! not sent yet; the chat tries again: UNREACHABLE: the node of bob ({bob.hex[:8]}…)")  # type: ignore[attr-defined]
        seat.types("one\rtwo\r")
        seat.shows("3 waiting | bob")
        seat.types("/quit\r")
        assert seat.ends() == 1
        assert "! not sent: one" in seat.seen
    with chatting(alice, "bob", *quick) as seat:
        seat.shows("1 waiting | bob")
        seat.types("three\r")
        seat.shows("2 waiting | bob")
        with RunningNode(tmp_path / "far", "--port", far.url.rpartition(":")[2]):
            seat.shows("you: before ✓")
            seat.shows("you: three ✓")
            seat.types("/quit\r")
            assert seat.ends() == 0
            assert [each[0] for each in thread_of(bob, "alice")[-3:]] == ["hello", "before", "three"]


def test_a_message_that_is_stored_and_not_delivered_is_printed_on_leaving(
    tmp_path: Path, running_node: RunningNode
) -> None:
    far = RunningNode(tmp_path / "far")
    alice, bob = with_mailbox(tmp_path / "alice", running_node), with_mailbox(tmp_path / "bob", far)
    for one, name, other, node in ((alice, "bob", bob, far), (bob, "alice", alice, running_node)):
        one.ask("me", "know", name, other.hex, "--mailbox", other.mailbox, "--at", node.url)  # type: ignore[attr-defined]
    alice.ask("dm", "add", "bob")
    bob.ask("dm", "accept", "alice")
    bob.ask("dm", "send", "alice", "hello")
    with chatting(alice, "bob", "--timeout", "0.3") as seat:
        seat.sees("bob: hello")
        far.kill()
        seat.types("one\r")
        seat.shows("1 waiting | bob")
        seat.types("two\r")
        seat.shows("2 waiting | bob")
        seat.types("/quit\r")
        assert seat.ends() == 1
        assert "! stored, and not delivered yet: one" in seat.seen
        assert "! not sent: two" in seat.seen
        assert "! not sent: one" not in seat.seen


@pytest.mark.parametrize("leave", ["\x03", "\x04", "/quit\r"])
def test_what_is_unsent_is_printed_on_leaving(tmp_path: Path, leave: str) -> None:
    with RunningNode(tmp_path / "node") as node:
        alice, bob = with_mailbox(tmp_path / "alice", node), with_mailbox(tmp_path / "bob", node)
        know(alice, "bob", bob)
        alice.ask("dm", "add", "bob")
        with chatting(alice, "bob", "--timeout", "0.2") as seat:
            seat.sees("\n>")
            node.kill()
            seat.types("anybody?\r")
            seat.sees("(anybody?)")
            seat.types(f"at the last moment\r{leave}")
            seat.sees("! not sent: anybody?")
            seat.sees("! not sent: at the last moment")
            assert seat.ends() == 1
        with RunningNode(tmp_path / "node", "--port", node.url.rpartition(":")[2]):
            pass


def test_a_line_that_is_entered_just_before_leaving_is_sent(pair: Pair) -> None:
    alice, bob = pair
    with chatting(alice, "bob") as seat:
        seat.sees("FRIEND")
        seat.types("bye\r\x03")
        assert seat.ends() == 0
    assert thread_of(bob, "alice")[-1][0] == "bye"


def test_what_is_too_long_is_refused_at_once(pair: Pair) -> None:
    alice, bob = pair
    with chatting(alice, "bob") as seat:
        seat.sees("FRIEND")
        seat.types("\x1b[200~" + "x" * 32_769 + "\x1b[201~\r")
        seat.sees("! MISUSE: a text has up to 32768 bytes; this one has 32769")
        assert "… x" not in seat.seen, "it was never pending"
        seat.sees("> xxx")
        seat.types("\x15short\r")
        seat.sees("you: short  ✓")
        seat.types("\x04")
        assert seat.ends() == 0
    alice.run("dm", "chat", "bob", stdin="y" * 32_769 + "\n", code=1)
    assert "up to 32768 bytes" in alice.stderr
    assert thread_of(bob, "alice")[-1][0] == "short"


@pytest.mark.parametrize("words", [40, 90, 700], ids=["wrapped", "several lines", "more than the screen"])
def test_a_long_line_appears_once(pair: Pair, words: int) -> None:
    """It replaces what showed it as pending, however many lines of the terminal that took."""
    alice, bob = pair
    text = " ".join(f"word{n}" for n in range(words))
    with chatting(alice, "bob", "--history", "0") as seat:
        seat.sees("FRIEND")
        seat.types(f"\x1b[200~{text}\x1b[201~\r")
        seat.shows(f"word{words - 1} ✓")
        seat.types("short\r")
        seat.shows("you: short ✓")
        bob.ask("dm", "send", "alice", "yes")
        seat.shows("bob: yes")
        screen = TerminalScreen(100, 24).feed(seat.raw)
        seat.types("\x04")
        assert seat.ends() == 0
    assert screen.text.count("you: word0 ") == 1
    assert f"you: {text} ✓" in screen.text
    assert screen.text.count("you: short") == screen.text.count("bob: yes") == 1


def test_rows_of_a_long_line_never_look_like_another_entry(pair: Pair) -> None:
    alice, bob = pair
    bob.ask("dm", "send", "alice", "22:22 " * 99 + "\n22:22 you: I quit")
    with chatting(alice, "bob") as seat:
        seat.sees("you: I quit")
        rows = [row for row in seat.seen.splitlines() if "22:22 22:22" in row or "I quit" in row]
        assert len(rows) > 3
        assert all(row.startswith("      22:22") for row in rows[1:])
        seat.types("\x04")
        assert seat.ends() == 0


def test_lines_are_sent_though_nobody_reads_what_is_printed(pair: Pair) -> None:
    alice, bob = pair
    for more in ((), ("--stay",)):
        with alice.start("dm", "chat", "bob", *more) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdout.close()
                process.stdin.write("x\ny\n")
                process.stdin.close()
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()
        assert [each[0] for each in thread_of(bob, "alice")][-2:] == ["x", "y"]


def test_who_stays_without_a_terminal_outlasts_a_node_that_is_away(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node:
        alice, bob = with_mailbox(tmp_path / "alice", node), with_mailbox(tmp_path / "bob", node)
        know(alice, "bob", bob)
        alice.ask("dm", "add", "bob")
        bob.ask("dm", "accept", alice.hex)  # type: ignore[attr-defined]
        bob.ask("dm", "send", alice.hex, "before")  # type: ignore[attr-defined]
        with alice.start("dm", "chat", "bob", "--stay", "--json", "--history", "1", "--timeout", "0.2") as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.close()
                assert json.loads(process.stdout.readline())["text"] == "before"
                node.kill()
                with RunningNode(tmp_path / "node", "--port", node.url.rpartition(":")[2]):
                    bob.ask("dm", "send", alice.hex, "after")  # type: ignore[attr-defined]
                    assert json.loads(process.stdout.readline())["text"] == "after"
            finally:
                process.kill()


def test_a_node_that_is_given_up_leaves_what_is_unsent_on_stderr(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "node")
    alice, bob = with_mailbox(tmp_path / "alice", node), with_mailbox(tmp_path / "bob", node)
    know(alice, "bob", bob)
    alice.ask("dm", "add", "bob", "--greeting", "hi")
    with alice.start("dm", "chat", "bob", "--json", "--timeout", "0.2") as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["text"] == "hi"
            node.kill()
            _, stderr = process.communicate("anybody?\n", PATIENCE_S)
            assert process.returncode == 1
        finally:
            process.kill()
    errors = [json.loads(line)["error"] for line in stderr.splitlines()]
    assert ("NOT_SENT", "anybody?") in [(each["code"], each["message"]) for each in errors]
