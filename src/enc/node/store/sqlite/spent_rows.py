"""The rows of requests that are accepted once."""

import sqlite3

from enc.node.store import spent_requests
from enc.node.store.spent_requests import SpentRequest, check_unspent, too_many_spent
from enc.node.store.sqlite.connection import AfterCommit
from enc.node.store.sqlite.database import NodeDatabase
from enc.runtime.fair_share import FairShare

MAX_DROPPED = 256
"""Most rows that one request drops: it runs on the sequencer's thread."""


class SpentRows:
    """Keeps the requests. Counts the rows in memory: anybody may ask a hundred times in a second, and
    there are many rows. For one thread.

    Addresses are kept in memory only: after a restart, earlier requests count to none of them.
    """

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database
        self._places: FairShare | None = None
        """Counts the rows by address; None: their number is not known."""
        self._addresses: dict[bytes, str] = {}
        """Address of a row, by its digest, where it has one."""

    def spend(self, request: SpentRequest, clock: int) -> None:
        """Keep a request, unless it is kept already or too many are; drop some whose time is over."""
        with self._database.readers.lend() as db:
            is_spent, own, wait_ms, is_one_over = _read(db, request, clock)
            places = self._places or self._count(db)
        check_unspent(is_spent, own, wait_ms)
        if is_one_over:
            self._drop(places, clock)
        if not places.take(request.address):
            raise too_many_spent(wait_ms)
        if request.address is not None:
            self._addresses[request.digest] = request.address

        def work(db: sqlite3.Connection) -> None:
            db.execute(_SET_CLOCK, (clock,))
            db.execute("INSERT INTO spent_requests VALUES (?, ?, ?)", (request.digest, request.identity, request.until))

        self._places = None  # unless it succeeds: after a failure the row may be there or not
        self._database.transact(work)
        self._places = places

    def _count(self, db: sqlite3.Connection) -> FairShare:
        """Count the rows, as those of no address."""
        (count,) = db.execute("SELECT count(*) FROM spent_requests").fetchone()
        self._addresses.clear()
        self._places = FairShare(max(spent_requests.MAX_SPENT, count))
        self._places.take(None, count)
        return self._places

    def _drop(self, places: FairShare, clock: int) -> None:
        def work(db: sqlite3.Connection) -> AfterCommit:
            db.execute(_SET_CLOCK, (clock,))
            dropped = db.execute(_DROP, (MAX_DROPPED,)).fetchall()

            def after_commit() -> None:
                for (digest,) in dropped:
                    places.release(self._addresses.pop(digest, None))

            return after_commit

        self._places = None
        self._database.transact(work, lasting=False)
        self._places = places


_SET_CLOCK = "UPDATE node SET clock = max(clock, ?)"
_DROP = """DELETE FROM spent_requests WHERE digest IN (
  SELECT digest FROM spent_requests WHERE until <= (SELECT clock FROM node) ORDER BY until LIMIT ?) RETURNING digest"""


def _read(db: sqlite3.Connection, request: SpentRequest, clock: int) -> tuple[bool, int, int, bool]:
    """Return whether a request is kept, how many of its identity are, the milliseconds until the
    first of its identity, or else of all, may be dropped, and whether one may be dropped now.
    """
    is_spent = db.execute("SELECT 1 FROM spent_requests WHERE digest = ?", (request.digest,)).fetchone() is not None
    over = db.execute("SELECT 1 FROM spent_requests WHERE until <= ? LIMIT 1", (clock,)).fetchone()
    (first,) = db.execute("SELECT min(until) FROM spent_requests WHERE until > ?", (clock,)).fetchone()
    kept = "SELECT count(*), min(until) FROM spent_requests WHERE until > ? AND identity = ?"
    own, own_first = db.execute(kept, (clock, request.identity)).fetchone()
    return is_spent, own, (own_first or first or clock) - clock, over is not None
