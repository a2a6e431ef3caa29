"""A node's signed statement that it asks owners to move their enclaves to another node
(docs/protocol.md, section 15.4).

The address is the only field of variable width, and is signed last, so that no two statements share
a digest.
"""

import re
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidProof, InvalidSignature, MisuseError
from enc.core.primitives.encoding import MAX_INT, check_numbers, decode_json, unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_public_key, check_schnorr

DOMAIN = b"enc:evacuate:"
URL = re.compile(r"https?://[\x21-\x7e]{1,2000}")
"""What a node's address looks like: no space and no control character, since people paste it."""


class Evacuation(Struct, frozen=True, kw_only=True):
    """`to` and `to_key` are the address and the key of the node to which enclaves should move.

    `since` and `deadline` are Unix milliseconds; a deadline of 0 means that there is none.
    """

    node: bytes
    to: str
    to_key: bytes
    since: int
    deadline: int = 0
    sig: bytes = b""


def _digest(found: Evacuation) -> bytes:
    times = found.since.to_bytes(8, "big") + found.deadline.to_bytes(8, "big")
    return sha256(DOMAIN + found.node + found.to_key + times + found.to.encode())


def sign_evacuation(key: Signer, to: str, to_key: bytes, since: int, deadline: int = 0) -> Evacuation:
    """Return the statement of the node with this key; raise MisuseError if readers would reject it."""
    if not URL.fullmatch(to):
        raise MisuseError(f"to: {to!r}: expected an http or https URL without spaces, of at most 2,000 characters")
    if to_key == key.public:
        raise MisuseError("to: this is the node itself; give the URL of another node")
    if not (0 <= since <= MAX_INT and 0 <= deadline <= MAX_INT):
        raise MisuseError("since, deadline: expected times from 0 to 2^53 - 1")
    draft = Evacuation(node=key.public, to=to, to_key=to_key, since=since, deadline=deadline)
    sig = key.sign("schnorr", _digest(draft))
    return Evacuation(node=draft.node, to=to, to_key=to_key, since=since, deadline=deadline, sig=sig)


def check_evacuation(found: Evacuation, node: bytes) -> None:
    """Check that the node with this key signed the statement; raise InvalidProof."""
    if found.node != node:
        raise InvalidProof("evacuation: node: not the node that shows it")
    try:
        check_schnorr(node, _digest(found), found.sig)
    except InvalidSignature:
        raise InvalidProof("evacuation: sig: not signed by this node") from None


class WireEvacuation(Struct, kw_only=True):
    node: str
    to: str
    to_key: str
    since: int
    deadline: int | None = None
    sig: str


_decoder = Decoder(WireEvacuation)


def parse_evacuation(data: bytes | str) -> Evacuation:
    """Return the statement, whose signature the caller checks; raise InvalidProof."""
    wire = decode_json(data, _decoder, InvalidProof)
    if not URL.fullmatch(wire.to):
        raise InvalidProof("evacuation: to: not an http or https URL")
    check_numbers(InvalidProof, since=wire.since, deadline=wire.deadline or 0)
    to_key = unhex(wire.to_key, 32, "to_key", InvalidProof)
    check_public_key(to_key, "to_key", InvalidProof)
    return Evacuation(
        node=unhex(wire.node, 32, "node", InvalidProof),
        to=wire.to,
        to_key=to_key,
        since=wire.since,
        deadline=wire.deadline or 0,
        sig=unhex(wire.sig, 64, "sig", InvalidProof),
    )


def wire_evacuation(found: Evacuation) -> dict[str, Any]:
    return {
        "node": found.node.hex(),
        "to": found.to,
        "to_key": found.to_key.hex(),
        "since": found.since,
        "deadline": found.deadline or None,
        "sig": found.sig.hex(),
    }
