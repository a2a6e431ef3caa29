"""Reads queues and batches of a store that another process writes: for the sender and for
operators.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from enc.core.errors import Unavailable
from enc.node.store.events import RawEvent
from enc.node.store.push_interface import DueBatch, PushBatch, QueueReport, enclaves_of
from enc.node.store.sqlite.connection import Readers, connect_writer, open_existing, unavailable
from enc.node.store.sqlite.event_slices import read_raw_events
from enc.node.store.sqlite.push import delivery_results, endpoint_state, queries
from enc.node.store.sqlite.restrictions.rows import has_suspended


class PushReader:
    """Reads committed data by path. It caches nothing between calls, since the data may change."""

    def __init__(self, path: Path) -> None:
        open_existing(path).close()
        self._readers = Readers(path)

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        with self._readers.lend() as db:
            return queries.due(db, now, limit, after)

    def failing(self, limit: int) -> list[int]:
        """Return queues with batches that failed and wait for another attempt. Scans all waiting
        batches: call it once, at start.
        """
        with self._readers.lend() as db:
            query = "SELECT DISTINCT q FROM batches WHERE state = 0 AND tries > 0 LIMIT ?"
            return [int(q) for (q,) in db.execute(query, (limit,))]

    def batch(self, queue: int, push_seq: int) -> PushBatch | None:
        with self._readers.lend() as db:
            found = queries.batches(db, queue, push_seq, push_seq, 1)
        return found[0] if found else None

    def is_suspended(self, batch: PushBatch) -> bool:
        """Return whether the batch has events or notices of a suspended enclave."""
        with self._readers.lend() as db:
            return has_suspended(db, enclaves_of(batch))

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        with self._readers.lend() as db:
            return read_raw_events(db, enclave, first_seq, count)

    def close(self) -> None:
        self._readers.close()


def read_reports(path: Path, limit: int = 10_000) -> list[QueueReport]:
    """Return the status of a store's queues, whether or not its node runs."""
    with closing(open_existing(path)) as db:
        try:
            return queries.reports(db, None, None, limit)
        except sqlite3.Error as e:
            raise _unread(path, e) from None


def redeliver_at(path: Path, now: int, identity: bytes | None = None, url: str | None = None) -> tuple[int, int]:
    """Let dead batches of a store wait again, and end the holds of its queues, whether or not its
    node runs. Returns the number of batches, and of queues.
    """
    open_existing(path).close()
    count, some, resumed = 0, -1, 0
    try:
        with closing(connect_writer(path)) as db:
            while some:  # in small transactions, since each blocks a running node's commits
                db.execute("BEGIN IMMEDIATE")
                resumed += endpoint_state.resume(db, identity, url)
                some = delivery_results.redeliver(db, now, identity, url)
                db.execute("COMMIT")
                count += max(some, 0)
    except sqlite3.Error as e:
        raise _unread(path, e) from None
    return count, resumed


def _unread(path: Path, error: sqlite3.Error) -> Unavailable:
    return Unavailable(f"{path}: {unavailable('used', error).message}: a store without queues, or a busy one")
