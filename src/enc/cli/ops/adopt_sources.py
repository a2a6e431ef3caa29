"""What others have of a restored node's enclaves: a witness, a registry, an archive."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.client import Client, Identity, Registry, Witness
from enc.client.wire.flow import Call
from enc.client.wire.transport import Transport
from enc.core.errors import InvalidProof
from enc.core.machine.archive import read_archive
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.trees.cosigning import check_cosigned, parse_cosigned
from enc.node.ops.adoption import StoreComparison

LINES = 1000
"""Heads per request to a witness."""
TIMEOUT_S = 30.0


class Newer(Struct, frozen=True):
    """Something that a source has and the store lacks."""

    enclave: bytes
    what: str


class _NumberedLine(Struct):
    n: int


_numbered = Decoder(_NumberedLine)


def ask_witness(witness: Witness, store: StoreComparison) -> Iterator[Newer | None]:
    """Yield for each head of the node's enclaves that a witness has co-signed: None if the store has
    it, too.
    """
    transport, after = Transport(witness.url, TIMEOUT_S), 0
    try:
        while True:
            lines = _get(transport, f"/heads?after={after}&limit={LINES}").splitlines()
            for line in lines:
                seen = parse_cosigned(line)
                after = max(after, decode_json(line, _numbered, InvalidProof).n)
                if seen.witness != witness.key:
                    raise InvalidProof(f"its key is {seen.witness.hex()}")
                if store.concerns(seen.enclave, seen.sequencer):
                    what = store.check_root(seen.enclave, seen.sequencer, seen.head.ts, seen.head.r)
                    if what is not None:
                        check_cosigned(seen, witness.key, seen.enclave)
                    yield None if what is None else Newer(seen.enclave, what)
            if len(lines) < LINES:
                return
    finally:
        transport.close()


def _get(transport: Transport, path: str) -> bytes:
    answer = transport.send(Call(path))
    if answer.status != 200:
        raise InvalidProof(f"it answers {answer.status}, and not as a witness does: check the URL")
    return answer.body


def ask_registry(registry: Registry, store: StoreComparison) -> Iterator[Newer | None]:
    """Yield for each entry of the node's enclaves in a registry: None if the store is as new."""
    with Client(registry=registry, identity=Identity.new(), pins=None, patience=0, timeout=TIMEOUT_S) as client:
        after: str | None = None
        while True:
            page, after = client.listing(after=after)
            yield from (found for entry in page for found in _compare(entry, store))
            if after is None:
                return


def _compare(entry: dict[str, Any], store: StoreComparison) -> Iterator[Newer | None]:
    evidence = entry.get("evidence")
    known = evidence if isinstance(evidence, dict) else {}
    enclave = unhex(entry.get("enclave_id"), 32, "enclave_id", InvalidProof)
    sequencer = unhex(entry.get("sequencer"), 32, "sequencer", InvalidProof)
    size, moved_at = entry.get("proved_size", 0), known.get("moved_at", -1)
    check_numbers(InvalidProof, proved_size=size)
    if not isinstance(moved_at, int):
        raise InvalidProof("moved_at: expected a number")
    root = unhex(known["proved_root"], 32, "proved_root", InvalidProof) if known.get("proved_root") else None
    if store.concerns(enclave, sequencer):
        what = store.check_move(enclave, sequencer, moved_at) or store.check_root(enclave, sequencer, size, root)
        yield None if what is None else Newer(enclave, what)


def read_archive_file(file: Path, store: StoreComparison) -> Iterator[Newer | None]:
    """Yield what an archive has that the store lacks, or None."""
    header, events = read_archive(Call("", file=file).pieces())
    what = store.check_events(header.enclave, events)
    yield None if what is None else Newer(header.enclave, what)
