"""An archive's lines, from any place on: in blocks, so that memory is bounded whatever the archive's size."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import zstandard

from enc.core.archive import MAX_LINE, Header, parse_header
from enc.core.errors import InvalidArchive

SUFFIXES = (".enc", ".zst", ".enc-archive")
CHUNK, SLICE = 1 << 16, 4096
"""Bytes that are read at once, and that are decompressed at once: what expands a thousandfold is met in parts."""
_WINDOW = 1 << 27


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def found_archives(paths: Sequence[str | Path]) -> list[str]:
    """The archives that files and folders stand for, by name; folders are looked through to their leaves."""
    found: set[str] = set()
    for path in map(str, paths):
        if os.path.isdir(path):
            for folder, _, names in os.walk(path):
                found |= {os.path.join(folder, name) for name in names if name.endswith(SUFFIXES)}
        else:
            found.add(path)
    return sorted(os.path.abspath(path) for path in found)


def read_header(path: str) -> Header:
    for lines in _blocks(path):
        return parse_header(lines[0])
    raise InvalidArchive("the archive is empty")


def read_lines(
    path: str, first: int = 0, last: int | None = None, digest: Digest | None = None
) -> Iterator[list[bytes]]:
    """Lines of events from number `first` to before number `last`, some at a time.

    `digest` is told the bytes of all lines before `last`, those before `first` included.
    """
    at = 0
    for lines in _blocks(path, skip=1 if digest is not None else first + 1):
        if digest is not None:
            told = lines if last is None else lines[: max(last - at, 0)]
            digest.update(b"\n".join([*told, b""]))
            kept = told[max(first - at, 0) :]
            at += len(lines)
        else:
            kept = lines if last is None else lines[: max(last - first - at, 0)]
            at += len(lines)
        if kept:
            yield kept
        if last is not None and at >= last - (0 if digest is not None else first):
            return


def digest_of(path: str, events: int) -> str | None:
    """SHA-256 of the first lines of events; None where there are fewer. No line is looked into."""
    digest, left = hashlib.sha256(), events
    for lines in _blocks(path, skip=1):
        told = lines[:left]
        digest.update(b"\n".join([*told, b""]))
        left -= len(told)
        if not left:
            return digest.hexdigest()
    return None if left else digest.hexdigest()


def _blocks(path: str, skip: int = 0) -> Iterator[list[bytes]]:
    """Whole lines but the first `skip`; the last one must end like the others, so that a cut file is noticed."""
    left: list[bytes] = []
    size = 0
    for piece in _pieces(path):
        if len(piece) > MAX_LINE and max(map(len, piece.split(b"\n"))) > MAX_LINE:
            raise InvalidArchive(f"a line is over {MAX_LINE} bytes")
        if skip and (count := piece.count(b"\n")) < skip:  # looked through, and not taken apart
            skip -= count
            size = size + len(piece) if not count else len(piece) - piece.rindex(b"\n") - 1
            if size > MAX_LINE:
                raise InvalidArchive(f"a line is over {MAX_LINE} bytes")
            continue
        first, *more = piece.split(b"\n")
        left.append(first)
        size += len(first)
        if size > MAX_LINE:
            raise InvalidArchive(f"a line is over {MAX_LINE} bytes")
        if more:
            lines = [b"".join(left), *more[:-1]][skip:]
            left, size, skip = [more[-1]], len(more[-1]), 0
            if lines:
                yield lines
    if size:
        raise InvalidArchive("the archive is cut off within a line")


def _pieces(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from _decompressed(file.read)
    except OSError as e:
        raise InvalidArchive(f"cannot be read: {e.strerror}") from None


def _decompressed(read: "Reads") -> Iterator[bytes]:
    """One frame, whole: the kernel takes no other (enc.core.archive)."""
    frame = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    while chunk := read(CHUNK):
        for at in range(0, len(chunk), SLICE):
            if frame.eof:
                raise InvalidArchive("something follows the end of the archive")
            try:
                piece = frame.decompress(chunk[at : at + SLICE])
            except zstandard.ZstdError as e:
                raise InvalidArchive(f"not zstd: {e}") from None
            if piece:
                yield piece
    if not frame.eof or frame.unused_data:
        raise InvalidArchive("the archive is cut off" if not frame.eof else "something follows the end of the archive")


class Reads(Protocol):
    def __call__(self, size: int, /) -> bytes: ...
