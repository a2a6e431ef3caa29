"""What a `sent` event holds, sealed to its owner: the copy of what went to a contact, and what became of it.

It is written before what it is about is sent, with the signed commit in it (`pending`), and again when the outcome is
known. So whatever is interrupted when, any device can send the same commit again: a node takes it once, and answers
with the receipt of the first time.
"""

from typing import Any, Literal

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import asdict, replace

from enc.core.commit import parse_commit, wire_commit
from enc.core.encoding import compact_json, decode_json, unhex
from enc.core.errors import DecryptFailed, PeerError
from enc.core.types import Commit, Receipt

MAX_TEXT = 32 << 10
"""Bytes of one text: with its commit beside it, a copy stays within what a node takes."""

Kind = Literal["message", "invite", "place"]
Act = Literal["send", "edit", "retract"]
State = Literal["pending", "delivered", "refused", "retracted", "removed"]


class Pending(Struct, frozen=True):
    """What is being sent. `text`: what the message says after an edit."""

    act: Act
    commit: dict[str, Any]
    text: str = ""


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: Kind = "message"
    text: str = ""
    mailbox: str = ""
    """The contact's, in hex: with `node`, its URL, all that a new device needs to write there."""
    node: str | None = None
    epoch: int = -1
    """Of the contact's mailbox; it and `sender_seq` are of the last seal, so that no device uses that key again."""
    sender_seq: int = -1
    delivers: int = -1
    """The epoch of one's own mailbox that went with it."""
    state: State = "pending"
    code: str = ""
    """Why the last act was refused."""
    id: str = ""
    at: int = 0
    """The message's id and time in the contact's mailbox, by the receipt."""
    is_edited: bool = False
    pending: Pending | None = None


_decoder = Decoder(Record)


def wire_record(record: Record) -> bytes:
    wire = {name: value for name, value in asdict(record).items() if value != getattr(_EMPTY, name)}
    if record.pending is not None:
        wire["pending"] = asdict(record.pending)
    return compact_json(wire).encode()


_EMPTY = Record()


def parse_record(raw: bytes) -> Record:
    record = decode_json(raw, _decoder, DecryptFailed)
    for name in ("id", "mailbox"):
        if getattr(record, name):
            unhex(getattr(record, name), 32, name, DecryptFailed)
    return record


def begun(record: Record, act: Act, commit: Commit, text: str = "") -> Record:
    return replace(record, pending=Pending(act, wire_commit(commit), text), code="")


def pending_commit(pending: Pending) -> Commit:
    try:
        return parse_commit(compact_json(pending.commit))
    except PeerError as e:
        raise DecryptFailed(f"pending: {e.message}") from None


def done(record: Record, receipt: Receipt) -> Record:
    """The node has taken what was pending."""
    pending, rest = record.pending, replace(record, pending=None, code="")
    if pending is None:
        return record
    if pending.act == "edit":
        return replace(rest, text=pending.text, is_edited=True)
    if pending.act == "retract":
        return replace(rest, text="", state="retracted", is_edited=False)
    return replace(rest, state="delivered", id=receipt.id.hex(), at=receipt.timestamp)


def refused(record: Record, code: str) -> Record:
    """The node has not: what was sent before stands as it was."""
    state: State = "refused" if record.pending is not None and record.pending.act == "send" else record.state
    return replace(record, pending=None, state=state, code=code)


def removed(record: Record) -> Record:
    """The contact has deleted the message from its mailbox."""
    return replace(record, pending=None, state="removed", code="")
