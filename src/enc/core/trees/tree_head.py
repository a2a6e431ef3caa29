"""Signed tree heads (docs/protocol.md, section 9.4).

A plain head does not name its enclave, so two enclaves of one honest node may have heads of equal
size with different roots. `bound_sig` also covers the enclave's id; only a bound head is evidence
by itself.
"""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidProof, InvalidSignature
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_schnorr
from enc.core.primitives.types import TreeHead


def _message(head: str, enclave: bytes, t: int, ts: int, root: bytes) -> bytes:
    return sha256(head.encode() + enclave + t.to_bytes(8, "big") + ts.to_bytes(8, "big") + root)


def sign_head(key: Signer, enclave: bytes, t: int, ts: int, root: bytes) -> TreeHead:
    """Return the signed head for `ts` closed bundles, reached at time `t`."""
    return TreeHead(
        t=t,
        ts=ts,
        r=root,
        sig=key.sign("schnorr", _message("enc:sth:", b"", t, ts, root)),
        bound_sig=key.sign("schnorr", _message("enc:head:", enclave, t, ts, root)),
    )


def check_head(head: TreeHead, sequencer: bytes) -> None:
    """Check that `sequencer` signed the head, of whichever enclave (see check_bound_head); or raise
    InvalidProof."""
    try:
        check_schnorr(sequencer, _message("enc:sth:", b"", head.t, head.ts, head.r), head.sig)
    except InvalidSignature:
        raise InvalidProof("sth: not signed by this sequencer") from None


def check_bound_head(head: TreeHead, sequencer: bytes, enclave: bytes) -> None:
    """Check that `sequencer` signed the head for this enclave; otherwise raise InvalidProof."""
    check_head(head, sequencer)
    if head.bound_sig is None:
        raise InvalidProof("sth: bound_sig is missing")
    try:
        check_schnorr(sequencer, _message("enc:head:", enclave, head.t, head.ts, head.r), head.bound_sig)
    except InvalidSignature:
        raise InvalidProof("sth: bound_sig is not this sequencer's for this enclave") from None


class WireHead(Struct):
    t: int
    ts: int
    r: str
    sig: str
    bound_sig: str | None = None


_decoder = Decoder(WireHead)


def parse_head(data: bytes | str) -> TreeHead:
    return head_from_wire(decode_json(data, _decoder, InvalidProof))


def head_from_wire(wire: WireHead) -> TreeHead:
    check_numbers(InvalidProof, t=wire.t, ts=wire.ts)
    return TreeHead(
        t=wire.t,
        ts=wire.ts,
        r=unhex(wire.r, 32, "r", InvalidProof),
        sig=unhex(wire.sig, 64, "sig", InvalidProof),
        bound_sig=None if wire.bound_sig is None else unhex(wire.bound_sig, 64, "bound_sig", InvalidProof),
    )


def wire_head(head: TreeHead) -> dict[str, Any]:
    wire: dict[str, Any] = {"t": head.t, "ts": head.ts, "r": head.r.hex(), "sig": head.sig.hex()}
    if head.bound_sig is not None:
        wire["bound_sig"] = head.bound_sig.hex()
    return wire
