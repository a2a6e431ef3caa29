"""What an audit verified, saved beside its report: the next audit checks no signature twice, and
knows all heads.

One JSON per line: for each enclave the number of verified events of its longest archive and the
SHA-256 of their lines, then every collected head, in the format of head files. It is used only for
a log that starts with exactly the same lines; everything else (order, rules, roots) is computed
again. An enclave with a finding is not saved as verified.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.audit.collected_heads import MAX_LINE as LINE_OF_HEAD
from enc.audit.collected_heads import CollectedHead, parse_line
from enc.audit.plan import VerifiedPrefix
from enc.core.errors import EncError, InvalidProof, MisuseError
from enc.core.primitives.encoding import unhex
from enc.runtime.files import atomic_file

NAME = "progress.jsonl"


MAX_LINE = 2 * LINE_OF_HEAD
"""A saved head is a little longer than a collected one, by its source and signer."""


class _Line(Struct):
    enclave: str
    events: int = -1
    """-1: the line is a head."""
    digest: str = ""


_decoder = msgspec.json.Decoder(_Line)


class AuditProgress(Struct, frozen=True):
    known: Mapping[bytes, VerifiedPrefix]
    heads: Mapping[bytes, list[CollectedHead]]


def load_progress(folder: Path) -> AuditProgress:
    """Load what the last audit into this folder verified; nothing if there was none."""
    known: dict[bytes, VerifiedPrefix] = {}
    heads: dict[bytes, list[CollectedHead]] = {}
    path = folder / NAME
    if not path.exists():
        return AuditProgress(known, heads)
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE):
                wire = _decoder.decode(line)
                enclave = unhex(wire.enclave, 32, "enclave", InvalidProof)
                if wire.events >= 0:
                    known[enclave] = VerifiedPrefix(wire.events, wire.digest)
                else:
                    heads.setdefault(enclave, []).append(parse_line(line, NAME)[1])
    except (EncError, msgspec.DecodeError, ValueError) as e:
        raise MisuseError(
            f"{path}: not an audit's progress file ({e}): remove it, or audit into another folder"
        ) from None
    except OSError as e:
        raise MisuseError(f"{path}: {e.strerror}") from None
    return AuditProgress(known, heads)


def save_progress(folder: Path, kept: Iterable[tuple[bytes, VerifiedPrefix, Iterable[CollectedHead]]]) -> None:
    """Replace what the last audit saved, completely or not at all."""
    with atomic_file(folder / NAME, draft=folder / f"{NAME}.draft") as file:
        for enclave, known, heads in kept:
            for wire in _wires(enclave.hex(), known, heads):
                file.write(msgspec.json.encode(wire) + b"\n")


def _wires(enclave: str, known: VerifiedPrefix, heads: Iterable[CollectedHead]) -> Iterator[dict[str, Any]]:
    yield {"enclave": enclave, "events": known.events, "digest": known.digest}
    for held in heads:
        yield {"enclave": enclave, **held.wire()}
