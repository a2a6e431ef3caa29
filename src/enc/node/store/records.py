"""A registry's records as rows: found by key, by active entry, and, of enclaves, listed by app or creator.

Which index serves a listing is chosen here, so that none walks through entries of others or through deleted ones.
"""

import sqlite3
from collections.abc import Iterable

from enc.core.types import Record
from enc.node.store.insert import bulk_insert
from enc.node.store.rows import Row

COLUMNS = "kind, key, entry, holder, proved_size, sequencer, moved_at, manifest, creator, app, text"
_NAMES = COLUMNS.split(", ")
LISTED = "kind = 'enclave' AND entry IS NOT NULL"
"""What the listing's indexes hold: SQLite can use them for queries that say the same."""


def pack_record(e: int, record: Record) -> Row:
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
    )


def unpack_record(row: Row) -> Record:
    return Record(**dict(zip(_NAMES, row, strict=True)))


def put_records(db: sqlite3.Connection, records: Iterable[tuple[int, Record]]) -> None:
    """Each as it is now; the later of two for one key wins."""
    latest = {(e, record.kind, record.key): pack_record(e, record) for e, record in records}
    bulk_insert(db, "INSERT OR REPLACE INTO records", list(latest.values()))


BY_KEY = f"SELECT {COLUMNS} FROM records WHERE e = ? AND kind = ? AND key = ?"  # noqa: S608
BY_ENTRY = f"SELECT {COLUMNS} FROM records WHERE e = ? AND entry = ?"  # noqa: S608


def listing(after: bytes, limit: int, app: str | None, creator: bytes | None) -> tuple[str, tuple[object, ...]]:
    """The query for active enclaves by rising id, and its arguments after the enclave's number.

    With both an app and a creator the creator picks the rows, and whoever asks looks at the app.
    """
    index, where, args = "listed", "", tuple[object, ...]()
    if creator is not None:
        index, where, args = "creator", "creator = ? AND ", (creator,)
    elif app is not None:
        index, where, args = "app", "app = ? AND ", (app,)
    # Left to itself SQLite walks through the table by its key, past the entries of all others.
    query = (
        f"SELECT {COLUMNS} FROM records INDEXED BY records_{index} "  # noqa: S608
        f"WHERE e = ? AND {where}{LISTED} AND key > ? ORDER BY key LIMIT ?"
    )
    return query, (*args, after, limit)
