"""Slash commands of `enc dm chat`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from enc.cli.chat.slash_commands import Replies, SlashCommand, SlashCommands, how_many, one
from enc.cli.dm.view import line_of
from enc.core.errors import EncError

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox


class MailboxCommands(SlashCommands):
    """Commands of a conversation with the contact `who`, shown as `name`."""

    def __init__(self, mailbox: "Mailbox", who: bytes, name: str, explain: Callable[[EncError], str]) -> None:
        self._mailbox, self._who, self._name, self._explain = mailbox, who, name, explain

    @property
    def last_seq(self) -> int:
        """How far the mailbox is read; it reads its own writes."""
        return self._mailbox.last_seq

    def say(self, text: str) -> Replies:
        return self._deliver(lambda: self._mailbox.send(self._who, text, attempt=self.sending))

    def _edit(self, rest: str) -> Replies:
        text = one(rest, "/edit TEXT")
        return self._deliver(lambda: self._mailbox.edit(self._who, self._last(), text))

    def _deliver(self, act: Callable[[], object]) -> Replies:
        """Send a text; if an earlier try has stored it in one's own mailbox, deliver it from there."""
        if self.attempt is not None and self.attempt.is_stored:
            return self._retry("")
        try:
            act()
        except EncError as e:
            if self.attempt is not None:
                self.attempt.is_stored = bool(e.context.get("kept"))
            e.message = self._explain(e)
            raise
        return iter(())

    def _retract(self, rest: str) -> Replies:
        self._mailbox.retract(self._who, self._last())
        return iter(())

    def _last(self) -> bytes:
        """Return the ref of one's last message, in any state, at the time the command runs."""
        self._mailbox.sync()
        return self._mailbox.last(self._who).ref

    def _retry(self, rest: str) -> Replies:
        """Deliver what is pending. Raises the error of the last message that is still pending."""
        found = self._mailbox.repair(self._who)
        left = [each.error for each in found if each.error is not None and each.is_left]
        if left:
            left[-1].message = self._explain(left[-1])
            raise left[-1]
        return iter([f"refused: {each.error.code}" for each in found if each.error is not None])

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
