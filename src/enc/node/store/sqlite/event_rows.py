"""Converts events to database rows, and rows to events or wire JSON.

The whole event except its content is in one blob, `head`, as on the wire: nodes mostly serve pages
of events, and this way a page is concatenated, not encoded. Ids and hashes have fixed positions in
it.
"""

from collections.abc import Iterable
from struct import Struct as Layout
from typing import Any, cast

from msgspec.json import encode

from enc.core.log.event import parse_event
from enc.core.log.withheld import wire_withheld
from enc.core.primitives.types import Event, Tags, Withheld
from enc.node.store.events import SearchItem, Status

SEQ_BITS = 40
MAX_SEQ = (1 << SEQ_BITS) - 1

COLUMNS = "k, c, updated_by, iif(content IS NULL, content_hash, NULL), head, content, withheld"
"""Columns from which an event is read; `c` is the number of its kind. The content hash is read only
if the content is missing.
"""

SqlRow = tuple[Any, ...]

_ID, _HASH, _FROM = slice(7, 71), slice(81, 145), slice(155, 219)
ID_SQL = "substr(head, 8, 64)"
"""SQL for an event's id in hex."""

_prefix = Layout(">q").unpack_from
_prefixes = Layout(">q24x").iter_unpack


def first8(hash_: bytes) -> int:
    """Return the first eight bytes of a hash as an integer in SQLite's range."""
    return cast(int, _prefix(hash_)[0])


def all_first8(hashes: Iterable[bytes]) -> list[int]:
    """Return `first8` of many hashes of 32 bytes."""
    return [number for (number,) in _prefixes(b"".join(hashes))]


def key_of(e: int, seq: int) -> int:
    """Return the key of an event of enclave number `e`."""
    return e << SEQ_BITS | seq


def unhexed(digits: bytes) -> bytes:
    return bytes.fromhex(digits.decode())


def id_of(head: bytes) -> bytes:
    return unhexed(head[_ID])


def hash_of(head: bytes) -> bytes:
    return unhexed(head[_HASH])


def author_of(head: bytes) -> bytes:
    return unhexed(head[_FROM])


HEAD, PLAIN_HEAD = 10, 7
"""Places of the head in rows of `pack_event` and `pack_plain`."""


def pack_event(k: int, c: int, event: Event, auto_delete: int | None, target: int | None) -> SqlRow:
    """Return the row of a new event."""
    return (
        k,
        c,
        _prefix(event.from_)[0],
        _prefix(event.hash)[0],
        event.exp,
        event.timestamp,
        auto_delete,
        target,
        None,
        event.content_hash,
        _head(event).encode(),
        event.content,
        None if event.withheld is None else pack_statement(event.withheld),
    )


def pack_statement(statement: Withheld) -> bytes:
    """Return the JSON of a statement that a node withholds a content, as a row and the wire have it."""
    return encode(wire_withheld(statement))


PLAIN = "k, c, from8, hash8, exp, timestamp, content_hash, head, content"
"""Columns of a new event without tags or references, which is the common case."""
PLAIN_ROW = "(?,?,?,?,?,?,?,CAST(? AS BLOB),?)"
"""SQL for one row from pack_plain."""


def pack_plain(k: int, c: int, event: Event) -> SqlRow:
    """Return the row of a plain event. Text and bytearrays are bound directly; for bytes, sqlite3
    looks for an adapter, which is slower.
    """
    return (
        k,
        c,
        _prefix(event.from_)[0],
        _prefix(event.hash)[0],
        event.exp,
        event.timestamp,
        bytearray(event.content_hash),
        _head(event),
        event.content,
    )


def _head(event: Event) -> str:
    """Return the head, concatenated as text in one expression: this runs for every event of every
    imported log.
    """
    tags = encode(event.tags).decode() if event.tags else "[]"
    alg = "" if event.alg == "schnorr" else f',"alg":"{event.alg}"'
    return (
        f'{{"id":"{event.id.hex()}","hash":"{event.hash.hex()}","from":"{event.from_.hex()}",'
        f'"sequencer":"{event.sequencer.hex()}","sig":"{event.sig.hex()}","seq_sig":"{event.seq_sig.hex()}",'
        f'"enclave":"{event.enclave.hex()}","type":{encode(event.type).decode()},"seq":{event.seq},'
        f'"timestamp":{event.timestamp},"exp":{event.exp},"tags":{tags}{alg},"content":'
    )


def json_of(content_hash: bytes, head: bytes, content: str | None, withheld: bytes | None = None) -> bytes:
    """Return the event's wire JSON."""
    return b"%b%b}" % (head, encode(content) if content is not None else missing(content_hash, withheld))


def unpack_event(row: SqlRow) -> Event:
    return parse_event(json_of(*row[3:7]))


def tags_of(head: bytes) -> Tags:
    return parse_event(json_of(bytes(32), head, None)).tags


def status_of(row: SqlRow) -> Status:
    if row[1] < 0:
        return "deleted"
    return "active" if row[2] is None else "updated"


def items(rows: Iterable[SqlRow]) -> list[SearchItem]:
    """Return rows as search results."""
    return [
        SearchItem(
            k & MAX_SEQ, updated_by, head, encode(content) if content is not None else missing(content_hash, withheld)
        )
        for k, _, updated_by, content_hash, head, content, withheld in rows
    ]


def missing(content_hash: bytes, withheld: bytes | None) -> bytes:
    """Return the JSON that replaces a content that is erased or, with its statement, withheld."""
    replaced = b'null,"content_hash":"%b"' % content_hash.hex().encode()
    return replaced if withheld is None else b'%b,"withheld":%b' % (replaced, withheld)
