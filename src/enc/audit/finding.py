"""A finding: a fault with all that is needed to report it, to find it again and to prove it."""

from typing import Any

from msgspec import Struct

from enc.audit.collected_heads import CollectedHead
from enc.core.machine.fault import Fault, FaultKind


class Finding(Struct, frozen=True, kw_only=True):
    """One violation of the protocol in one enclave."""

    kind: FaultKind
    enclave: bytes
    seq: int
    """-1 if no position in the log is known."""
    what: str
    path: str = ""
    """The archive that shows it; empty if heads alone do."""
    other: str = ""
    """Another archive of the same enclave, if it takes two to see it."""
    sequencer: bytes = b""
    """The responsible sequencer, if known."""
    heads: tuple[CollectedHead, ...] = ()
    anchor: CollectedHead | None = None
    """A head of the sequencer that ties it to the events of earlier sequencers."""
    before: int = -1
    timestamp: int = 0
    """Unix milliseconds of the event or the head; 0 if there is none."""

    def wire(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "enclave": self.enclave.hex(),
            "seq": self.seq if self.seq >= 0 else None,
            "what": self.what,
            "archive": self.path or None,
            "sequencer": self.sequencer.hex() or None,
            "heads": [held.wire() for held in self.heads],
            "timestamp": self.timestamp or None,
        }


def finding_of(fault: Fault, enclave: bytes, path: str, sequencer: bytes = b"", timestamp: int = 0) -> Finding:
    return Finding(
        kind=fault.kind,
        enclave=enclave,
        seq=fault.seq,
        what=fault.what,
        path=path,
        sequencer=sequencer,
        before=fault.before,
        timestamp=timestamp,
    )
