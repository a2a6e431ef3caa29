"""Signed heads that people collected, some with a proof of an event; from files, one JSON per line.

Only a signature makes a head its signer's. A head with `bound_sig` names the enclave. One without
is compared with a log too, but two of them do not contradict each other: they may be of different
enclaves.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidProof, MisuseError
from enc.core.machine.claim import Claim, WireClaim, WireLeaf, claim_from_wire
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.primitives.types import TreeHead
from enc.core.trees.proof import WireBundleProof
from enc.core.trees.tree_head import WireHead, check_bound_head, check_head, head_from_wire, wire_head

MAX_LINE = 1 << 20
MAX_HEADS = 10_000
"""Heads of one enclave that are used; of more, the newest."""
MAX_SIGNERS = 256
"""Keys of one enclave that may have signed a head: each head is checked with each."""
MAX_COLLECTED = 1_000_000
"""Heads of all enclaves together: they are kept in memory."""


class CollectedHead(Struct, frozen=True, kw_only=True):
    """A signed head that someone collected."""

    head: TreeHead
    source: str
    sequencer: bytes | None = None
    """The claimed signer; None: any sequencer of the log."""
    is_own: bool = False
    """Whether it is the archive's own head, of the end of its log."""
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
    """The witness that co-signed it, in a file from a witness."""
    sequencer: str | None = None
    seq: int | None = None
    membership: WireBundleProof | None = None
    inclusion: WireLeaf | None = None


_decoder = Decoder(_Line)


def parse_line(line: bytes, source: str) -> tuple[bytes, CollectedHead]:
    """Return the enclave and the head; raise InvalidProof."""
    wire = decode_json(line, _decoder, InvalidProof)
    claim = None
    if wire.seq is not None and wire.membership is not None and wire.inclusion is not None:
        claim = claim_from_wire(WireClaim(seq=wire.seq, membership=wire.membership, inclusion=wire.inclusion))
    held = CollectedHead(
        head=head_from_wire(wire.sth),
        source=(wire.source or (wire.witness and f"witness {wire.witness}") or source)[:200],
        sequencer=None if wire.sequencer is None else unhex(wire.sequencer, 32, "sequencer", InvalidProof),
        claim=claim,
    )
    return unhex(wire.enclave, 32, "enclave", InvalidProof), held


def read_heads(path: str | Path) -> Iterator[tuple[bytes, CollectedHead]]:
    """Yield all heads of a file; raise MisuseError with the number of an invalid line."""
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
    files: Iterable[str | Path], before: Mapping[bytes, Iterable[CollectedHead]]
) -> dict[bytes, list[CollectedHead]]:
    """Return the heads of many files by enclave, with those known `before`."""
    found = {enclave: list(held) for enclave, held in before.items()}
    count = sum(map(len, found.values()))
    for file in files:
        for enclave, held in read_heads(file):
            found.setdefault(enclave, []).append(held)
            count += 1
            if count > MAX_COLLECTED:
                raise MisuseError(f"{file}: more than {MAX_COLLECTED} heads in all: audit fewer enclaves at a time")
    return found


def signer_of(held: CollectedHead, enclave: bytes, keys: Iterable[bytes]) -> bytes | None:
    """Return which of these keys signed the head; None if none did, whatever the head claims."""
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
