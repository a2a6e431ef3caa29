"""Slash commands of `enc dm chat`."""

from typing import TYPE_CHECKING

from enc.cli.chat.slash_commands import Replies, SlashCommand, SlashCommands, how_many, one
from enc.cli.dm.view import line_of

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox


class MailboxCommands(SlashCommands):
    """Commands of a conversation with the contact `who`, shown as `name`."""

    def __init__(self, mailbox: "Mailbox", who: bytes, name: str) -> None:
        self._mailbox, self._who, self._name = mailbox, who, name

    @property
    def last_seq(self) -> int:
        """How far the mailbox is read; it reads its own writes."""
        return self._mailbox.last_seq

    def say(self, text: str) -> Replies:
        self._mailbox.send(self._who, text)
        return iter(())

    def _edit(self, rest: str) -> Replies:
        text = one(rest, "/edit TEXT")
        self._mailbox.edit(self._who, self._last(), text)
        return iter(())

    def _retract(self, rest: str) -> Replies:
        self._mailbox.retract(self._who, self._last())
        return iter(())

    def _last(self) -> bytes:
        """Return the ref of one's last message, in any state, at the time the command runs."""
        self._mailbox.sync()
        return self._mailbox.last(self._who).ref

    def _retry(self, rest: str) -> Replies:
        for each in self._mailbox.repair():
            if each.who == self._who and each.error is not None:
                yield f"{'still pending' if each.is_left else 'refused'}: {each.error.code}"

    def _history(self, rest: str) -> Replies:
        limit = how_many(rest)
        self._mailbox.sync()
        for entry in self._mailbox.thread(self._who)[-limit:] if limit else ():
            yield line_of(entry, self._mailbox.identity, self._name)

    commands = {  # noqa: RUF012 - never modified
        "edit": SlashCommand("/edit TEXT", "replace your last message", _edit, seals=True),
        "retract": SlashCommand("/retract", "retract your last message", _retract),
        "retry": SlashCommand("/retry", "send pending messages again", _retry, seals=True),
        "history": SlashCommand("/history [HOW-MANY]", "show earlier messages", _history),
    }
