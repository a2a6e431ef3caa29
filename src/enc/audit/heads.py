"""Signed heads that people collected, some with a proof of an event under them; from files, one JSON a line.

A head is somebody's word only with that one's signature. A head with `bound_sig` names the enclave; one without is
held against a log too, but two of them do not contradict each other: they may be of different enclaves.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.claim import Claim, WireClaim, WireLeaf, claim_from_wire
from enc.core.encoding import decode_json, unhex
from enc.core.errors import InvalidProof, MisuseError
from enc.core.proof import WireBundleProof
from enc.core.tree_head import WireHead, check_bound_head, check_head, head_from_wire, wire_head
from enc.core.types import TreeHead

MAX_LINE = 1 << 20
MAX_HEADS = 10_000
"""Of one enclave; the newest of more."""
MAX_SIGNERS = 256
"""Keys of one enclave that may have signed a head: each head is tried with each."""
MAX_COLLECTED = 1_000_000
"""Of all enclaves together: they are held in memory."""


class HeldHead(Struct, frozen=True, kw_only=True):
    """A signed head that somebody has."""

    head: TreeHead
    source: str
    sequencer: bytes | None = None
    """Whose it is said to be; None: one of the log's."""
    is_own: bool = False
    """It came with the archive that is looked at: it is of that log's very end."""
    claim: Claim | None = None

    def wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"source": self.source, "sth": wire_head(self.head)}
        if self.sequencer is not None:
            wire["sequencer"] = self.sequencer.hex()
        return wire if self.claim is None else {**wire, **self.claim.wire()}


class _Line(Struct, kw_only=True):
    enclave: str
    sth: WireHead
    source: str = ""
    witness: str = ""
    """Who co-signed it, in a file from a witness."""
    sequencer: str | None = None
    seq: int | None = None
    membership: WireBundleProof | None = None
    inclusion: WireLeaf | None = None


_decoder = Decoder(_Line)


def parse_line(line: bytes, source: str) -> tuple[bytes, HeldHead]:
    """The enclave, and the head. InvalidProof says what is wrong."""
    wire = decode_json(line, _decoder, InvalidProof)
    claim = None
    if wire.seq is not None and wire.membership is not None and wire.inclusion is not None:
        claim = claim_from_wire(WireClaim(seq=wire.seq, membership=wire.membership, inclusion=wire.inclusion))
    held = HeldHead(
        head=head_from_wire(wire.sth),
        source=(wire.source or (wire.witness and f"witness {wire.witness}") or source)[:200],
        sequencer=None if wire.sequencer is None else unhex(wire.sequencer, 32, "sequencer", InvalidProof),
        claim=claim,
    )
    return unhex(wire.enclave, 32, "enclave", InvalidProof), held


def read_heads(path: str | Path) -> Iterator[tuple[bytes, HeldHead]]:
    """All heads of a file. MisuseError names the line that is none."""
    number = 0
    try:
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE):
                number += 1
                if line.strip():
                    yield parse_line(line, Path(path).name)
    except InvalidProof as e:
        raise MisuseError(f"{path}: line {number}: {e.message}") from None
    except OSError as e:
        raise MisuseError(f"{path}: cannot be read: {e.strerror}") from None


def collect_heads(
    files: Iterable[str | Path], before: Mapping[bytes, Iterable[HeldHead]]
) -> dict[bytes, list[HeldHead]]:
    """The heads of many files, by enclave, beside those that are known from before."""
    found = {enclave: list(held) for enclave, held in before.items()}
    count = sum(map(len, found.values()))
    for file in files:
        for enclave, held in read_heads(file):
            found.setdefault(enclave, []).append(held)
            count += 1
            if count > MAX_COLLECTED:
                raise MisuseError(f"{file}: over {MAX_COLLECTED} heads in all: audit fewer enclaves at a time")
    return found


def signer_of(held: HeldHead, enclave: bytes, keys: Iterable[bytes]) -> bytes | None:
    """Whose head it is, of these keys; None: nobody's. A stranger's head is nobody's, whatever it says of itself."""
    for key in dict.fromkeys(keys):
        if held.sequencer not in (None, key):
            continue
        try:
            if held.head.bound_sig is None:
                check_head(held.head, key)
            else:
                check_bound_head(held.head, key, enclave)
        except InvalidProof:
            continue
        return key
    return None
