"""The contents that a SqliteStore withholds (enc.node.store.withheld_store documents the protocol).

The row in `events` has the statement, and `withheld_contents` the content. Triggers delete the
latter with the former, whatever erases the event.
"""

import sqlite3
from collections.abc import Callable

from msgspec.json import Decoder

from enc.core.errors import EventNotFound
from enc.core.log.withheld import WireWithheld, withheld_from_wire
from enc.core.primitives.types import Withheld
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.event_rows import MAX_SEQ, SEQ_BITS, id_of, key_of, pack_statement
from enc.node.store.withheld_store import WithheldContent, WithheldEvent

_KEEP = (
    "INSERT INTO withheld_contents SELECT k, iif(?2, content, NULL), ?3 FROM events WHERE k = ?1 "
    "ON CONFLICT DO UPDATE SET content = iif(?2, withheld_contents.content, NULL), note = excluded.note"
)
_WITHHOLD = "UPDATE events SET content = NULL, withheld = ?, auto_delete = iif(?, auto_delete, NULL) WHERE k = ?"
_SHOW = (
    "UPDATE events SET withheld = NULL, content = (SELECT content FROM withheld_contents WHERE k = events.k) "
    "WHERE k = ? AND withheld IS NOT NULL"
)
_LIST = (
    "SELECT enclave, events.k, head, withheld, w.k, w.content, note FROM events INDEXED BY events_withheld "
    "CROSS JOIN enclaves ON e = events.k >> 40 LEFT JOIN withheld_contents AS w ON w.k = events.k "
    "WHERE withheld IS NOT NULL AND purged = 0 ORDER BY events.k LIMIT ? OFFSET ?"
)
_OLD = "k BETWEEN :first AND :last"
_NEW = "k BETWEEN :first + :shift AND :last + :shift"
# An event that has neither a content nor a statement in the new log is erased there.
_CARRY = (
    "INSERT INTO withheld_contents "  # noqa: S608 - no part is a peer's
    "SELECT b.k, iif(w.content IS NULL, NULL, coalesce(b.content, w.content)), note FROM withheld_contents AS w "
    "CROSS JOIN events AS a ON a.k = w.k CROSS JOIN events AS b ON b.k = w.k + :shift "
    f"WHERE w.{_OLD} AND substr(a.head, 8, 64) = substr(b.head, 8, 64) "
    "AND (b.content IS NOT NULL OR b.withheld IS NOT NULL)"
)
_WITHHOLD_AGAIN = (
    "UPDATE events SET content = NULL, withheld = (SELECT withheld FROM events AS a WHERE a.k = events.k - :shift), "  # noqa: S608
    "auto_delete = (SELECT auto_delete FROM events AS a WHERE a.k = events.k - :shift) "
    f"WHERE k IN (SELECT k FROM withheld_contents WHERE {_NEW})"
)

_decode = Decoder(WireWithheld).decode


def carry_over(db: sqlite3.Connection, old: int, new: int) -> None:
    """Withhold in the log with the number `new` what the operator withholds in the log that it replaces."""
    ends = {"first": key_of(old, 0), "last": key_of(old, MAX_SEQ), "shift": (new - old) << SEQ_BITS}
    db.execute(_CARRY, ends)
    db.execute(_WITHHOLD_AGAIN, ends)
    db.execute(f"DELETE FROM withheld_contents WHERE {_OLD}", ends)  # noqa: S608


class WithheldTables:
    """The withheld part of the store, over the database that all parts share."""

    database: NodeDatabase

    def enclave_of(self, event_id: bytes) -> bytes | None:
        query = "SELECT enclave FROM enclaves WHERE e = ? AND purged = 0"
        with self.database.readers.lend() as db:
            keys = self.database.cache.ids.find_all(db, event_id)
            found = [row for k in keys for row in db.execute(query, (k >> SEQ_BITS,))]
        return bytes(found[0][0]) if found else None

    def withhold(self, enclave: bytes, event_id: bytes, statement: Withheld, note: str, *, keep: bool) -> None:
        def work(db: sqlite3.Connection, k: int) -> None:
            db.execute(_KEEP, (k, keep, note))
            db.execute(_WITHHOLD, (pack_statement(statement), keep, k))

        self._change(enclave, event_id, work)

    def unwithhold(self, enclave: bytes, event_id: bytes) -> None:
        self._change(enclave, event_id, lambda db, k: db.execute(_SHOW, (k,)))

    def _change(self, enclave: bytes, event_id: bytes, change: Callable[[sqlite3.Connection, int], object]) -> None:
        def work(db: sqlite3.Connection) -> None:
            k = self._key(db, enclave, event_id)
            if k is None:
                raise EventNotFound("event: not in this enclave")
            change(db, k)

        self.database.transact(work)

    def _key(self, db: sqlite3.Connection, enclave: bytes, event_id: bytes) -> int | None:
        e = self.database.number(db, enclave)
        return None if e is None else self.database.cache.ids.find(db, e, event_id)

    def withheld_content(self, enclave: bytes, event_id: bytes) -> WithheldContent | None:
        with self.database.readers.lend() as db:
            k = self._key(db, enclave, event_id)
            row = db.execute("SELECT content, note FROM withheld_contents WHERE k = ?", (k,)).fetchone()
        return None if row is None else WithheldContent(*row)

    def withheld_events(self, skip: int, limit: int) -> list[WithheldEvent]:
        return [
            WithheldEvent(
                enclave,
                k & MAX_SEQ,
                id_of(head),
                withheld_from_wire(_decode(statement)),
                None if own is None else WithheldContent(content, note),
            )
            for enclave, k, head, statement, own, content, note in self.database.rows(_LIST, limit, skip)
        ]
