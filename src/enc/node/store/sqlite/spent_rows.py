"""The rows of requests that are accepted once."""

import sqlite3

from enc.node.store.spent_requests import SpentRequest, check_unspent
from enc.node.store.sqlite.connection import AfterCommit
from enc.node.store.sqlite.database import NodeDatabase

MAX_DROPPED = 256
"""Most rows that one request drops: it runs on the sequencer's thread."""


class SpentRows:
    """Keeps the requests. Counts the rows in memory: anybody may ask a hundred times in a second, and
    there are many rows. For one thread.
    """

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        self._count: int | None = None
        """Rows of the table; None: not known."""

    def spend(self, request: SpentRequest, clock: int) -> None:
        """Keep a request, unless it is kept already or too many are; drop some whose time is over."""
        with self._database.readers.lend() as db:
            if self._count is None:
                (self._count,) = db.execute("SELECT count(*) FROM spent_requests").fetchone()
            found = _read(db, request, clock, self._count)
        check_unspent(*found)
        before, self._count = self._count, None

        def work(db: sqlite3.Connection) -> AfterCommit:
            db.execute("UPDATE node SET clock = max(clock, ?)", (clock,))
            dropped = db.execute(_DROP, (MAX_DROPPED,)).rowcount
            db.execute("INSERT INTO spent_requests VALUES (?, ?, ?)", (request.digest, request.identity, request.until))

            def after_commit() -> None:
                self._count = before + 1 - dropped

            return after_commit

        self._database.transact(work)


_DROP = """DELETE FROM spent_requests WHERE digest IN (
  SELECT digest FROM spent_requests WHERE until <= (SELECT clock FROM node) ORDER BY until LIMIT ?)"""


def _read(db: sqlite3.Connection, request: SpentRequest, clock: int, rows: int) -> tuple[bool, int, int, int]:
    """Return whether a request is kept, how many are in all and of its identity, and the
    milliseconds until the first of its identity, or else of all, may be dropped.
    """
    is_spent = db.execute("SELECT 1 FROM spent_requests WHERE digest = ?", (request.digest,)).fetchone() is not None
    over = "SELECT count(*) FROM (SELECT 1 FROM spent_requests WHERE until <= ? LIMIT ?)"
    (dropped,) = db.execute(over, (clock, MAX_DROPPED)).fetchone()
    (first,) = db.execute("SELECT min(until) FROM spent_requests WHERE until > ?", (clock,)).fetchone()
    kept = "SELECT count(*), min(until) FROM spent_requests WHERE until > ? AND identity = ?"
    own, own_first = db.execute(kept, (clock, request.identity)).fetchone()
    return is_spent, rows - dropped, own, (own_first or first or clock) - clock
