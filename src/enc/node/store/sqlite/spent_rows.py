"""The rows of requests that are accepted once."""

import sqlite3

from enc.node.store.spent_requests import SpentRequest


def read_spent(db: sqlite3.Connection, request: SpentRequest, clock: int) -> tuple[bool, int, int, int]:
    """Return whether a request is kept, how many are in all and of its identity, and the
    milliseconds until the first of its identity, or else of all, may be dropped.
    """
    is_spent = db.execute("SELECT 1 FROM spent_requests WHERE digest = ?", (request.digest,)).fetchone() is not None
    kept = "SELECT count(*), min(until) FROM spent_requests WHERE until > ?"
    count, first = db.execute(kept, (clock,)).fetchone()
    own, own_first = db.execute(f"{kept} AND identity = ?", (clock, request.identity)).fetchone()
    return is_spent, count, own, (own_first or first or clock) - clock
