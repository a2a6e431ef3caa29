"""The time that a node has recorded of its clock: shows it, and repairs it after a clock that was wrong.

The node signs nothing while its clock is behind the recorded time. If the clock ran ahead by mistake,
events were signed, and the clock was corrected, that is too long for all enclaves but those with the
events: each of these waits by itself until the clock has reached its last event, as its log demands.
"""

import sqlite3

from msgspec import Struct

from enc.core.log.commit import SKEW_MS
from enc.node.store.sqlite.event_rows import MAX_SEQ
from enc.node.store.sqlite.store import SqliteStore

_LAST_TIMES = """SELECT enclave,
  (SELECT timestamp FROM events WHERE k BETWEEN e << 40 AND (e << 40) + ? ORDER BY k DESC LIMIT 1)
FROM enclaves WHERE purged = 0"""


class RecordedClock(Struct, frozen=True):
    """What a store knows of the node's clock. All times are Unix milliseconds."""

    now: int
    """What the wall clock shows."""
    recorded: int
    """The highest time of the clock that a commit recorded; 0: none."""
    newest_event: int
    """The time of the newest event that is not ahead of the wall clock; 0: none."""
    ahead: tuple[tuple[bytes, int], ...]
    """Enclaves whose last event is ahead of the wall clock, with its time."""

    @property
    def behind_ms(self) -> int:
        """How long the node accepts no commits, because the clock is behind what is recorded."""
        return max(self.recorded - SKEW_MS - self.now, 0)


def read_clock(db: sqlite3.Connection, now: int) -> RecordedClock:
    """Read from a store's database, whether its node runs or not."""
    (recorded,) = db.execute("SELECT clock FROM node").fetchone()
    last = [(enclave, time) for enclave, time in db.execute(_LAST_TIMES, (MAX_SEQ,)) if time is not None]
    past = (time for _, time in last if time <= now + SKEW_MS)
    ahead = sorted(((enclave, time) for enclave, time in last if time > now + SKEW_MS), key=lambda one: one[1])
    return RecordedClock(now, recorded, max(past, default=0), tuple(ahead))


def repair_clock(store: SqliteStore, now: int) -> RecordedClock:
    """Record the time of the newest event that is not ahead of the wall clock, if the clock is behind
    what is recorded; return what is recorded then.
    """

    def work(db: sqlite3.Connection) -> None:
        if (clock := read_clock(db, now)).behind_ms:
            db.execute("UPDATE node SET shown = max(shown, clock), clock = ?", (clock.newest_event,))

    store.database.transact(work)
    with store.database.readers.lend() as db:
        return read_clock(db, now)
