"""Reads the pages of a store's file and of its write-ahead log, as far as they can be read.

Nothing is written, and no lock of SQLite's is taken. Of the write-ahead log, those frames count that
are whole and not after the last whole commit; unlike in SQLite, one damaged frame does not take the
later ones with it.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from enc.core.errors import MisuseError, Unavailable
from enc.node.store.sqlite.connection import PAGE_BYTES
from enc.node.store.sqlite.upgrade import APPLICATION

MAGIC = b"SQLite format 3\0"
WAL_HEADER, FRAME_HEADER = 32, 24
_BIG_ENDIAN, _LITTLE_ENDIAN = 0x377F0683, 0x377F0682
_MASK = 0xFFFFFFFF


class Pages:
    """The pages of one store, by number from 1 on."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise MisuseError(f"{path}: no such file")
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            raise Unavailable(f"{path}: cannot be read: {e.strerror}") from None
        try:
            header = _read(self._file, 0, 100)
            if header.startswith(MAGIC) and int.from_bytes(header[68:72]) != APPLICATION:
                raise MisuseError(f"{path}: not a node's store")
            self._wal = _Wal(path.with_name(f"{path.name}-wal"), _page_size(header))
        except BaseException:
            os.close(self._file)
            raise
        self.size = _page_size(header) or self._wal.page_size or PAGE_BYTES
        self.count = self._wal.pages or -(-os.fstat(self._file).st_size // self.size)
        self.damaged_frames = self._wal.damaged

    def read(self, number: int) -> bytes | None:
        """Return the latest committed version of a page, or None if it cannot be read."""
        if not 1 <= number <= self.count:
            return None
        data = self._wal.read(number)
        if data is None:
            data = _read(self._file, (number - 1) * self.size, self.size)
        return data if len(data) == self.size else None

    def close(self) -> None:
        os.close(self._file)
        self._wal.close()


class _Wal:
    """The write-ahead log: the place of each page in it."""

    def __init__(self, path: Path, page_size: int) -> None:
        self._file: int | None = None
        with suppress(FileNotFoundError):
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.pages = self.damaged = 0
        """Size of the database in pages after the last commit, 0 if there is none; and how many frames
        are damaged."""
        self._places = dict[int, int]()
        header = b"" if self._file is None else _read(self._file, 0, WAL_HEADER)
        is_whole = len(header) == WAL_HEADER and _seed(header) is not None
        self.page_size = page_size or (int.from_bytes(header[8:12]) if is_whole else 0)
        if len(header) == WAL_HEADER and self.page_size:
            self._find_frames(header)

    def _find_frames(self, header: bytes) -> None:
        found = dict[int, int]()
        for frame, page, pages in self._frames(header):
            found[page] = frame
            if pages:  # a commit
                self._places |= found
                self.pages = pages
                found.clear()

    def _frames(self, header: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield the place, the page's number and the commit's size in pages of each whole frame."""
        seed, order = _seed(header), ">" if int.from_bytes(header[:4]) == _BIG_ENDIAN else "<"
        salts, at = header[16:24] if seed else b"", WAL_HEADER
        while len(frame := self._frame(at)) == FRAME_HEADER + self.page_size:
            salts = salts or frame[8:16]
            if frame[8:16] == salts:
                own = struct.unpack(">II", frame[16:24])
                if seed and _checksum(order, seed, frame[:8] + frame[FRAME_HEADER:]) == own:
                    yield at, int.from_bytes(frame[:4]), int.from_bytes(frame[4:8])
                else:
                    self.damaged += 1
                seed = own
            at += len(frame)

    def _frame(self, at: int) -> bytes:
        return b"" if self._file is None else _read(self._file, at, FRAME_HEADER + self.page_size)

    def read(self, number: int) -> bytes | None:
        at = self._places.get(number)
        return None if at is None else self._frame(at)[FRAME_HEADER:]

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


def _read(file: int, at: int, size: int) -> bytes:
    """Return the bytes; fewer at the end of the file, and none where the disk cannot read them."""
    with suppress(OSError):
        return os.pread(file, size, at)
    return b""


def _page_size(header: bytes) -> int:
    """Return the size in the header of a database; 0 if the header is damaged."""
    size = int.from_bytes(header[16:18])
    size = 65536 if size == 1 else size
    is_size = 512 <= size <= 65536 and not size & (size - 1)
    return size if header.startswith(MAGIC) and is_size else 0


def _seed(header: bytes) -> tuple[int, int] | None:
    """Return the checksum of a log's header, or None if the header is damaged."""
    magic = int.from_bytes(header[:4])
    if magic not in (_BIG_ENDIAN, _LITTLE_ENDIAN):
        return None
    own = struct.unpack(">II", header[24:32])
    return own if _checksum(">" if magic == _BIG_ENDIAN else "<", (0, 0), header[:24]) == own else None


def _checksum(order: str, seed: tuple[int, int], data: bytes) -> tuple[int, int]:
    words, (a, b) = struct.unpack(f"{order}{len(data) // 4}I", data), seed
    for first, second in zip(words[::2], words[1::2], strict=True):
        a = (a + first + b) & _MASK
        b = (b + second + a) & _MASK
    return a, b
