"""A spool of lines becomes archives: what a later event took away is erased, as a node would serve it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

from enc.bench.conduct import Conduct, Wire
from enc.bench.log import Earlier, Log
from enc.core.archive import Header, write_lines
from enc.core.hashing import content_hash


def pack(path: Path, header: Header, lines: Iterator[bytes]) -> int:
    """Write an archive; its size in bytes."""
    with path.open("wb") as file:
        return sum(file.write(piece) for piece in write_lines(header, lines))


def whole(spool: IO[bytes], log: Log, conduct: Conduct) -> Iterator[bytes]:
    """All lines, as they are served at the log's end."""
    gone = {place for place, when in log.gone_at.items() if when <= log.time} | log.erased_by.keys()
    altered = conduct.altered()
    spool.seek(0)
    for place, line in enumerate(spool):
        if place in altered:
            wire: Wire = msgspec.json.decode(line)
            conduct.shown(place, wire)
            yield msgspec.json.encode(wire)
        else:
            yield erased(line) if place in gone else line[:-1]


def earlier(spool: IO[bytes], log: Log, taken: Earlier) -> Iterator[bytes]:
    """The first lines, as they were served when the log ended with them."""
    gone = {place for place, when in log.gone_at.items() if when <= taken.time}
    gone |= {place for place, by in log.erased_by.items() if by < taken.places}
    spool.seek(0)
    for place, line in enumerate(islice(spool, taken.places)):
        yield erased(line) if place in gone else line[:-1]
    for line in taken.more:
        yield line[:-1]


def erased(line: bytes) -> bytes:
    """The line of an event without its content, as `wire_event` of the erased event spells it."""
    wire: Wire = msgspec.json.decode(line)
    wire["content_hash"] = content_hash(wire["content"]).hex()
    wire["content"] = None
    return msgspec.json.encode(wire)
