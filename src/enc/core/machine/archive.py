"""The archive: one enclave's whole log in one file, zstd-compressed JSON lines (docs/protocol.md,
section 18).

First a header, then one event a line by rising seq; an erased content is null, with its hash.
Archives serve backup, forced takeover, audit and bulk loading. Reading and writing stream: neither
holds more than a line.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
import zstandard
from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidArchive, PeerError
from enc.core.log.event import parse_event, wire_event
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import WireHead, head_from_wire, wire_head

MAX_LINE = 16 << 20
"""Maximum size of one line, decompressed, in bytes."""
MAX_TOTAL = 1 << 40
"""Maximum size of a whole archive, decompressed, in bytes. Callers may set a lower bound."""
_WINDOW_LOG = 27
_CHUNK = 1 << 20
_SLICE = 512
_PIECE = 1 << 16
"""Bytes that are split into lines at once."""


class Header(Struct, frozen=True, kw_only=True):
    """The header of an archive. All of it is checked against the events."""

    enclave: bytes
    enc_v: int
    sequencers: tuple[tuple[bytes, int], ...]
    """Each sequencer with the seq of its first event."""
    events: int
    sth: TreeHead | None
    checkpoint_seq: int
    checkpoint_root: bytes


class _WireSequencer(Struct):
    seq_pub: str
    from_seq: int


class _WireCheckpoint(Struct):
    seq: int
    ct_root: str


class _WireHeader(Struct, kw_only=True):
    format: Literal["enc-archive"]
    version: Literal[1]
    enclave: str
    enc_v: int
    sequencers: list[_WireSequencer]
    events: int
    sth: WireHead | None
    checkpoint: _WireCheckpoint


_decoder = Decoder(_WireHeader)


def wire_header(header: Header) -> dict[str, Any]:
    return {
        "format": "enc-archive",
        "version": 1,
        "enclave": header.enclave.hex(),
        "enc_v": header.enc_v,
        "sequencers": [{"seq_pub": key.hex(), "from_seq": seq} for key, seq in header.sequencers],
        "events": header.events,
        "sth": None if header.sth is None else wire_head(header.sth),
        "checkpoint": {"seq": header.checkpoint_seq, "ct_root": header.checkpoint_root.hex()},
    }


def parse_header(line: bytes) -> Header:
    wire = decode_json(line, _decoder, InvalidArchive)
    check_numbers(InvalidArchive, enc_v=wire.enc_v, events=wire.events)
    check_numbers(InvalidArchive, **{"checkpoint.seq": wire.checkpoint.seq})
    for i, sequencer in enumerate(wire.sequencers):
        check_numbers(InvalidArchive, **{f"sequencers[{i}].from_seq": sequencer.from_seq})
    try:
        sth = None if wire.sth is None else head_from_wire(wire.sth)
    except PeerError as e:
        raise InvalidArchive(f"header: {e.message}") from None
    return Header(
        enclave=unhex(wire.enclave, 32, "enclave", InvalidArchive),
        enc_v=wire.enc_v,
        sequencers=tuple((unhex(s.seq_pub, 32, "seq_pub", InvalidArchive), s.from_seq) for s in wire.sequencers),
        events=wire.events,
        sth=sth,
        checkpoint_seq=wire.checkpoint.seq,
        checkpoint_root=unhex(wire.checkpoint.ct_root, 32, "checkpoint.ct_root", InvalidArchive),
    )


# Bytes


def write_archive(header: Header, events: Iterable[Event], level: int = 3) -> Iterator[bytes]:
    """Yield the archive's bytes in pieces."""
    return write_lines(header, (msgspec.json.encode(wire_event(event)) for event in events), level)


def write_lines(header: Header, lines: Iterable[bytes], level: int = 3) -> Iterator[bytes]:
    """Yield the archive's bytes from events that are JSON already, each without its line feed."""
    compressor = compressor_of(level)
    waiting = [msgspec.json.encode(wire_header(header)), b"\n"]
    size = 0
    for line in lines:
        waiting += [line, b"\n"]
        size += len(line)
        if size > _CHUNK:
            yield compressor.compress(b"".join(waiting))
            waiting, size = [], 0
    yield compressor.compress(b"".join(waiting)) + compressor.flush()


def compressor_of(level: int = 3) -> "zstandard.ZstdCompressionObj":
    """Return what compresses the lines of one archive, or of events alone."""
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()


def pack_events(events: Iterable[Event], level: int = 3) -> bytes:
    """Return events compressed as in an archive, without a header."""
    compressor = compressor_of(level)
    pieces = [compressor.compress(msgspec.json.encode(wire_event(event)) + b"\n") for event in events]
    return b"".join([*pieces, compressor.flush()])


def unpack_events(data: bytes, *, max_line: int = MAX_LINE, max_total: int = MAX_TOTAL) -> Iterator[Event]:
    """Yield the events that `pack_events` packed; raise InvalidArchive if malformed or over a
    bound."""
    return _events(unpack_lines([data], max_line=max_line, max_total=max_total))


def unpack_lines(chunks: Iterable[bytes], *, max_line: int = MAX_LINE, max_total: int = MAX_TOTAL) -> Iterator[bytes]:
    """Yield the compressed lines, not parsed; raise InvalidArchive if malformed or over a bound."""
    return _lines(decompressed(chunks, max_total), max_line)


def read_archive(
    chunks: Iterable[bytes], *, max_line: int = MAX_LINE, max_total: int = MAX_TOTAL
) -> tuple[Header, Iterator[Event]]:
    """Return the header and an iterator over the events; both raise InvalidArchive if malformed or
    over a bound."""
    header, lines = read_lines(chunks, max_line=max_line, max_total=max_total)
    return header, _events(lines)


def read_lines(
    chunks: Iterable[bytes], *, max_line: int = MAX_LINE, max_total: int = MAX_TOTAL
) -> tuple[Header, Iterator[bytes]]:
    """Return the header and an iterator over the events' lines, which are not parsed."""
    lines = unpack_lines(chunks, max_line=max_line, max_total=max_total)
    first = next(lines, None)
    if first is None:
        raise InvalidArchive("the archive is empty")
    return parse_header(first), lines


def _events(lines: Iterator[bytes]) -> Iterator[Event]:
    for number, line in enumerate(lines, 2):
        try:
            event = parse_event(line)
        except PeerError as e:
            raise InvalidArchive(f"line {number}: {e.message}") from None
        yield event


def decompressed(chunks: Iterable[bytes], max_total: int = MAX_TOTAL) -> Iterator[bytes]:
    """Yield the decompressed bytes of one whole frame in bounded pieces; raise InvalidArchive if it
    is not a frame."""
    return _joined(_decompress(chunks, max_total))


def _decompress(chunks: Iterable[bytes], max_total: int) -> Iterator[bytes]:
    """Yield decompressed bytes. Input is fed in small slices, so that a bomb meets the bound before
    it fills memory."""
    frame = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()
    total = 0
    for chunk in chunks:
        for at in range(0, len(chunk), _SLICE):
            if frame.eof:
                raise InvalidArchive("data follows the end of the archive")
            try:
                piece = frame.decompress(chunk[at : at + _SLICE])
            except zstandard.ZstdError as e:
                raise InvalidArchive(f"not zstd: {e}") from None
            total += len(piece)
            if total > max_total:
                raise InvalidArchive(f"the archive is over {max_total} bytes, decompressed")
            yield piece
    if not frame.eof:
        raise InvalidArchive("the archive is truncated")
    if frame.unused_data:
        raise InvalidArchive("data follows the end of the archive")


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about one size. Bytes before a failure are yielded before
    it is raised."""
    waiting, size, failure = list[bytes](), 0, None
    while failure is None:
        try:
            piece = next(pieces, None)
        except InvalidArchive as e:
            piece, failure = None, e
        if piece is None:
            break
        waiting.append(piece)
        size += len(piece)
        if size >= _PIECE:
            whole = b"".join(waiting)
            yield from (whole[at : at + _PIECE] for at in range(0, size, _PIECE))
            waiting, size = [], 0
    yield b"".join(waiting)
    if failure is not None:
        raise failure


def _lines(pieces: Iterator[bytes], max_line: int) -> Iterator[bytes]:
    """Yield whole lines. The last must end with a line feed too, so that a truncated file is
    detected."""
    parts: list[bytes] = []
    size = 0

    def add(part: bytes) -> None:
        nonlocal size
        parts.append(part)
        size += len(part)
        if size > max_line:
            raise InvalidArchive(f"a line is over {max_line} bytes")

    for piece in pieces:
        first, *more = piece.split(b"\n")
        add(first)
        if more:
            yield b"".join(parts)
            parts.clear()
            size, rest = 0, more.pop()
            if more and max(map(len, more)) > max_line:
                raise InvalidArchive(f"a line is over {max_line} bytes")
            yield from more
            add(rest)
    if size:
        raise InvalidArchive("the archive is truncated within a line")
