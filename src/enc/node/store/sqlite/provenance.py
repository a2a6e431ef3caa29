"""Where a store's file was at its last start, and whether the file is a copy.

A copy may lack what the node signed after it was made. A node that continued from it would sign
another history, and everybody who has seen the first one could convict it. So a store that is marked
as restored is served, but nothing is signed, until its operator adopts it.
"""

import sqlite3

from enc.node.store.sqlite.database import NodeDatabase

TABLE = "CREATE TABLE IF NOT EXISTS provenance (restored TEXT NOT NULL, place TEXT NOT NULL)"

ENDS_EARLY = "with logs that end early"
"""Part of the reason of a store that surely lacks what the node signed: it must not be adopted."""


def mark_copy(db: sqlite3.Connection, reason: str) -> None:
    """Mark a database as restored; it may be of a version that has no such table."""
    db.execute(TABLE)
    if not db.execute("UPDATE provenance SET restored = ?", (reason,)).rowcount:
        db.execute("INSERT INTO provenance VALUES (?, '')", (reason,))


class Provenance:
    """The row of an open store."""

    def __init__(self, database: NodeDatabase) -> None:
        self._database = database

    @property
    def restored(self) -> str:
        """Why the node must sign nothing; empty if it may."""
        return str(self._database.rows("SELECT restored FROM provenance")[0][0])

    @property
    def place(self) -> str:
        """Where the file was at the last start, in a form of the caller's; empty if not known."""
        return str(self._database.rows("SELECT place FROM provenance")[0][0])

    def mark(self, reason: str) -> None:
        """Let the node sign nothing until the store is adopted."""
        self._set("UPDATE provenance SET restored = ?", reason)

    def record(self, place: str) -> None:
        """Record where the file is."""
        self._set("UPDATE provenance SET place = ?", place)

    def adopt(self, place: str) -> None:
        """Let the node sign again, from this place."""
        self._set("UPDATE provenance SET restored = '', place = ?", place)

    def _set(self, query: str, value: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.execute(query, (value,))

        self._database.transact(work)
