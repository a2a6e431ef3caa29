"""Stores what is known of a queue's endpoint: whether it is confirmed, and until when it is held."""

import sqlite3

from enc.node.store.push_interface import ChallengeResult, DeliveryResult

NOT_CONFIRMED = "the endpoint was not confirmed"

CONFIRM = (
    "UPDATE queues SET confirmed_at = ?, confirmed_to = ?, challenges = 0, held_until = 0, missing = 0, suspended = 0, "
    "failures = 0, renew_at = 0 WHERE q = ?"
)
FAIL = (
    "UPDATE queues SET confirmed_at = NULL, challenges = challenges + 1, held_until = ?, last_error = ?, "
    "last_error_at = ? WHERE q = ?"
)
POSTPONE = "UPDATE queues SET challenges = challenges + 1, renew_at = ?, last_error = ?, last_error_at = ? WHERE q = ?"
SUSPEND = (
    "UPDATE queues SET confirmed_at = NULL, challenges = 0, held_until = ?, missing = 0, suspended = 1 WHERE q = ?"
)
REGISTER = (
    "UPDATE queues SET registrar = ?, challenges = 0, held_until = 0, missing = 0, failures = 0 "
    "WHERE identity = ? AND url = ? AND confirmed_at IS NULL"
)
RESUME = (
    "UPDATE queues SET registrar = iif(confirmed_at IS NULL, 0, registrar), challenges = 0, held_until = 0, "
    "missing = 0, failures = 0, renew_at = 0 "
    "WHERE held_until > 0 AND (?1 IS NULL OR identity = ?1) AND (?2 IS NULL OR url = ?2)"
)
EXPIRED = (
    "SELECT b, batches.q, events FROM batches INDEXED BY batches_oldest CROSS JOIN queues ON queues.q = batches.q "
    "WHERE state = 0 AND made_at <= ?1 AND next_try <= ?1 AND confirmed_at IS NULL ORDER BY made_at LIMIT ?2"
)


def open_queue(db: sqlite3.Connection, identity: bytes, url: str, registrar: int) -> int:
    """Create a queue unless it exists. Returns its number if it was created."""
    query = "INSERT OR IGNORE INTO queues (identity, url, registrar) VALUES (?, ?, ?)"
    return db.execute(query, (identity, url, registrar)).lastrowid or 0


def register_endpoint(db: sqlite3.Connection, identity: bytes, url: str, registrar: int) -> None:
    """Create the endpoint's queue, or end its hold if it is not confirmed."""
    open_queue(db, identity, url, registrar)
    db.execute(REGISTER, (registrar, identity, url))


def record_challenge(db: sqlite3.Connection, result: ChallengeResult, max_error: int) -> None:
    if result.error:
        query = POSTPONE if result.is_confirmed else FAIL
        db.execute(query, (result.held_until, result.error[:max_error], result.at, result.queue))
    else:
        db.execute(CONFIRM, (result.at, result.address, result.queue))


def suspend(db: sqlite3.Connection, result: DeliveryResult) -> None:
    db.execute(SUSPEND, (result.suspend_until, result.queue))


def resume(db: sqlite3.Connection, identity: bytes | None, url: str | None) -> int:
    """End the holds of these queues, or of all. Returns their number."""
    return db.execute(RESUME, (identity, url)).rowcount


def find_expired(db: sqlite3.Connection, made_before: int, limit: int) -> list[tuple[int, int, int]]:
    """Return row, queue and events of batches that waited too long for an unconfirmed endpoint."""
    return db.execute(EXPIRED, (made_before, limit)).fetchall()


def expire(db: sqlite3.Connection, made_before: int, now: int, limit: int) -> int:
    """Declare those batches dead. Returns their number."""
    rows = find_expired(db, made_before, limit)
    db.executemany("UPDATE batches SET state = 2, settled_at = ? WHERE b = ?", [(now, b) for b, _, _ in rows])
    db.executemany(
        "UPDATE queues SET waiting = waiting - 1, waiting_events = waiting_events - ?, dead = dead + 1, "
        "last_error = iif(last_error = '', ?, last_error), last_error_at = coalesce(last_error_at, ?) WHERE q = ?",
        [(events, NOT_CONFIRMED, now, q) for _, q, events in rows],
    )
    return len(rows)
