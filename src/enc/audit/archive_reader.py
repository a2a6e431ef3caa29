"""Reads an archive's lines from any position, in blocks, so that memory is bounded."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from enc.core.errors import InvalidArchive, MisuseError
from enc.core.machine.archive import MAX_LINE, Header, decompressed, parse_header

HEADS = "heads.jsonl"
SUFFIXES = (".enc", ".zst", ".enc-archive")
CHUNK = 1 << 16
"""Bytes per read."""


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def found_archives(paths: Sequence[str | Path]) -> list[str]:
    """Return the archives among files and, recursively, in folders, sorted by name."""
    return _found(paths, SUFFIXES)


def found_heads(paths: Sequence[str | Path]) -> list[str]:
    """Return the head files in folders."""
    return _found([path for path in paths if os.path.isdir(path)], (os.sep + HEADS,))


def _found(paths: Sequence[str | Path], endings: tuple[str, ...]) -> list[str]:
    found: set[str] = set()
    for path in map(str, paths):
        if os.path.isdir(path):
            for folder, _, names in os.walk(path, onerror=_raise_unreadable):
                found |= {each for name in names if (each := os.path.join(folder, name)).endswith(endings)}
        else:
            found.add(path)
    return sorted(os.path.abspath(path) for path in found)


def _raise_unreadable(error: OSError) -> None:
    """Raise for a folder that cannot be opened: skipping it silently would hide archives."""
    raise MisuseError(f"{error.filename}: cannot be read: {error.strerror}")


def read_header(path: str) -> Header:
    for lines in _blocks(path):
        return parse_header(lines[0])
    raise InvalidArchive("the archive is empty")


def read_lines(
    path: str, first: int = 0, last: int | None = None, digest: Digest | None = None
) -> Iterator[list[bytes]]:
    """Yield event lines from number `first` to before number `last`, in blocks.

    `digest` is updated with all lines before `last`, including those before `first`.
    """
    at = 0
    for lines in _blocks(path, skip=1 if digest is not None else first + 1):
        if digest is not None:
            hashed = lines if last is None else lines[: max(last - at, 0)]
            digest.update(b"\n".join([*hashed, b""]))
            kept = hashed[max(first - at, 0) :]
            at += len(lines)
        else:
            kept = lines if last is None else lines[: max(last - first - at, 0)]
            at += len(lines)
        if kept:
            yield kept
        if last is not None and at >= last - (0 if digest is not None else first):
            return


def digest_of(path: str, events: int) -> str | None:
    """Return the SHA-256 of the first event lines, unparsed; None if there are fewer."""
    digest, left = hashlib.sha256(), events
    for lines in _blocks(path, skip=1):
        hashed = lines[:left]
        digest.update(b"\n".join([*hashed, b""]))
        left -= len(hashed)
        if not left:
            return digest.hexdigest()
    return None if left else digest.hexdigest()


def _blocks(path: str, skip: int = 0) -> Iterator[list[bytes]]:
    """Yield complete lines after the first `skip`. The last must end with a newline: else the file
    was cut off.
    """
    left: list[bytes] = []
    size = 0
    for piece in _pieces(path):
        if skip and (count := piece.count(b"\n")) < skip:  # only counted, not split
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
        raise InvalidArchive("the archive is truncated within a line")


def _pieces(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from decompressed(iter(lambda: file.read(CHUNK), b""))
    except OSError as e:
        raise InvalidArchive(f"cannot be read: {e.strerror}") from None
