"""Deletes an enclave's rows in bounded steps, each a transaction."""

import sqlite3
from collections.abc import Callable

from enc.node.store.sqlite.event_index import EventIndex, EventKeys
from enc.node.store.sqlite.event_rows import MAX_SEQ, author_of, id_of, key_of

_TABLES = {
    "tags": "e, t8, seq",
    "outbox": "o",
    "endpoints": "e, identity, trait",
    "pending": "e, key",
    "tree_nodes": "e, hash",
    "log_nodes": "e, level, i",
    "bundles": "e, i",
    "records": "e, kind, key",
    "charges": "e, first_seq",
    "sizes": "e",
    "kinds": "c",
}
"""Tables other than `events`, each with its key. Tables with a row per event come first, `kinds`
last.
"""

MAX_BYTES = 16 << 20
"""Size of the contents that one step deletes: freed pages are overwritten first."""

BEGUN, DONE = 1, 2
"""Values of `enclaves.purged`."""


def mark_purged(db: sqlite3.Connection, e: int) -> None:
    """Make an enclave unreadable, and credit its creator with one enclave."""
    credit_creator(db, e)
    db.execute("UPDATE enclaves SET purged = ? WHERE e = ?", (BEGUN, e))
    db.execute("UPDATE states SET deadline = NULL WHERE e = ?", (e,))
    db.execute("UPDATE node SET enclaves = enclaves - 1")


def credit_creator(db: sqlite3.Connection, e: int) -> None:
    """Subtract the enclave from what its creator has used."""
    (head,) = db.execute("SELECT head FROM events WHERE k = ?", (key_of(e, 0),)).fetchone()
    charged = db.execute("SELECT identity FROM charges WHERE e = ? AND first_seq = 0", (e,)).fetchone()
    db.execute("UPDATE usage SET enclaves = enclaves - 1 WHERE identity = ?", charged or (author_of(head),))


def delete_rows(db: sqlite3.Connection, ids: EventIndex, e: int, limit: int) -> tuple[bool, Callable[[], None]]:
    """Delete up to `limit` rows.

    Returns whether nothing is left, and a function to be called after the commit.
    """
    places = _some(db, e, max(1, limit // 2))
    db.executemany("DELETE FROM events WHERE k = ?", [(k,) for _, k in places])
    after_commit = ids.remove(db, places)
    left = limit - 2 * len(places)  # an event has two rows: one in `events` and one in `ids`
    if places and left > 0:  # stopped by MAX_BYTES
        return False, after_commit
    for table, key in _TABLES.items():
        if left > 0:
            query = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE e = ? LIMIT ?)"  # noqa: S608
            left -= db.execute(query, (e, left)).rowcount
    if left > 0:
        db.execute("UPDATE enclaves SET purged = ? WHERE e = ?", (DONE, e))
    return left > 0, after_commit


def _some(db: sqlite3.Connection, e: int, most: int) -> EventKeys:
    """Return the first events of the enclave, as many as one step deletes."""
    query = "SELECT k, head, content FROM events WHERE k BETWEEN ? AND ? ORDER BY k LIMIT ?"
    places, size = list[tuple[bytes, int]](), 0
    for k, head, content in db.execute(query, (key_of(e, 0), key_of(e, MAX_SEQ), most)):
        places.append((id_of(head), k))
        size += len(content or "")
        if size > MAX_BYTES:
            break
    return places
