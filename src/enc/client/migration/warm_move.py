"""A move to a node that has copied the log ahead of time, so that its owner need not.

The owner copies a log before a move for two reasons: to sign only for a log that the new node will
accept, and to have it if the old node then disappears. A new node that has replayed the same log up
to the checkpoint at which the enclave is held serves both.
"""

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from enc.client.errors import ForeignSequencer
from enc.client.evidence.evidence import answer_evidence
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.node_link import NodeLink
from enc.client.verify.decode_answers import read
from enc.client.wire.flow import Call, Flow
from enc.core.errors import PeerError, WorldError


class Checkpoint(Struct):
    """The end of the log, as the old node states it: its last seq and the checkpoint root (9.5)."""

    seq: int
    ct_root: str


class _Confirmation(Struct):
    confirmed: bool


_checkpoint, _confirmation = Decoder(Checkpoint), Decoder(_Confirmation)


def hold_checkpoint(reader: EnclaveReader, seconds: int) -> Flow[tuple[bytes, Checkpoint]]:
    """Return the checkpoint, as text too; for so many seconds the node then accepts only a Migrate."""
    text = yield from reader.session.ask("/checkpoint", "Checkpoint", {"hold": seconds})
    with reader.session.known_verifier().blame_node("checkpoint", text):
        return text, read(text, _checkpoint)


def check_destination(old: NodeLink, new: NodeLink) -> Flow[None]:
    """Raise ForeignSequencer if the old node states another key for the new node's URL."""
    stated, key = old.evacuation, (yield from new.seq_pub())
    if stated is None or new.url is None or stated.to.rstrip("/") != new.url.rstrip("/") or stated.to_key == key:
        return
    message = (
        f"the old node asks owners to move to {stated.to} with the key {stated.to_key.hex()}, but the node there has "
        f"the key {key.hex()}: nothing was moved; ask both operators"
    )
    raise ForeignSequencer(message, answer_evidence("foreign", bytes(32), stated.to_key, message, b""))


def held_where_copied(reader: EnclaveReader, new: NodeLink, seconds: int) -> Flow[Checkpoint | None]:
    """Hold the enclave and return its checkpoint, if the new node has a copy of exactly that; else None.

    The first question costs nobody anything, and lets the copy catch up.
    """
    stated = reader.node.evacuation
    if stated is None or stated.to_key != (yield from new.seq_pub()):
        return None
    for hold in (0, seconds):
        _, checkpoint = yield from hold_checkpoint(reader, hold)
        if not (yield from _is_confirmed(new, reader.enclave, checkpoint)):
            return None
    return checkpoint


def _is_confirmed(new: NodeLink, enclave: bytes, checkpoint: Checkpoint) -> Flow[bool]:
    """Return whether the node says so; one that cannot answer has no copy that counts."""
    asked = {"enclave": enclave.hex(), "seq": checkpoint.seq, "ct_root": checkpoint.ct_root}
    call = Call("/warm-copies/confirm", msgspec.json.encode(asked))
    try:
        return read((yield from new.without_retries().request(call)), _confirmation).confirmed
    except (PeerError, WorldError):
        return False
