"""Receipts: a node's signed proof, kept by the client, that it accepted a commit (docs/protocol.md,
section 6.3)."""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidProof, PeerError
from enc.core.log.event import check_sequenced
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import Commit, Event, Receipt


class WireReceipt(Struct, kw_only=True):
    id: str
    hash: str
    timestamp: int
    sequencer: str
    seq: int
    alg: Alg = "schnorr"
    sig: str
    seq_sig: str


_decoder = Decoder(WireReceipt)


def build_receipt(event: Event) -> Receipt:
    return Receipt(
        id=event.id,
        hash=event.hash,
        timestamp=event.timestamp,
        sequencer=event.sequencer,
        seq=event.seq,
        alg=event.alg,
        sig=event.sig,
        seq_sig=event.seq_sig,
    )


def parse_receipt(data: bytes | str) -> Receipt:
    wire = decode_json(data, _decoder, InvalidProof)
    check_numbers(InvalidProof, timestamp=wire.timestamp, seq=wire.seq)
    return Receipt(
        id=unhex(wire.id, 32, "id", InvalidProof),
        hash=unhex(wire.hash, 32, "hash", InvalidProof),
        timestamp=wire.timestamp,
        sequencer=unhex(wire.sequencer, 32, "sequencer", InvalidProof),
        seq=wire.seq,
        alg=wire.alg,
        sig=unhex(wire.sig, 64, "sig", InvalidProof),
        seq_sig=unhex(wire.seq_sig, 64, "seq_sig", InvalidProof),
    )


def check_receipt(receipt: Receipt, commit: Commit, sequencer: bytes) -> None:
    """Check that the receipt is signed by `sequencer` and is for this commit; otherwise raise
    InvalidProof."""
    if receipt.sequencer != sequencer:
        raise InvalidProof("receipt: signed by another sequencer")
    if (receipt.hash, receipt.sig, receipt.alg) != (commit.hash, commit.sig, commit.alg):
        raise InvalidProof("receipt: for another commit")
    try:
        check_sequenced(receipt)
    except PeerError as e:
        raise InvalidProof(f"receipt: {e.message}") from None


def wire_receipt(receipt: Receipt) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "type": "Receipt",
        "id": receipt.id.hex(),
        "hash": receipt.hash.hex(),
        "timestamp": receipt.timestamp,
        "sequencer": receipt.sequencer.hex(),
        "seq": receipt.seq,
        "sig": receipt.sig.hex(),
        "seq_sig": receipt.seq_sig.hex(),
    }
    if receipt.alg != "schnorr":
        wire["alg"] = receipt.alg
    return wire
