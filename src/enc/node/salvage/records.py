"""Decodes the rows in a page of an SQLite database (https://sqlite.org/fileformat2.html).

The page may be damaged: whatever is inconsistent raises BadRecord, and nothing is allocated that is
larger than the file.
"""

import struct
from collections.abc import Callable

ROWS, KEYS, INNER_KEYS = 0x0D, 0x0A, 0x02
"""Types of a page that holds rows: of a table; of an index or a table WITHOUT ROWID, at its leaves or
above them.
"""

Value = int | float | str | bytes | None


class BadRecord(Exception):
    """The page does not hold a row there."""


class RecordPage:
    """A page that may hold rows."""

    def __init__(self, data: bytes, number: int, size: int, pages: int, read: Callable[[int], bytes | None]) -> None:
        """`size`: of a page in bytes; the node reserves none of them. `pages`: number of pages in the
        file; `read` returns one of them.
        """
        self._data, self._usable, self._pages, self._read = data, size, pages, read
        start = 100 if number == 1 else 0
        self.kind = data[start]
        first = start + (12 if self.kind == INNER_KEYS else 8)
        count = min(int.from_bytes(data[start + 3 : start + 5]), (len(data) - first) // 2)
        self.cells: tuple[int, ...] = ()
        if self.kind in (ROWS, KEYS, INNER_KEYS):
            self.cells = struct.unpack_from(f">{count}H", data, first)

    def rowid(self, cell: int) -> int:
        """Return the rowid of a cell of a table."""
        _, at = _varint(self._data, self.cells[cell])
        rowid, _ = _varint(self._data, at)
        return rowid - (1 << 64) if rowid >> 63 else rowid

    def record(self, cell: int) -> list[Value]:
        """Return the columns of a cell."""
        at = self.cells[cell] + (4 if self.kind == INNER_KEYS else 0)
        size, at = _varint(self._data, at)
        if self.kind == ROWS:
            _, at = _varint(self._data, at)
        return _decode(self._payload(size, at))

    def _payload(self, size: int, at: int) -> bytes:
        usable = self._usable
        if size > usable * self._pages:
            raise BadRecord
        most = usable - 35 if self.kind == ROWS else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return self._slice(at, size)
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        here = here if here <= most else least
        parts, left = [self._slice(at, here)], size - here
        number = int.from_bytes(self._slice(at + here, 4))
        while left > 0:
            page = self._read(number)
            if page is None:
                raise BadRecord
            parts.append(page[4 : min(usable, 4 + left)])
            left -= len(parts[-1])
            number = int.from_bytes(page[:4])
        return b"".join(parts)

    def _slice(self, at: int, size: int) -> bytes:
        found = self._data[at : at + size]
        if len(found) != size:
            raise BadRecord
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number and the place after it."""
    value = 0
    for place in range(at, min(at + 8, len(data))):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    if at + 8 >= len(data):
        raise BadRecord
    return value << 8 | data[at + 8], at + 9


_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


def _decode(payload: bytes) -> list[Value]:
    end, at = _varint(payload, 0)
    values, body = list[Value](), end
    while at < end:
        type_, at = _varint(payload, at)
        size = _size(type_)
        values.append(_value(type_, payload[body : body + size]))
        body += size
    if at != end or body != len(payload):
        raise BadRecord
    return values


def _size(type_: int) -> int:
    if type_ >= 12:
        return (type_ - 12) // 2
    if type_ in (10, 11):
        raise BadRecord
    return 8 if type_ == 7 else _INTEGERS.get(type_, 0)


def _value(type_: int, data: bytes) -> Value:
    if type_ in _INTEGERS:
        return int.from_bytes(data, signed=True)
    if type_ == 7:
        return float(struct.unpack(">d", data)[0]) if len(data) == 8 else None
    if type_ >= 12:
        return _text(data) if type_ % 2 else data
    return None if type_ == 0 else type_ - 8


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRecord from None
