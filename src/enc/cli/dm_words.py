"""What is typed in `enc dm chat`: a message, or a command."""

from typing import TYPE_CHECKING

from enc.cli.chat_words import Told, Word, Words, how_many, one
from enc.cli.dm_view import line_of

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox


class MailboxWords(Words):
    """To the contact `who`, whom one calls `name`."""

    def __init__(self, mailbox: "Mailbox", who: bytes, name: str) -> None:
        self._mailbox, self._who, self._name = mailbox, who, name

    @property
    def last_seq(self) -> int:
        """The mailbox has read what it wrote."""
        return self._mailbox.last_seq

    def say(self, text: str) -> Told:
        self._mailbox.send(self._who, text)
        return iter(())

    def _edit(self, rest: str) -> Told:
        text = one(rest, "/edit TEXT")
        self._mailbox.edit(self._who, self._last(), text)
        return iter(())

    def _retract(self, rest: str) -> Told:
        self._mailbox.retract(self._who, self._last())
        return iter(())

    def _last(self) -> bytes:
        """One's last message, whatever became of it, when it comes to this one's turn."""
        self._mailbox.sync()
        return self._mailbox.last(self._who).ref

    def _retry(self, rest: str) -> Told:
        for each in self._mailbox.repair():
            if each.who == self._who and each.error is not None:
                yield f"{'still pending' if each.is_left else 'refused'}: {each.error.code}"

    def _history(self, rest: str) -> Told:
        limit = how_many(rest)
        self._mailbox.sync()
        for entry in self._mailbox.thread(self._who)[-limit:] if limit else ():
            yield line_of(entry, self._mailbox.identity, self._name)

    words = {  # noqa: RUF012 - it is never changed
        "edit": Word("/edit TEXT", "your last message, anew", _edit, seals=True),
        "retract": Word("/retract", "take your last message back", _retract),
        "retry": Word("/retry", "send what is pending", _retry, seals=True),
        "history": Word("/history [HOW-MANY]", "what was said before", _history),
    }
