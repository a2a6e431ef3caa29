"""A registry's records as rows: found by key, by active entry, and, for enclaves, listed by app or
creator.

The listing names its index, so that no query scans entries of others or deleted ones.
"""

import sqlite3
from collections.abc import Iterable

from msgspec.msgpack import Decoder, Encoder

from enc.core.primitives.types import KeyRecord, Ownership
from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.event_rows import SqlRow

COLUMNS = (
    "kind, key, entry, holder, proved_size, sequencer, moved_at, manifest, creator, app, text, "
    "proved_at, proved_root, moved_time, forced_from"
)
_NAMES = COLUMNS.split(", ")
LISTED = "kind = 'enclave' AND entry IS NOT NULL"
"""Condition of the listing's partial indexes: SQLite uses them only for queries with the same
condition.
"""

_encoder, _decoder = Encoder(), Decoder(tuple[Ownership, ...])


def pack_record(e: int, record: KeyRecord) -> SqlRow:
    return (
        e,
        record.kind,
        record.key,
        record.entry,
        record.holder,
        record.proved_size,
        record.sequencer,
        record.moved_at,
        record.manifest,
        record.creator,
        record.app,
        record.text,
        record.proved_at,
        record.proved_root,
        record.moved_time,
        _encoder.encode(record.forced_from),
    )


def unpack_record(row: SqlRow) -> KeyRecord:
    *rest, forced_from = row
    return KeyRecord(**dict(zip(_NAMES[:-1], rest, strict=True)), forced_from=_decoder.decode(forced_from))


def put_records(db: sqlite3.Connection, records: Iterable[tuple[int, KeyRecord]]) -> None:
    """Store records as they are now; of two with the same key, the later wins."""
    latest = {(e, record.kind, record.key): pack_record(e, record) for e, record in records}
    bulk_insert(db, "INSERT OR REPLACE INTO records", list(latest.values()))


BY_KEY = f"SELECT {COLUMNS} FROM records WHERE e = ? AND kind = ? AND key = ?"  # noqa: S608
BY_ENTRY = f"SELECT {COLUMNS} FROM records WHERE e = ? AND entry = ?"  # noqa: S608


def listing(after: bytes, limit: int, app: str | None, creator: bytes | None) -> tuple[str, tuple[object, ...]]:
    """Return the query for active enclaves by ascending id, and its arguments after the enclave's
    number.

    With both an app and a creator, the creator selects the rows, and the caller filters by app.
    """
    index, where, args = "listed", "", tuple[object, ...]()
    if creator is not None:
        index, where, args = "creator", "creator = ? AND ", (creator,)
    elif app is not None:
        index, where, args = "app", "app = ? AND ", (app,)
    # Without INDEXED BY, SQLite would scan the table by key, past all other entries.
    query = (
        f"SELECT {COLUMNS} FROM records INDEXED BY records_{index} "  # noqa: S608
        f"WHERE e = ? AND {where}{LISTED} AND key > ? ORDER BY key LIMIT ?"
    )
    return query, (*args, after, limit)
