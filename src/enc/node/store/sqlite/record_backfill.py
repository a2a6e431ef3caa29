"""Computes the records of every registry again, once, after an upgrade from a version that stored
less of them.

The logs are replayed, with all signatures. A log that the present rules do not allow keeps the
records that it had: a check of the store reports it.
"""

import sqlite3

from enc.core.errors import EncError
from enc.core.machine.replay import Replay
from enc.core.primitives.types import KeyRecord
from enc.core.rules.parse_manifest import parse_manifest
from enc.node.store.sqlite.event_rows import COLUMNS, MAX_SEQ, key_of, unpack_event
from enc.node.store.sqlite.registry_records import put_records

_LOG = f"SELECT {COLUMNS} FROM events WHERE k BETWEEN ? AND ? ORDER BY k"  # noqa: S608


def backfill_records(db: sqlite3.Connection) -> None:
    """Fill `records` in one transaction, if that is pending."""
    (is_due,) = db.execute("SELECT records_due FROM node").fetchone()
    if not is_due:
        return
    db.execute("BEGIN IMMEDIATE")
    for e, manifest in db.execute("SELECT e, manifest FROM enclaves WHERE purged = 0").fetchall():
        if parse_manifest(manifest).registry:
            put_records(db, ((e, record) for record in _records(db, e)))
    db.execute("UPDATE node SET records_due = 0")
    db.execute("COMMIT")


def _records(db: sqlite3.Connection, e: int) -> list[KeyRecord]:
    replay = Replay()
    try:
        for row in db.execute(_LOG, (key_of(e, 0), key_of(e, MAX_SEQ))):
            replay.add(unpack_event(row))
    except EncError:
        return []
    return list(replay.store.records.values())  # type: ignore[attr-defined]
