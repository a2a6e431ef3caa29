"""A conversation as people see it: the messages of both, in one order, each with its state."""

from typing import Literal

from msgspec import Struct

from enc.apps.dm.records import CopyRecord
from enc.core.primitives.types import Withheld

EntryState = Literal["received", "unreadable", "pending", "delivered", "refused", "retracted", "removed"]


class ThreadEntry(Struct, frozen=True):
    """One message, or an invitation's greeting.

    Both people see delivered messages in the same order: by time and id in the recipient's mailbox.
    """

    at: int
    """Unix milliseconds, by the node of the recipient's mailbox."""
    id: bytes
    """Its id in that mailbox; until it arrives, that of the sender's copy."""
    author: bytes
    text: str | None
    """None: retracted, unreadable, withheld, or replaced by an edit that was not read yet."""
    state: EntryState
    is_edited: bool = False
    code: str = ""
    """The error code if it is unreadable or the last act on it was refused."""
    kind: Literal["message", "invite"] = "message"
    ref: bytes = b""
    """The event in your mailbox that identifies it for `edit`, `retract` and `delete`."""
    withheld: Withheld | None = None
    """The verified statement of a node that it withholds the text."""

    @property
    def place(self) -> tuple[int, bytes]:
        return self.at, self.id


def sent_entry(me: bytes, ref: bytes, at: int, record: CopyRecord) -> ThreadEntry:
    """Return the entry of a sent message. `at`: the copy's time, used until the message arrives."""
    has_arrived, is_gone = bool(record.id), record.state == "retracted"
    return ThreadEntry(
        at=record.at if has_arrived else at,
        id=bytes.fromhex(record.id) if has_arrived else ref,
        author=me,
        text=None if is_gone else record.text,
        state=record.state,
        is_edited=record.is_edited,
        code=record.code,
        kind="invite" if record.kind == "invite" else "message",
        ref=ref,
    )
