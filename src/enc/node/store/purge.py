"""Taking an enclave away: bounded steps, each a transaction."""

import sqlite3
from collections.abc import Callable

from enc.node.store.ids import EventIndex, EventKeys
from enc.node.store.rows import MAX_SEQ, author_of, id_of, key_of

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
    "kinds": "c",
}
"""Each with its key, beside events: those that have a row for each event first, `kinds` last."""

MAX_BYTES = 16 << 20
"""Of contents that one step takes away: what is let go is overwritten first."""

BEGUN, DONE = 1, 2
"""Values of `enclaves.purged`."""


def mark_purged(db: sqlite3.Connection, e: int) -> None:
    """From now on nothing of it is read; its founder may found another."""
    (head,) = db.execute("SELECT head FROM events WHERE k = ?", (key_of(e, 0),)).fetchone()
    charged = db.execute("SELECT identity FROM charges WHERE e = ? AND first_seq = 0", (e,)).fetchone()
    db.execute("UPDATE enclaves SET purged = ? WHERE e = ?", (BEGUN, e))
    db.execute("UPDATE states SET deadline = NULL WHERE e = ?", (e,))
    db.execute("UPDATE usage SET enclaves = enclaves - 1 WHERE identity = ?", charged or (author_of(head),))
    db.execute("UPDATE node SET enclaves = enclaves - 1")


def delete_rows(db: sqlite3.Connection, ids: EventIndex, e: int, limit: int) -> tuple[bool, Callable[[], None]]:
    """Delete up to `limit` rows. Whether nothing is left, and what to call once that is committed."""
    places = _some(db, e, max(1, limit // 2))
    db.executemany("DELETE FROM events WHERE k = ?", [(k,) for _, k in places])
    after_commit = ids.remove(db, places)
    left = limit - 2 * len(places)  # an event has two rows: its own, and one in `ids`
    if places and left > 0:  # the contents were many bytes
        return False, after_commit
    for table, key in _TABLES.items():
        if left > 0:
            query = f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE e = ? LIMIT ?)"  # noqa: S608
            left -= db.execute(query, (e, left)).rowcount
    if left > 0:
        db.execute("UPDATE enclaves SET purged = ? WHERE e = ?", (DONE, e))
    return left > 0, after_commit


def _some(db: sqlite3.Connection, e: int, most: int) -> EventKeys:
    """The first events of the enclave, as many as one step takes."""
    query = "SELECT k, head, content FROM events WHERE k BETWEEN ? AND ? ORDER BY k LIMIT ?"
    places, size = list[tuple[bytes, int]](), 0
    for k, head, content in db.execute(query, (key_of(e, 0), key_of(e, MAX_SEQ), most)):
        places.append((id_of(head), k))
        size += len(content or "")
        if size > MAX_BYTES:
            break
    return places
