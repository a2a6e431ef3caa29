"""Copies the queues of endpoints, and what waits in them, as far as they were found.

The numbers of a queue's batches must go on where they were: a recipient ignores a number that it has
had. So queues keep their rows. A batch that was not found counts as deleted.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from enc.node.salvage.found_rows import FORMS, FoundRows
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.event_rows import SqlRow
from enc.node.store.sqlite.push.check import check_push
from enc.node.store.sqlite.staging import GONE

_members = Decoder(tuple[list[int], list[int]]).decode
_runs = Decoder(tuple[list[tuple[int, int, int]], list[tuple[int, int, dict[str, int]]]]).decode
_encode = Encoder().encode
_COLUMNS = {form.table: form.columns.split() for form in FORMS}


class SalvagedQueues(Struct):
    """What became of the queues."""

    queues: int = 0
    batches: int = 0
    """Batches that wait for their delivery."""
    lost: int = 0
    """Batches that may have waited, and were not found."""
    restarted: list[tuple[bytes, str]] = []
    """Identity and URL of each endpoint whose queue was not found: it begins with number 1 again."""
    dropped: bool = False
    """Whether what was found contradicts itself, so that no batch is kept."""


def copy_queues(rows: FoundRows, database: NodeDatabase) -> None:
    """Copy the queues, before the logs are replayed: their endpoints then find them."""
    database.transact(lambda db: _insert_all(db, "queues", rows.rows("SELECT * FROM queues")))


def copy_deliveries(rows: FoundRows, database: NodeDatabase) -> SalvagedQueues:
    """Copy what waits, after the logs are replayed."""
    done = SalvagedQueues()

    def work(db: sqlite3.Connection) -> None:
        found = {q for (q,) in rows.rows("SELECT q FROM queues")}
        done.restarted = [
            (bytes(identity), url)
            for q, identity, url in db.execute("SELECT q, identity, url FROM queues")
            if q not in found
        ]
        for q in found:  # a replay changed what is known of their endpoints
            db.execute("DELETE FROM queues WHERE q = ?", (q,))
        _insert_all(db, "queues", rows.rows("SELECT * FROM queues"))
        _copy_batches(db, rows, found)
        _copy_outbox(db, rows, found)
        done.lost = sum(_recount(db, q) for q in found)
        if any(check_push(db)):
            done.dropped = True
            for table in "batches", "outbox", "audiences":
                db.execute(f"DELETE FROM {table}")  # noqa: S608
            done.lost = sum(_recount(db, q) for q in found)
        done.queues = len(found)
        (done.batches,) = db.execute("SELECT count(*) FROM batches WHERE state = 0").fetchone()

    database.transact(work)
    return done


def _insert_all(db: sqlite3.Connection, table: str, rows: Iterable[SqlRow]) -> None:
    """Insert rows; a column that a row lacks gets its default."""
    for row in rows:
        given = {column: value for column, value in zip(_COLUMNS[table], row, strict=True) if value is not None}
        marks = ",".join("?" * len(given))
        db.execute(f"INSERT OR IGNORE INTO {table} ({', '.join(given)}) VALUES ({marks})", [*given.values()])  # noqa: S608


def _copy_batches(db: sqlite3.Connection, rows: FoundRows, queues: set[int]) -> None:
    found = [row for row in rows.rows("SELECT * FROM batches ORDER BY q, push_seq") if row[1] in queues]
    kept = [row for row in found if _numbers(row[4]) is not None]
    _add_missing_logs(db, chain.from_iterable(_numbers(row[4]) or () for row in kept))
    _insert_all(db, "batches", kept)


def _numbers(packed: bytes) -> set[int] | None:
    """Return the numbers of the logs in a batch; None if it cannot be decoded."""
    try:
        runs, notices = _runs(packed)
    except MsgspecError:
        return None
    return {e for e, *_ in (*runs, *notices)}


def _add_missing_logs(db: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Mark logs that batches name and that were not salvaged as gone: batches are sent without them."""
    query = "INSERT OR IGNORE INTO enclaves (e, enclave, manifest, purged) VALUES (?, randomblob(32), '', ?)"
    db.executemany(query, [(e, GONE) for e in set(numbers)])
    db.execute("UPDATE enclaves SET became = NULL WHERE became NOT IN (SELECT e FROM enclaves)")
    db.execute("DELETE FROM sizes WHERE e IN (SELECT e FROM enclaves WHERE purged = ?)", (GONE,))


def _copy_outbox(db: sqlite3.Connection, rows: FoundRows, queues: set[int]) -> None:
    """Copy events that are in no batch yet, without the recipients whose queue was not found."""
    audiences = dict[int, tuple[list[int], list[int]]]()
    for a, packed in rows.rows("SELECT * FROM audiences"):
        try:
            pushed, notified = _members(packed)
        except MsgspecError:
            continue
        audiences[a] = [q for q in pushed if q in queues], [q for q in notified if q in queues]
        db.execute("INSERT OR IGNORE INTO audiences VALUES (?, ?)", (a, _encode(audiences[a])))
    salvaged = {e for (e,) in db.execute("SELECT e FROM enclaves WHERE purged >= 0")}
    for o, e, first_seq, a, sizes, types in rows.rows("SELECT * FROM outbox ORDER BY o"):
        pushed, notified = audiences.get(a, ([], []))
        if e in salvaged and (pushed or notified):
            _insert_all(db, "outbox", [(o, e, first_seq, a, sizes, types if notified else None)])


def _recount(db: sqlite3.Connection, q: int) -> int:
    """Set a queue's counts to what there is; return how many batches were not found, except those that
    were delivered or deleted.
    """
    by_state = "SELECT state, count(*) FROM batches WHERE q = ? GROUP BY state"
    states = Counter[int](dict(db.execute(by_state, (q,)).fetchall()))
    (events, highest) = db.execute(
        "SELECT sum(iif(state = 0, events, 0)), max(push_seq) FROM batches WHERE q = ?", (q,)
    ).fetchone()
    push_seq, waiting, dead, delivered = db.execute(
        "SELECT push_seq, waiting, dead, delivered FROM queues WHERE q = ?", (q,)
    ).fetchone()
    push_seq = max(push_seq, highest or 0)
    settled = push_seq - states[0] - states[2]
    lost: int = max(0, waiting - states[0]) + max(0, dead - states[2])
    delivered = max(states[1], min(delivered, settled))
    args: Sequence[int | None] = push_seq, states[0], events or 0, states[2], delivered, settled - delivered, q
    db.execute(
        "UPDATE queues SET push_seq = ?, waiting = ?, waiting_events = ?, dead = ?, delivered = ?, forgotten = ? "
        "WHERE q = ?",
        args,
    )
    return lost
