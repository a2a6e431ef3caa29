"""Stores what happens to batches after they are made: attempts, deliveries, deaths, redeliveries,
deletion.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence

from enc.node.store.push_interface import ChallengeResult, DeadBatch, DeliveryResult, PostponedResult, PushResult
from enc.node.store.sqlite.push.endpoint_state import record_challenge, resume, suspend

WAITING, DELIVERED, DEAD = 0, 1, 2
"""Values of `batches.state`."""
MAX_ERROR = 200
"""Characters of an error that are stored."""

NOTE_ERROR = (
    "UPDATE queues SET last_error = ?1, last_error_at = ?2, missing = ?3, failures = ?4, held_until = ?5, "
    "confirmed_at = iif(?6, NULL, confirmed_at), challenges = iif(?6, 0, challenges) WHERE q = ?7"
)
FIND = "SELECT b, events FROM batches WHERE q = ? AND push_seq = ? AND state = 0"
POSTPONE = "UPDATE batches SET next_try = ? WHERE q = ? AND push_seq = ? AND state = 0"
OLD = "SELECT b, q FROM batches WHERE state = ? AND state > 0 AND settled_at <= ? LIMIT ?"
REVIVE = (
    "UPDATE batches SET state = 0, tries = 0, next_try = ?, settled_at = NULL "
    "WHERE b IN (SELECT b FROM batches WHERE q = ? AND state = 2 ORDER BY b LIMIT ?) RETURNING events"
)
MAX_REVIVED = 2000
"""Batches revived by one transaction: it bounds how long commits wait."""


def record_results(db: sqlite3.Connection, results: Sequence[PushResult]) -> list[DeadBatch]:
    died = list[DeadBatch]()
    for result in results:
        if isinstance(result, ChallengeResult):
            record_challenge(db, result, MAX_ERROR)
            continue
        if isinstance(result, PostponedResult):
            db.execute(POSTPONE, (result.next_try, result.queue, result.push_seq))
            continue
        row = db.execute(FIND, (result.queue, result.push_seq)).fetchone()
        if row is None:
            continue
        if result.error:
            _note_error(db, result)
        if result.error and result.suspend_until is not None:
            suspend(db, result)
        elif result.error and result.next_try is not None:
            db.execute("UPDATE batches SET tries = tries + 1, next_try = ? WHERE b = ?", (result.next_try, row[0]))
        else:
            _end(db, result, *row)
        if result.error and result.next_try is None and result.suspend_until is None:
            died.append(_died(db, result))
    return died


def _note_error(db: sqlite3.Connection, result: DeliveryResult) -> None:
    state = result.missing, result.failures, result.resume_at, result.must_confirm
    db.execute(NOTE_ERROR, (result.error[:MAX_ERROR], result.at, *state, result.queue))


def _end(db: sqlite3.Connection, result: DeliveryResult, b: int, events: int) -> None:
    """Mark the batch as delivered or dead. A dead one ends the confirmation: the next delivery needs a
    challenge.
    """
    is_dead = bool(result.error)
    db.execute(
        "UPDATE batches SET state = ?, settled_at = ?, tries = tries + ? WHERE b = ?",
        (DEAD if is_dead else DELIVERED, result.at, is_dead, b),
    )
    db.execute(
        "UPDATE queues SET waiting = waiting - 1, waiting_events = waiting_events - ?1, dead = dead + ?2, "
        "delivered = delivered + (1 - ?2), missing = 0, failures = iif(?2, failures, 0), "
        "held_until = iif(?2, held_until, 0), confirmed_at = iif(?2, NULL, confirmed_at) WHERE q = ?3",
        (events, int(is_dead), result.queue),
    )


def _died(db: sqlite3.Connection, result: DeliveryResult) -> DeadBatch:
    identity, url = db.execute("SELECT identity, url FROM queues WHERE q = ?", (result.queue,)).fetchone()
    return DeadBatch(result.queue, result.push_seq, identity, url, result.error)


def delete_settled(db: sqlite3.Connection, delivered_before: int, dead_before: int, limit: int) -> bool:
    """Delete batches that were delivered or died long ago. Returns whether there is more."""
    left = limit
    for state, before in ((DELIVERED, delivered_before), (DEAD, dead_before)):
        rows = db.execute(OLD, (state, before, left)).fetchall()
        db.executemany("DELETE FROM batches WHERE b = ?", [(b,) for b, _ in rows])
        if state == DEAD:
            counts = [(n, n, q) for q, n in Counter(q for _, q in rows).items()]
            db.executemany("UPDATE queues SET dead = dead - ?, forgotten = forgotten + ? WHERE q = ?", counts)
        left -= len(rows)
    return left == 0


def has_settled_before(db: sqlite3.Connection, delivered_before: int, dead_before: int) -> bool:
    pairs = ((DELIVERED, delivered_before), (DEAD, dead_before))
    return any(db.execute(OLD, (*pair, 1)).fetchone() for pair in pairs)


def redeliver(db: sqlite3.Connection, now: int, identity: bytes | None, url: str | None) -> int:
    """Let up to MAX_REVIVED dead batches of these queues, or of all, wait again, and end the queues'
    holds.

    Returns the number of batches; 0 when there are no more.
    """
    resume(db, identity, url)
    query = (
        "SELECT q FROM queues WHERE dead > 0 AND (?1 IS NULL OR identity = ?1) AND (?2 IS NULL OR url = ?2) ORDER BY q"
    )
    count = 0
    for (q,) in db.execute(query, (identity, url)).fetchall():
        count += _revive(db, q, now, MAX_REVIVED - count)
        if count == MAX_REVIVED:
            break
    return count


def _revive(db: sqlite3.Connection, q: int, now: int, most: int) -> int:
    revived = db.execute(REVIVE, (now, q, most)).fetchall()
    db.execute(
        "UPDATE queues SET waiting = waiting + ?1, waiting_events = waiting_events + ?2, dead = dead - ?1 WHERE q = ?3",
        (len(revived), sum(events for (events,) in revived), q),
    )
    return len(revived)
