"""A conversation as people see it: what both said, in one order, with what became of each."""

from typing import Literal

from msgspec import Struct

from enc.apps.dm.records import Record

EntryState = Literal["received", "unreadable", "pending", "delivered", "refused", "retracted", "removed"]


class Entry(Struct, frozen=True):
    """One message, or an invitation's greeting.

    Both people see what was delivered in the same order: by its time and id in the mailbox that it was sent to.
    """

    at: int
    """Unix milliseconds, by the node of the mailbox that it was sent to."""
    id: bytes
    """The message's in that mailbox; until it is there, of one's own copy."""
    author: bytes
    text: str | None
    """None: retracted, or cannot be read."""
    state: EntryState
    is_edited: bool = False
    code: str = ""
    """Why it cannot be read, or why the last act on it was refused."""
    kind: Literal["message", "invite"] = "message"
    ref: bytes = b""
    """The event in one's own mailbox by which it is edited, retracted or deleted."""

    @property
    def place(self) -> tuple[int, bytes]:
        return self.at, self.id


def sent_entry(me: bytes, ref: bytes, at: int, record: Record) -> Entry:
    """What one sent: `at` is the copy's time, for what has not arrived yet."""
    has_arrived, is_gone = bool(record.id), record.state == "retracted"
    return Entry(
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
