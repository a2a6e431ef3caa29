"""Lines of a chat that a node cannot take at once: in order, each once."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from enc.apps import Mailbox
from enc.cli.chat.line_runner import LineAnswer, LineRunner, LineWaits
from enc.cli.chat.pending_lines import PendingLine
from enc.cli.common import profiles
from enc.cli.dm.slash_commands import MailboxCommands
from enc.client import Client, Identity, Unreachable
from tests.apps.losing import Losing
from tests.cli.dm.mailboxes import Pair, thread_of
from tests.cli.people import PATIENCE_S


class Chat:
    """A runner in its thread, and what it posts."""

    def __init__(self, commands: MailboxCommands, *, is_patient: bool) -> None:
        self.posted = SimpleQueue[Any]()
        self.commands = commands
        self.runner = LineRunner(commands, self.posted.put, is_patient=is_patient)
        self.thread = threading.Thread(target=self.runner.run)
        self.thread.start()

    def types(self, *lines: str) -> None:
        for line in lines:
            self.runner.enter(PendingLine(line, self.commands.new_attempt()))

    def next(self) -> Any:
        return self.posted.get(timeout=PATIENCE_S)


@contextmanager
def chatting(pair: Pair, *fates: str, is_patient: bool = True, theirs: Sequence[str] = ()) -> Iterator[Chat]:
    """Yield a chat of alice with bob; `fates`: of what she sends to her own node, `theirs`: to bob's."""
    alice, bob = pair
    node = profiles.read(alice.config)["default"]["node"]
    with Client(node, Identity.load(alice.key()), pins=None) as client:
        mailbox = Mailbox(client, alice.mailbox)  # type: ignore[attr-defined]
        mailbox._outbox._own = Losing(mailbox.enclave, *fates)
        there = Losing(client.enclave(bob.mailbox), *theirs)  # type: ignore[attr-defined]
        mailbox._outbox._locate = lambda peer, record: there
        who = bytes.fromhex(bob.hex)  # type: ignore[attr-defined]
        chat = Chat(MailboxCommands(mailbox, who, "bob", lambda error: error.message), is_patient=is_patient)
        try:
            yield chat
        finally:
            chat.runner.end()
            chat.thread.join(PATIENCE_S)


@pytest.mark.parametrize("fate", ["answer", "request"])
def test_lines_wait_for_the_one_before_them_and_are_sent_once(pair: Pair, fate: str) -> None:
    with chatting(pair, fate, fate) as chat:
        chat.types("one", "two", "/edit TWO", "three")
        waits = chat.next()
        assert isinstance(waits, LineWaits)
        assert (waits.text, type(waits.error)) == ("one", Unreachable)
        answers = [chat.next() for _ in range(4)]
    assert [(each.line.text, each.error) for each in answers] == [
        ("one", None),
        ("two", None),
        ("/edit TWO", None),
        ("three", None),
    ]
    assert pair[0].ask("dm", "repair").stdout == "nothing is pending\n"
    assert [each[0] for each in thread_of(pair[1], "alice")[-3:]] == ["one", "TWO", "three"]


def test_what_waits_for_the_contact_s_node_is_delivered_from_one_s_own_mailbox(pair: Pair) -> None:
    with chatting(pair, theirs=["request", "expired", "", "request", "answer", ""]) as chat:
        chat.types("one", "/edit ONE", "two")
        assert chat.next().text == "one"
        assert chat.next().error is None
        waits = chat.next()
        assert (waits.text, waits.error.context["kept"]) == ("/edit ONE", True)
        assert chat.runner.held[0].attempt is not None
        assert chat.runner.held[0].attempt.is_stored
        assert [chat.next().error for _ in range(2)] == [None, None]
    assert [each[0] for each in thread_of(pair[1], "alice")[-2:]] == ["ONE", "two"]


def test_without_patience_an_error_is_the_answer(pair: Pair) -> None:
    with chatting(pair, "request", is_patient=False) as chat:
        chat.types("one", "two")
        first, second = chat.next(), chat.next()
    assert isinstance(first, LineAnswer)
    assert (type(first.error), second.error) == (Unreachable, None)


def test_what_is_refused_does_not_keep_the_next_line_waiting(pair: Pair) -> None:
    with chatting(pair) as chat:
        chat.types("/edit", "two")
        assert str(chat.next().error) == "use: /edit TEXT"
        assert chat.next().error is None


def test_a_chat_that_ends_leaves_what_waits(pair: Pair) -> None:
    with chatting(pair, *["request"] * 99) as chat:
        chat.types("one", "two")
        assert isinstance(chat.next(), LineWaits)
        chat.runner.end()
        chat.thread.join(PATIENCE_S)
        assert [line.text for line in chat.runner.held][:1] == ["one"]
    assert "one" not in [each[0] for each in thread_of(pair[1], "alice")]
