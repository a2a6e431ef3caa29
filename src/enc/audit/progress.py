"""What an audit verified, kept beside its report: the next one checks no signature twice, and knows all heads.

One JSON a line and enclave: how many events of its longest archive were verified, the SHA-256 of their lines, and every
head that was at hand. What is known is believed only of a log that starts with the very same lines; all else of it
(order, rules, roots) is derived anew. An enclave with a finding is not kept as verified.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.audit.heads import HeldHead, parse_line
from enc.audit.plan import Known
from enc.core.encoding import unhex
from enc.core.errors import EncError, InvalidProof, MisuseError

NAME = "progress.jsonl"
MAX_LINE = 16 << 20


class _Line(Struct):
    enclave: str
    events: int
    digest: str
    heads: list[msgspec.Raw] = []


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
            for line in iter(lambda: file.readline(MAX_LINE), b""):
                wire = _decoder.decode(line)
                enclave = unhex(wire.enclave, 32, "enclave", InvalidProof)
                known[enclave] = Known(wire.events, wire.digest)
                heads[enclave] = [parse_line(bytes(each), NAME)[1] for each in wire.heads]
    except (EncError, msgspec.DecodeError, ValueError) as e:
        raise MisuseError(f"{path}: not what an audit kept ({e}): remove it, or audit into another folder") from None
    except OSError as e:
        raise MisuseError(f"{path}: {e.strerror}") from None
    return Progress(known, heads)


def save_progress(folder: Path, kept: Iterable[tuple[bytes, Known, Iterable[HeldHead]]]) -> None:
    """In place of what was there: at once, or not at all."""
    draft = folder / f"{NAME}.draft"
    with draft.open("wb") as file:
        for enclave, known, heads in kept:
            file.write(msgspec.json.encode(_wire(enclave, known, heads)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(folder / NAME)


def _wire(enclave: bytes, known: Known, heads: Iterable[HeldHead]) -> dict[str, Any]:
    told = [{"enclave": enclave.hex(), **held.wire()} for held in heads]
    return {"enclave": enclave.hex(), "events": known.events, "digest": known.digest, "heads": told}
