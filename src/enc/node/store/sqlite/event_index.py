"""Finds events by their ids.

Ids are hashes. If each were put into an index as its event arrives, each would change a page of its
own, and that page would cost more than everything else about the event. So the latest ids are kept
in memory, and in a table in order of arrival, from which a restart reads them again. Once there are
GENERATION of them they are sorted; the following writes then move them into the index in order, so
that neighbours share a page, and record how far they have come.
"""

import sqlite3
from collections.abc import Callable, Sequence

from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.event_rows import SEQ_BITS, first8, id_of

GENERATION = 65_536
"""Number of ids that are sorted together: enough that neighbours share a page of the index, few
enough to fit into memory.
"""
PACE = 2
"""Ids that move for each new one, so that a generation has moved before the next one is full."""
STRIDE = 64
"""Minimum number of ids that move at once."""

EventKeys = Sequence[tuple[bytes, int]]
"""(id, key) of each event."""


class EventIndex:
    """The index of event ids. One thread changes it; any thread may read it.

    `add` and `remove` write rows and return a function to be called only after the commit. Added
    ids are found at once, before they are committed: a reader that finds an id in a row also finds
    its event. If the transaction fails, the index is reloaded from the disk.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        (self._last,) = db.execute("SELECT coalesce(max(n), 0) FROM recent_ids").fetchone()
        self._until, moved = db.execute("SELECT ids_until, ids_moved FROM node").fetchone()
        recent = _read_recent(db)
        self._latest: dict[bytes, int] = {id_: k for n, id_, k in recent if n > self._until}
        self._moving: dict[bytes, int] = {id_: k for n, id_, k in recent if n <= self._until and id_ > moved}
        self._queue = sorted(self._moving, reverse=True)
        """Ids that are to move and have not moved yet, the lowest last."""
        self._due = 0
        self._take()

    def add(self, db: sqlite3.Connection, places: EventKeys) -> Callable[[], None]:
        # A bytearray is bound without an adapter lookup; see pack_plain.
        rows = [(n, bytearray(id_), k) for n, (id_, k) in enumerate(places, self._last + 1)]
        bulk_insert(db, "INSERT INTO recent_ids", rows)
        due = self._due + PACE * len(places)
        moved = min(due, len(self._queue)) if due >= STRIDE else 0
        if moved:
            self._move(db, moved)
        self._latest.update(places)

        def after_commit() -> None:
            self._last += len(places)
            if moved:
                del self._queue[-moved:]
            self._due = due if self._queue and not moved else 0
            self._take()

        return after_commit

    def _move(self, db: sqlite3.Connection, count: int) -> None:
        moving, chosen = self._moving, self._queue[-count:]
        chosen.reverse()
        bulk_insert(db, "INSERT INTO ids", [(first8(id_), moving[id_]) for id_ in chosen if id_ in moving])
        if count == len(self._queue):
            db.execute("DELETE FROM recent_ids WHERE n <= ?", (self._until,))
            db.execute("UPDATE node SET ids_until = 0, ids_moved = x''")
        else:
            db.execute("UPDATE node SET ids_until = ?, ids_moved = ?", (self._until, chosen[-1]))

    def _take(self) -> None:
        if self._queue:
            return
        # All moved ids are in the index. `find` looks into `_latest`, `_moving` and then the index,
        # in this order, and so misses none.
        self._moving = {}
        if len(self._latest) >= GENERATION:
            self._queue = sorted(self._latest, reverse=True)
            self._until = self._last
            self._moving = self._latest
            self._latest = {}

    def remove(self, db: sqlite3.Connection, places: EventKeys) -> Callable[[], None]:
        db.executemany("DELETE FROM ids WHERE id8 = ? AND k = ?", [(first8(id_), k) for id_, k in places])

        def after_commit() -> None:
            for id_, _ in places:
                self._latest.pop(id_, None)
                self._moving.pop(id_, None)

        return after_commit

    def find(self, db: sqlite3.Connection, e: int, event_id: bytes) -> int | None:
        """Return the key of the event with this id in enclave number `e`. Call it before `db` reads
        anything else.
        """
        k = self._latest.get(event_id) or self._moving.get(event_id)
        # An imported log has its ids in the index, and may replace one whose ids are still here.
        return k if k is not None and k >> SEQ_BITS == e else find_in_index(db, e, event_id)

    def find_all(self, db: sqlite3.Connection, event_id: bytes) -> list[int]:
        """Return the key of the event with this id in each log that has it, also in logs that are no
        enclave's.
        """
        recent = self._latest.get(event_id) or self._moving.get(event_id)
        query = "SELECT k, head FROM ids CROSS JOIN events USING (k) WHERE id8 = ?"
        found = {k for k, head in db.execute(query, (first8(event_id),)) if id_of(head) == event_id}
        return sorted(found if recent is None else {*found, recent})


def _read_recent(db: sqlite3.Connection) -> list[tuple[int, bytes, int]]:
    """Return the recent ids with their numbers and keys, except those whose events were deleted.

    A damaged page with events does not keep a node from starting: their ids count as present.
    """
    try:
        return db.execute("SELECT n, id, k FROM recent_ids CROSS JOIN events USING (k) ORDER BY n").fetchall()
    except sqlite3.DatabaseError:
        return [row for row in db.execute("SELECT n, id, k FROM recent_ids ORDER BY n") if _is_present(db, row[2])]


def _is_present(db: sqlite3.Connection, k: int) -> bool:
    try:
        return db.execute("SELECT 1 FROM events WHERE k = ?", (k,)).fetchone() is not None
    except sqlite3.DatabaseError:
        return True


def find_in_index(db: sqlite3.Connection, e: int, event_id: bytes) -> int | None:
    low, high = e << SEQ_BITS, (e + 1) << SEQ_BITS
    query = "SELECT k, head FROM ids CROSS JOIN events USING (k) WHERE id8 = ? AND k >= ? AND k < ?"
    for k, head in db.execute(query, (first8(event_id), low, high)):
        if id_of(head) == event_id:
            return int(k)
    return None
