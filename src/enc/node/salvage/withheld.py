"""Copies the contents that the operator of a damaged store keeps aside."""

import sqlite3

from enc.core.primitives.hashing import content_hash
from enc.node.salvage.found_rows import FoundRows
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.event_rows import MAX_SEQ, key_of, tags_of
from enc.node.store.sqlite.tag_index import auto_delete

_EVENT = (
    "SELECT a.content_hash, a.head, b.head FROM events AS a LEFT JOIN events AS b ON b.k = a.target "
    "WHERE a.k = ? AND a.withheld IS NOT NULL"
)


def copy_withheld(rows: FoundRows, database: NodeDatabase, e: int) -> None:
    """Copy those that belong to withheld events of the salvaged log with this number."""
    ends = key_of(e, 0), key_of(e, MAX_SEQ)
    # A row may be found twice: a destroyed content stays destroyed.
    query = "SELECT k, content, note FROM withheld_contents WHERE k BETWEEN ? AND ? ORDER BY content IS NOT NULL"
    found = rows.rows(query, *ends)

    def work(db: sqlite3.Connection) -> None:
        for k, content, note in found:
            _copy(db, k, content, note)

    if found:
        database.transact(work)


def _copy(db: sqlite3.Connection, k: int, content: str | None, note: str) -> None:
    event = db.execute(_EVENT, (k,)).fetchone()
    if event is None or (content is not None and content_hash(content) != event[0]):
        return
    new = db.execute("INSERT OR IGNORE INTO withheld_contents VALUES (?, ?, ?)", (k, content, note)).rowcount
    if new and content is not None:
        when = auto_delete(tags_of(event[1]), tags_of(event[2]) if event[2] else ())
        db.execute("UPDATE events SET auto_delete = ? WHERE k = ?", (when, k))
