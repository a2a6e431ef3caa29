"""Checks queues against themselves and the logs: each batch has its number and refers to existing
events, and no event is sent twice.

No log records deliveries, so those are counted: each number that a queue has given belongs to a
batch that waits, was delivered or is dead. enc.node.fsck compares the endpoints with the log.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder

from enc.node.store.sqlite.event_rows import key_of
from enc.node.store.sqlite.push.delivery_results import DEAD, WAITING

_runs = Decoder(tuple[list[tuple[int, int, int]], list[tuple[int, int, dict[str, int]]]]).decode
_members = Decoder(tuple[list[int], list[int]]).decode
_sizes = Decoder(list[int]).decode
_types = Decoder(dict[str, int]).decode

_COUNTED = (
    "SELECT count(*), coalesce(max(push_seq), 0), coalesce(min(push_seq), 1), coalesce(sum(state = 0), 0), "
    "coalesce(sum(iif(state = 0, events, 0)), 0), coalesce(sum(state = 2), 0) FROM batches WHERE q = ?"
)
_ENDPOINT = (
    "SELECT confirmed_at, challenges, held_until, missing, failures, renew_at, suspended FROM queues WHERE q = ?"
)


class _Run(Struct, frozen=True):
    """A row of the outbox."""

    e: int
    first_seq: int
    count: int
    types: dict[str, int] | None
    members: tuple[list[int], list[int]]


def check_push(db: sqlite3.Connection) -> Iterator[str]:
    """Yield what is wrong: the first problem of each row or queue."""
    logs = _Logs(db)
    waiting = defaultdict[int, list[_Run]](list)
    for o, *row in db.execute("SELECT o, e, first_seq, a, sizes, types FROM outbox ORDER BY o"):
        run = _outbox_row(db, *row)
        if wrong := "cannot be read" if run is None else logs.outbox(run):
            yield f"outbox {o}: {wrong}"
            continue
        for q in run.members[0] if run else ():
            waiting[q] += [run] if run else []
    for q, identity, url, *counts in db.execute(
        "SELECT q, identity, url, push_seq, waiting, waiting_events, dead, delivered, forgotten FROM queues"
    ).fetchall():
        wrong = _check_counts(db, q, *counts) or _check_batches(db, q, logs, waiting.pop(q, []))
        if wrong := wrong or _check_endpoint(db, q):
            yield f"queue {q}, of {identity.hex()} at {url}: {wrong}"
    yield from (f"outbox: a row for queue {q}, which does not exist" for q in waiting)
    yield from _strays(db)


def _strays(db: sqlite3.Connection) -> Iterator[str]:
    if db.execute("SELECT 1 FROM batches WHERE q NOT IN (SELECT q FROM queues) LIMIT 1").fetchone():
        yield "batches: a row without a queue"
    query = "SELECT 1 FROM endpoints WHERE (identity, url) NOT IN (SELECT identity, url FROM queues) LIMIT 1"
    if db.execute(query).fetchone():
        yield "endpoints: a row without a queue"


def _outbox_row(
    db: sqlite3.Connection, e: int, first_seq: int, a: int, sizes: bytes, types: bytes | None
) -> _Run | None:
    """Return the row, or None if it cannot be decoded."""
    audience = db.execute("SELECT members FROM audiences WHERE a = ?", (a,)).fetchone()
    with suppress(MsgspecError, TypeError):
        members = _members(audience[0])
        return _Run(e, first_seq, len(_sizes(sizes)), None if types is None else _types(types), members)
    return None


class _Logs:
    """The events that each enclave has."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._purged = dict(db.execute("SELECT e, purged FROM enclaves"))
        query = "SELECT e, type, sum(total) FROM kinds GROUP BY e, type"
        self._totals = {(e, type_): total for e, type_, total in db.execute(query)}

    def outbox(self, run: _Run) -> str | None:
        """Return what is wrong with a row of the outbox."""
        if bool(run.members[1]) != (run.types is not None):
            return "type_seq: missing, or present though no recipient gets notices"
        return self.run(run.e, run.first_seq, run.count) or self.types(run.e, run.types or {})

    def run(self, e: int, first_seq: int, count: int) -> str | None:
        """Return what is wrong with a reference to events."""
        if e not in self._purged:
            return "refers to an enclave that does not exist"
        if count < 1:
            return "refers to no event"
        ends = (key_of(e, first_seq), key_of(e, first_seq + count - 1))
        if self._purged[e] or all(self._db.execute("SELECT 1 FROM events WHERE k = ?", (k,)).fetchone() for k in ends):
            return None
        return "refers to a missing event"

    def types(self, e: int, types: dict[str, int]) -> str | None:
        if self._purged[e] or all(0 < n <= self._totals.get((e, type_), 0) for type_, n in types.items()):
            return None
        return "type_seq: more events than the log has"


def _check_counts(
    db: sqlite3.Connection, q: int, push_seq: int, waiting: int, events: int, dead: int, delivered: int, forgotten: int
) -> str | None:
    kept, highest, lowest, *counted = db.execute(_COUNTED, (q,)).fetchone()
    if [waiting, events, dead] != counted:
        return "its counts of batches: wrong"
    if highest > push_seq or lowest < 1 or push_seq != waiting + dead + delivered + forgotten:
        return "push_seq: not the sum of its batches"
    return "delivered: more batches are stored" if kept > waiting + dead + delivered else None


def _check_endpoint(db: sqlite3.Connection, q: int) -> str | None:
    confirmed_at, *numbers, suspended = db.execute(_ENDPOINT, (q,)).fetchone()
    if confirmed_at is not None and suspended:
        return "confirmed_at: the endpoint is both confirmed and suspended"
    are_whole = all(isinstance(number, int) and number >= 0 for number in (confirmed_at or 0, *numbers))
    return None if are_whole and suspended in (0, 1) else "the state of its endpoint: invalid values"


def _check_batches(db: sqlite3.Connection, q: int, logs: _Logs, outbox: list[_Run]) -> str | None:
    """Check each batch, and that each enclave's events appear once and in order."""
    last = dict[int, int]()
    query = "SELECT push_seq, runs, events, state, settled_at FROM batches WHERE q = ? ORDER BY push_seq"
    for push_seq, packed, events, state, settled_at in db.execute(query, (q,)):
        try:
            runs, notices = _runs(packed)
        except (MsgspecError, TypeError):
            return f"batch {push_seq}: cannot be read"
        if not WAITING <= state <= DEAD or (settled_at is None) != (state == WAITING):
            return f"batch {push_seq}: neither waiting nor delivered nor dead"
        if events != sum(count for *_, count in runs) + len(notices) or not events:
            return f"batch {push_seq}: events: wrong count"
        wrongs = [logs.run(*run) for run in runs]
        wrongs += [logs.run(e, seq, 1) or logs.types(e, types) for e, seq, types in notices]
        if wrong := next(filter(None, wrongs), None) or _check_order(last, runs):
            return f"batch {push_seq}: {wrong}"
    wrong = _check_order(last, [(run.e, run.first_seq, run.count) for run in outbox])
    return f"outbox: {wrong}" if wrong else None


def _check_order(last: dict[int, int], runs: list[tuple[int, int, int]]) -> str | None:
    for e, first_seq, count in runs:
        if first_seq <= last.get(e, -1):
            return "an event twice, or out of order"
        last[e] = first_seq + count - 1
    return None
