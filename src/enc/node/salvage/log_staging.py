"""Writes a salvaged log under the number that it had, with the charges that it had."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from enc.node.store.sqlite.batch import add_usage
from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.event_rows import key_of
from enc.node.store.sqlite.staging import STAGED, SqliteStaging
from enc.node.store.store_interface import Charge

_BY_AUTHOR = (
    "SELECT substr(head, 156, 64) AS author, sum(k = ?), count(*), sum(length(CAST(content AS BLOB))) "
    "FROM events WHERE k BETWEEN ? AND ? GROUP BY author"
)


class SalvageStaging(SqliteStaging):
    """A log that is replayed again. Batches of pushes name logs by their numbers, so it keeps its own."""

    def __init__(self, database: NodeDatabase, enclave: bytes, e: int, charges: Sequence[Charge]) -> None:
        """`charges`: rows that may be charges; see FoundLog.charges."""
        self._number, self._found_charges = e, charges
        super().__init__(database, enclave, held=-1)

    def _begin(self, db: sqlite3.Connection) -> None:
        self._e = self._number
        query = "INSERT OR REPLACE INTO enclaves (e, enclave, manifest, purged) VALUES (?, ?, '', ?)"
        db.execute(query, (self._e, self.name, STAGED))

    def _charge(self, db: sqlite3.Connection, last: int, payer: bytes) -> None:
        """Charge each part of the log to the identity that was charged, or else to the authors."""
        charges, at = self._charges(db, last), 0
        bulk_insert(db, "INSERT INTO charges", [(self._e, c.first_seq, c.last_seq, c.identity) for c in charges])
        for charge in charges:
            self._charge_authors(db, at, charge.first_seq - 1)
            used = self._used(db, charge.first_seq, charge.last_seq)
            add_usage(db, [(charge.identity, *(sum(row[i] for row in used) for i in (1, 2, 3)))])
            at = charge.last_seq + 1
        self._charge_authors(db, at, last)

    def _charge_authors(self, db: sqlite3.Connection, first: int, last: int) -> None:
        add_usage(db, self._used(db, first, last))

    def _used(self, db: sqlite3.Connection, first: int, last: int) -> list[tuple[Any, ...]]:
        """Return how many enclaves, events and bytes each author has in a part of the log."""
        args = key_of(self._e, 0), key_of(self._e, first), key_of(self._e, last)
        return [
            (bytes.fromhex(author.decode()), enclaves, events, size or 0)
            for author, enclaves, events, size in db.execute(_BY_AUTHOR, args)
        ]

    def _charges(self, db: sqlite3.Connection, last: int) -> list[Charge]:
        """Return the charges, which do not overlap, without what is a hash of the tree."""
        found, at = list[Charge](), 0
        is_hash = "SELECT 1 FROM log_nodes WHERE e = ? AND level = ? AND i = ? AND hash = ?"
        for each in self._found_charges:
            args = self._e, each.first_seq, each.last_seq, each.identity
            if at <= each.first_seq <= each.last_seq <= last and db.execute(is_hash, args).fetchone() is None:
                found.append(each)
                at = each.last_seq + 1
        return found
