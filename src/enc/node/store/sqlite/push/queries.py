"""Queries about queues and batches in the database."""

import sqlite3
from collections.abc import Iterable
from typing import Any

from msgspec.msgpack import Decoder

from enc.node.store.push_interface import (
    BatchNotice,
    DueBatch,
    Endpoints,
    EventRange,
    PushBatch,
    PushTotals,
    QueueReport,
)

_runs = Decoder(tuple[list[tuple[int, int, int]], list[tuple[int, int, dict[str, int]]]]).decode

# Steps from one queue with waiting batches to the next, and finds in each the batch that is due the
# longest. Other waiting batches, and queues without any, cost nothing.
DUE = """
WITH RECURSIVE some (q) AS (
  SELECT (SELECT q FROM batches WHERE state = 0 AND q > :after ORDER BY q LIMIT 1)
  UNION ALL
  SELECT (SELECT q FROM batches WHERE state = 0 AND q > some.q ORDER BY q LIMIT 1) FROM some WHERE some.q IS NOT NULL
)
SELECT batches.q, batches.push_seq, identity, url, tries, bytes, confirmed_at, challenges, missing, registrar,
  failures, confirmed_to, renew_at FROM some
CROSS JOIN batches ON b = (
  SELECT b FROM batches WHERE state = 0 AND q = some.q AND next_try <= :now ORDER BY next_try, push_seq LIMIT 1
)
CROSS JOIN queues ON queues.q = some.q AND held_until <= :now
LIMIT :limit
"""
BATCHES = (
    "SELECT push_seq, made_at, runs FROM batches WHERE q = ? AND push_seq BETWEEN ? AND ? ORDER BY push_seq LIMIT ?"
)
REPORTS = (
    "SELECT q, identity, url, push_seq, waiting, waiting_events, "
    "iif(waiting, (SELECT min(made_at) FROM batches INDEXED BY batches_waiting "
    "WHERE state = 0 AND batches.q = queues.q), NULL), "
    "delivered, dead, last_error, last_error_at, "
    "CASE WHEN suspended THEN 'suspended' WHEN confirmed_at IS NOT NULL THEN 'confirmed' "
    "WHEN challenges THEN 'challenge failed' ELSE 'unconfirmed' END, confirmed_at, held_until FROM queues"
)
TOTALS = (
    "SELECT count(*), total(waiting), total(dead), total(delivered), "
    "(SELECT min(made_at) FROM batches WHERE state = 0), total(waiting > 0 AND confirmed_at IS NULL) FROM queues"
)
MAX_SEQ = (1 << 63) - 1


def endpoints(db: sqlite3.Connection, e: int) -> Endpoints:
    rows = db.execute("SELECT identity, trait, url FROM endpoints WHERE e = ?", (e,))
    return {(identity, trait): url for identity, trait, url in rows}


def due(db: sqlite3.Connection, now: int, limit: int, after: int) -> list[DueBatch]:
    return [DueBatch(*row) for row in db.execute(DUE, {"now": now, "limit": limit, "after": after})]


def batches(db: sqlite3.Connection, q: int, first: int, last: int, limit: int) -> list[PushBatch]:
    rows = db.execute(BATCHES, (q, min(first, MAX_SEQ), min(last, MAX_SEQ), limit)).fetchall()
    unpacked = [(push_seq, made_at, *_runs(runs)) for push_seq, made_at, runs in rows]
    names = _names(db, {each[0] for _, _, runs, notices in unpacked for each in (*runs, *notices)})
    return [
        PushBatch(
            push_seq,
            made_at,
            tuple(EventRange(names[e], first_seq, count) for e, first_seq, count in runs),
            tuple(BatchNotice(names[e], seq, types) for e, seq, types in notices),
        )
        for push_seq, made_at, runs, notices in unpacked
    ]


def _names(db: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, bytes]:
    """Return the ids of enclaves, including purged ones."""
    return {e: _name(db, e) for e in numbers}


def _name(db: sqlite3.Connection, e: int) -> bytes:
    """Return an enclave's id; for a replaced log, that of the log that replaced it."""
    while True:
        enclave, became = db.execute("SELECT enclave, became FROM enclaves WHERE e = ?", (e,)).fetchone()
        if became is None:
            return bytes(enclave)
        e = became


def queue(db: sqlite3.Connection, identity: bytes, url: str) -> int | None:
    row = db.execute("SELECT q FROM queues WHERE identity = ? AND url = ?", (identity, url)).fetchone()
    return None if row is None else int(row[0])


def reports(db: sqlite3.Connection, e: int | None, identity: bytes | None, limit: int) -> list[QueueReport]:
    """Return the status of all queues, of those with an endpoint in an enclave, or of an
    identity's.
    """
    wheres, args = list[str](), list[Any]()
    if e is not None:
        wheres.append("(identity, url) IN (SELECT identity, url FROM endpoints WHERE e = ?)")
        args.append(e)
    if identity is not None:
        wheres.append("identity = ?")
        args.append(identity)
    where = f" WHERE {' AND '.join(wheres)}" if wheres else ""
    rows = db.execute(f"{REPORTS}{where} ORDER BY identity, url LIMIT ?", (*args, limit))
    return [QueueReport(*row) for row in rows]


def totals(db: sqlite3.Connection) -> PushTotals:
    queues, waiting, dead, delivered, oldest, unconfirmed = db.execute(TOTALS).fetchone()
    return PushTotals(queues, int(waiting), int(dead), int(delivered), oldest, int(unconfirmed))
