"""What an audit verified, kept beside its report: the next one checks no signature twice, and knows all heads.

One JSON a line: of each enclave how many events of its longest archive were verified and the SHA-256 of their lines;
after it every head that was at hand, as files of heads have them. What is known is believed only of a log that starts
with the very same lines; all else of it (order, rules, roots) is derived anew. An enclave with a finding is not kept as
verified.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.audit.heads import MAX_LINE as LINE_OF_HEAD
from enc.audit.heads import HeldHead, parse_line
from enc.audit.plan import Known
from enc.core.encoding import unhex
from enc.core.errors import EncError, InvalidProof, MisuseError
from enc.runtime.files import atomic_file

NAME = "progress.jsonl"


MAX_LINE = 2 * LINE_OF_HEAD
"""A head that was read is a little longer once its source and its signer stand with it."""


class _Line(Struct):
    enclave: str
    events: int = -1
    """-1: the line is a head."""
    digest: str = ""


_decoder = msgspec.json.Decoder(_Line)


class Progress(Struct, frozen=True):
    known: Mapping[bytes, Known]
    heads: Mapping[bytes, list[HeldHead]]


def load_progress(folder: Path) -> Progress:
    """What the last audit into this folder verified; nothing where there was none."""
    known: dict[bytes, Known] = {}
    heads: dict[bytes, list[HeldHead]] = {}
    path = folder / NAME
    if not path.exists():
        return Progress(known, heads)
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE):
                wire = _decoder.decode(line)
                enclave = unhex(wire.enclave, 32, "enclave", InvalidProof)
                if wire.events >= 0:
                    known[enclave] = Known(wire.events, wire.digest)
                else:
                    heads.setdefault(enclave, []).append(parse_line(line, NAME)[1])
    except (EncError, msgspec.DecodeError, ValueError) as e:
        raise MisuseError(f"{path}: not what an audit kept ({e}): remove it, or audit into another folder") from None
    except OSError as e:
        raise MisuseError(f"{path}: {e.strerror}") from None
    return Progress(known, heads)


def save_progress(folder: Path, kept: Iterable[tuple[bytes, Known, Iterable[HeldHead]]]) -> None:
    """Replace what the last audit saved, completely or not at all."""
    with atomic_file(folder / NAME, draft=folder / f"{NAME}.draft") as file:
        for enclave, known, heads in kept:
            for wire in _wires(enclave.hex(), known, heads):
                file.write(msgspec.json.encode(wire) + b"\n")


def _wires(enclave: str, known: Known, heads: Iterable[HeldHead]) -> Iterator[dict[str, Any]]:
    yield {"enclave": enclave, "events": known.events, "digest": known.digest}
    for held in heads:
        yield {"enclave": enclave, **held.wire()}
