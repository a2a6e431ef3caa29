"""A finding: a fault with everything that is needed to tell it, to find it again and to prove it."""

from typing import Any

from msgspec import Struct

from enc.audit.heads import HeldHead
from enc.core.fault import Fault, FaultKind


class Finding(Struct, frozen=True, kw_only=True):
    """One broken promise, of one enclave."""

    kind: FaultKind
    enclave: bytes
    seq: int
    """-1 where no place of the log is known."""
    what: str
    path: str = ""
    """The archive that shows it; empty where heads alone do."""
    other: str = ""
    """Another archive of the same enclave, where it takes two to see it."""
    sequencer: bytes = b""
    """Whose promise it was, as far as that is known."""
    heads: tuple[HeldHead, ...] = ()
    before: int = -1
    timestamp: int = 0
    """Unix milliseconds of the event or the head; 0 where there is none."""

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
