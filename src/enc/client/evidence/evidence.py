"""Evidence: a node's false statement, in one file that a third party can check without any node.

Only a signature convicts. So a file states one of two things: "the holder of this key signed both
of these, and no honest sequencer signs both", or "a client received this answer", for which there
is no proof that it came from the node.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import InvalidProof
from enc.core.log.event import wire_event
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.primitives.types import ConsistencyProof, Event, TreeHead
from enc.core.trees.cosigning import CosignedHead, wire_cosigned
from enc.core.trees.proof import wire_consistency
from enc.core.trees.tree_head import wire_head

MAX_EVIDENCE = 256 << 20


MAX_ANSWER = 10 << 20
"""Most bytes of an answer that are stored; in JSON each may take six."""


EvidenceKind = Literal[
    "fork", "rollback", "equivocation", "inconsistent", "split", "foreign", "answer", "event", "order", "log"
]


_WITHOUT_SEQUENCER = ("event", "log")
"""Kinds without a sequencer if none is shown: an unreadable line, a log without a Manifest."""


class Evidence(Struct, frozen=True, kw_only=True):
    """`parts`: the node's own statements, in wire format."""

    kind: EvidenceKind
    enclave: bytes
    sequencer: bytes
    message: str
    parts: Mapping[str, Any]

    def json(self) -> bytes:
        wire = {
            "format": "enc-evidence",
            "version": 1,
            "kind": self.kind,
            "enclave": self.enclave.hex(),
            "sequencer": self.sequencer.hex(),
            "message": self.message,
            "parts": self.parts,
        }
        try:
            return msgspec.json.format(msgspec.json.encode(wire)) + b"\n"
        except RecursionError:
            raise InvalidProof("evidence: nested too deep") from None

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.json())


class _Wire(Struct, kw_only=True):
    format: Literal["enc-evidence"]
    version: Literal[1]
    kind: EvidenceKind
    enclave: str
    sequencer: str
    message: str
    parts: dict[str, Any]


_decoder = msgspec.json.Decoder(_Wire)


def load_evidence(data: bytes) -> Evidence:
    if len(data) > MAX_EVIDENCE:
        raise InvalidProof(f"evidence: over {MAX_EVIDENCE} bytes")
    wire = decode_json(data, _decoder, InvalidProof)
    accuses_nobody = wire.sequencer == "" and wire.kind in _WITHOUT_SEQUENCER
    return Evidence(
        kind=wire.kind,
        enclave=unhex(wire.enclave, 32, "enclave", InvalidProof),
        sequencer=b"" if accuses_nobody else unhex(wire.sequencer, 32, "sequencer", InvalidProof),
        message=wire.message,
        parts=wire.parts,
    )


def two_heads(
    kind: EvidenceKind,
    enclave: bytes,
    sequencer: bytes,
    message: str,
    first: TreeHead,
    then: TreeHead,
    signer: bytes | None = None,
) -> Evidence:
    """Heads in the order in which they were seen. `signer`: of the first, if another sequencer."""
    parts = {"heads": [wire_head(first), wire_head(then)], **_signer(signer)}
    return Evidence(kind=kind, enclave=enclave, sequencer=sequencer, message=message, parts=parts)


def _signer(signer: bytes | None) -> dict[str, str]:
    return {} if signer is None else {"signer": signer.hex()}


def unconnected(
    enclave: bytes,
    sequencer: bytes,
    message: str,
    first: TreeHead,
    then: TreeHead,
    proof: ConsistencyProof | None,
    signer: bytes | None = None,
) -> Evidence:
    """`proof` is None if the node did not provide one."""
    shown = None if proof is None else wire_consistency(proof)
    parts = {"heads": [wire_head(first), wire_head(then)], "proof": shown, **_signer(signer)}
    return Evidence(kind="inconsistent", enclave=enclave, sequencer=sequencer, message=message, parts=parts)


def two_events(first: Event, then: Event, message: str) -> Evidence:
    parts = {"events": [wire_event(first), wire_event(then)]}
    return Evidence(kind="equivocation", enclave=first.enclave, sequencer=first.sequencer, message=message, parts=parts)


def split_event(migrate: Event, event: Event, message: str) -> Evidence:
    """Return evidence of an event that a former sequencer signed after the Migrate."""
    parts = {"migrate": wire_event(migrate), "event": wire_event(event)}
    return Evidence(kind="split", enclave=event.enclave, sequencer=event.sequencer, message=message, parts=parts)


def split_head(migrate: Event, size: int, head: TreeHead, sequencer: bytes, message: str) -> Evidence:
    """Return evidence of a former sequencer's head for a log larger than at the end of its term."""
    parts = {"migrate": wire_event(migrate), "size": size, "head": wire_head(head)}
    return Evidence(kind="split", enclave=migrate.enclave, sequencer=sequencer, message=message, parts=parts)


def with_cosignature(evidence: Evidence, cosigned: CosignedHead) -> Evidence:
    """Add a witness's statement that it saw one of the heads, and when."""
    return replace(evidence, parts={**evidence.parts, "cosigned": wire_cosigned(cosigned)})


def answer_evidence(kind: EvidenceKind, enclave: bytes, sequencer: bytes, message: str, answer: bytes) -> Evidence:
    """Return evidence of an answer as received, truncated if it is very long."""
    parts = {"answer": answer[:MAX_ANSWER].decode(errors="replace")}
    return Evidence(kind=kind, enclave=enclave, sequencer=sequencer, message=message, parts=parts)
