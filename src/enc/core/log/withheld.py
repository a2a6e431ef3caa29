"""Withheld contents: a node's signed statement that it withholds the content of one event
(docs/protocol.md, section 6.5).

The reason is the only signed field of variable length, and the last one: no two statements share a
digest. The event's id covers its content_hash, so a statement is for one content.
"""

import re
from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import MAX_INT, check_numbers, unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import is_schnorr
from enc.core.primitives.types import Withheld

DOMAIN = b"enc:withheld:"
REASONS = ("illegal", "court_order", "copyright", "privacy", "abuse", "malware", "other")
"""Codes that a node may state. A reader accepts every code of the same form."""
_CODE = re.compile(r"[a-z_]{1,32}", re.ASCII)


class WireWithheld(Struct, kw_only=True):
    """A statement as JSON spells it."""

    reason: str
    ts: int
    node: str
    sig: str


def _digest(enclave: bytes, event_id: bytes, ts: int, reason: str) -> bytes:
    return sha256(DOMAIN + enclave + event_id + ts.to_bytes(8, "big") + reason.encode())


def sign_withheld(key: Signer, enclave: bytes, event_id: bytes, reason: str, ts: int) -> Withheld:
    """Return the statement of the node with `key` that it withholds an event's content from the
    time `ts` on, in Unix milliseconds."""
    if reason not in REASONS:
        raise MisuseError(f"reason: {reason!r} is not one of {', '.join(REASONS)}")
    if not 0 <= ts <= MAX_INT or (len(enclave), len(event_id)) != (32, 32):
        raise MisuseError("an id must be 32 bytes, and a time must be 0 to 2^53 - 1")
    sig = key.sign("schnorr", _digest(enclave, event_id, ts, reason))
    return Withheld(reason=reason, ts=ts, node=key.public, sig=sig)


def is_signed(statement: Withheld, enclave: bytes, event_id: bytes) -> bool:
    """Return whether the named node signed the statement for this event."""
    digest = _digest(enclave, event_id, statement.ts, statement.reason)
    return is_schnorr(statement.node, digest, statement.sig)


def withheld_from_wire(wire: WireWithheld) -> Withheld:
    """Return the statement, whose signature is not checked; raise InvalidCommit if malformed."""
    if not _CODE.fullmatch(wire.reason):
        raise InvalidCommit("withheld.reason: expected 1 to 32 characters of a to z and _")
    check_numbers(InvalidCommit, **{"withheld.ts": wire.ts})
    return Withheld(
        reason=wire.reason,
        ts=wire.ts,
        node=unhex(wire.node, 32, "withheld.node"),
        sig=unhex(wire.sig, 64, "withheld.sig"),
    )


def wire_withheld(statement: Withheld) -> dict[str, Any]:
    return {
        "reason": statement.reason,
        "ts": statement.ts,
        "node": statement.node.hex(),
        "sig": statement.sig.hex(),
    }
