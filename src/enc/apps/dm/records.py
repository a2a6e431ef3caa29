"""The content of a `sent` event, sealed to its owner: the copy of a delivery and its outcome.

It is written before the delivery, with the signed commit in it (`pending`), and again when the
outcome is known. So after any interruption, any device can send the same commit again: a node accepts
it once, and answers with the receipt of the first time.
"""

from typing import Any, Literal

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import asdict, replace

from enc.core.errors import DecryptFailed, PeerError
from enc.core.log.commit import parse_commit, wire_commit
from enc.core.primitives.encoding import compact_json, decode_json, unhex
from enc.core.primitives.types import Commit, Receipt

MAX_TEXT = 32 << 10
"""Bytes of one text: the copy with its commit stays below the node's limit."""

CopyKind = Literal["message", "invite", "place"]
CopyAct = Literal["send", "edit", "retract"]
CopyState = Literal["pending", "delivered", "refused", "retracted", "removed"]


class Pending(Struct, frozen=True):
    """A delivery in progress. `text`: the message's text after an edit."""

    act: CopyAct
    commit: dict[str, Any]
    text: str = ""


class CopyRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: CopyKind = "message"
    text: str = ""
    mailbox: str = ""
    """The contact's, in hex. With `node`, its URL, a new device can write there."""
    node: str | None = None
    epoch: int = -1
    """An epoch of the contact's mailbox. It and `sender_seq` are those of the last seal, so that no
    device uses that key again."""
    sender_seq: int = -1
    delivers: int = -1
    """The epoch of the owner's mailbox that was sent with it."""
    state: CopyState = "pending"
    code: str = ""
    """The error code of the last act, if it was refused."""
    id: str = ""
    at: int = 0
    """The message's id and time in the contact's mailbox, from the receipt."""
    is_edited: bool = False
    pending: Pending | None = None


_decoder = Decoder(CopyRecord)


def wire_record(record: CopyRecord) -> bytes:
    wire = {name: value for name, value in asdict(record).items() if value != getattr(_EMPTY, name)}
    if record.pending is not None:
        wire["pending"] = asdict(record.pending)
    return compact_json(wire).encode()


_EMPTY = CopyRecord()


def parse_record(raw: bytes) -> CopyRecord:
    record = decode_json(raw, _decoder, DecryptFailed)
    for name in ("id", "mailbox"):
        if getattr(record, name):
            unhex(getattr(record, name), 32, name, DecryptFailed)
    return record


def begun(record: CopyRecord, act: CopyAct, commit: Commit, text: str = "") -> CopyRecord:
    return replace(record, pending=Pending(act, wire_commit(commit), text), code="")


def pending_commit(pending: Pending) -> Commit:
    try:
        return parse_commit(compact_json(pending.commit))
    except PeerError as e:
        raise DecryptFailed(f"pending: {e.message}") from None


def done(record: CopyRecord, receipt: Receipt) -> CopyRecord:
    """Return the record after the node has accepted the pending act."""
    pending, rest = record.pending, replace(record, pending=None, code="")
    if pending is None:
        return record
    if pending.act == "edit":
        return replace(rest, text=pending.text, is_edited=True)
    if pending.act == "retract":
        return replace(rest, text="", state="retracted", is_edited=False)
    return replace(rest, state="delivered", id=receipt.id.hex(), at=receipt.timestamp)


def refused(record: CopyRecord, code: str) -> CopyRecord:
    """Return the record after the node has rejected the pending act: earlier ones stay in effect."""
    state: CopyState = "refused" if record.pending is not None and record.pending.act == "send" else record.state
    return replace(record, pending=None, state=state, code=code)


def removed(record: CopyRecord) -> CopyRecord:
    """Return the record after the contact has deleted the message from its mailbox."""
    return replace(record, pending=None, state="removed", code="")
