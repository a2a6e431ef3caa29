"""A node's signed order to another node: copy these enclaves of mine ahead of time
(docs/protocol.md, section 15.5).

An order carries no right to read: the ordering node decides to whom it exports its logs.
"""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidQuery, InvalidSignature, Unauthorized
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_schnorr

DOMAIN = b"enc:warm-copy:"
MAX_ENCLAVES = 256
"""Most enclaves of one order."""
WINDOW_MS = 120_000
"""How far the time of an order may be from the clock of the node that gets it."""


class OrderedCopy(Struct, frozen=True):
    """An enclave to copy, and the seq of its last event so far."""

    enclave: bytes
    seq: int


class WarmCopyOrder(Struct, frozen=True, kw_only=True):
    """`source` is the URL at which the ordering node exports. With `ends`, the copies are dropped."""

    node: bytes
    to_key: bytes
    at: int
    source: str
    enclaves: tuple[OrderedCopy, ...]
    ends: bool = False


def _digest(order: WarmCopyOrder) -> bytes:
    source = order.source.encode()
    head = order.node + order.to_key + order.at.to_bytes(8, "big") + bytes([order.ends])
    each = b"".join(copy.enclave + copy.seq.to_bytes(8, "big") for copy in order.enclaves)
    return sha256(DOMAIN + head + len(source).to_bytes(8, "big") + source + each)


def wire_order(key: Signer, order: WarmCopyOrder) -> dict[str, Any]:
    """Return the order as its node, which has this key, sends it."""
    return {
        "node": order.node.hex(),
        "to_key": order.to_key.hex(),
        "at": order.at,
        "source": order.source,
        "enclaves": [{"enclave": copy.enclave.hex(), "seq": copy.seq} for copy in order.enclaves],
        "ends": order.ends,
        "sig": key.sign("schnorr", _digest(order)).hex(),
    }


class _WireCopy(Struct, forbid_unknown_fields=True):
    enclave: str
    seq: int


class WireOrder(Struct, kw_only=True, forbid_unknown_fields=True):
    node: str
    to_key: str
    at: int
    source: str
    enclaves: list[_WireCopy]
    ends: bool = False
    sig: str


_decoder = Decoder(WireOrder)


def parse_order(data: bytes, to_key: bytes, now: int) -> WarmCopyOrder:
    """Return an order to the node with the key `to_key`, checked except for its source.

    Raises InvalidQuery, or Unauthorized if its node did not sign it for this node and about now.
    """
    wire = decode_json(data, _decoder, InvalidQuery)
    if len(wire.enclaves) > MAX_ENCLAVES:
        raise InvalidQuery(f"enclaves: {len(wire.enclaves)}; at most {MAX_ENCLAVES} are allowed")
    check_numbers(InvalidQuery, at=wire.at)
    order = WarmCopyOrder(
        node=unhex(wire.node, 32, "node", InvalidQuery),
        to_key=unhex(wire.to_key, 32, "to_key", InvalidQuery),
        at=wire.at,
        source=wire.source,
        enclaves=tuple(map(_copy, wire.enclaves)),
        ends=wire.ends,
    )
    if order.to_key != to_key:
        raise Unauthorized(f"to_key: the order is for the node {wire.to_key}, but this one is {to_key.hex()}")
    try:
        check_schnorr(order.node, _digest(order), unhex(wire.sig, 64, "sig", InvalidQuery))
    except InvalidSignature:
        raise Unauthorized("sig: the node did not sign this order") from None
    if abs(now - order.at) > WINDOW_MS:
        raise Unauthorized(f"at: {order.at} is more than {WINDOW_MS // 1000} s from this node's clock, {now}")
    return order


def _copy(wire: _WireCopy) -> OrderedCopy:
    check_numbers(InvalidQuery, seq=wire.seq)
    return OrderedCopy(unhex(wire.enclave, 32, "enclave", InvalidQuery), wire.seq)
