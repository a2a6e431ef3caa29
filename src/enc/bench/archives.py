"""Writes archives from spooled lines, with the erasures that a node would serve."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

from enc.bench.log import Earlier, Log
from enc.bench.node_behaviour import NodeBehaviour, Wire
from enc.core.machine.archive import Header, write_lines
from enc.core.primitives.hashing import content_hash


def pack(path: Path, header: Header, lines: Iterator[bytes]) -> int:
    """Write an archive; return its size in bytes."""
    with path.open("wb") as file:
        return sum(file.write(piece) for piece in write_lines(header, lines))


def whole(spool: IO[bytes], log: Log, behaviour: NodeBehaviour) -> Iterator[bytes]:
    """Yield all lines as served at the log's end."""
    gone = {place for place, when in log.gone_at.items() if when <= log.time} | log.erased_by.keys()
    altered = behaviour.altered()
    spool.seek(0)
    for place, line in enumerate(spool):
        if place in altered:
            wire: Wire = msgspec.json.decode(line)
            behaviour.shown(place, wire)
            yield msgspec.json.encode(wire)
        else:
            yield erased(line) if place in gone else line[:-1]


def earlier(spool: IO[bytes], log: Log, taken: Earlier) -> Iterator[bytes]:
    """Yield the first lines as served when the log ended with them."""
    gone = {place for place, when in log.gone_at.items() if when <= taken.time}
    gone |= {place for place, by in log.erased_by.items() if by < taken.places}
    spool.seek(0)
    for place, line in enumerate(islice(spool, taken.places)):
        yield erased(line) if place in gone else line[:-1]
    for line in taken.more:
        yield line[:-1]


def erased(line: bytes) -> bytes:
    """Return an event's line without its content, exactly as `wire_event` writes an erased
    event.
    """
    wire: Wire = msgspec.json.decode(line)
    wire["content_hash"] = content_hash(wire["content"]).hex()
    wire["content"] = None
    return msgspec.json.encode(wire)
