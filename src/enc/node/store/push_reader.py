"""Queues and batches of a store that another process writes: for the sender, and for operators."""

import sqlite3
from contextlib import closing
from pathlib import Path

from enc.core.errors import Unavailable
from enc.node.store import push_reads, settling
from enc.node.store.base import RawEvent
from enc.node.store.connection import Readers, connect_writer, open_existing, unavailable
from enc.node.store.push import DueBatch, PushBatch, QueueReport
from enc.node.store.stored import read_raw_events


class PushReader:
    """Reads what is committed, by path. Nothing is remembered between two calls, since it may change meanwhile."""

    def __init__(self, path: Path) -> None:
        open_existing(path).close()
        self._readers = Readers(path)

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        with self._readers.lend() as db:
            return push_reads.due(db, now, limit, after)

    def failing(self, limit: int) -> list[int]:
        """Queues with batches that failed and wait to be tried again. It looks at all that waits: once, at a start."""
        with self._readers.lend() as db:
            query = "SELECT DISTINCT q FROM batches WHERE state = 0 AND tries > 0 LIMIT ?"
            return [int(q) for (q,) in db.execute(query, (limit,))]

    def batch(self, queue: int, push_seq: int) -> PushBatch | None:
        with self._readers.lend() as db:
            found = push_reads.batches(db, queue, push_seq, push_seq, 1)
        return found[0] if found else None

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        with self._readers.lend() as db:
            return read_raw_events(db, enclave, first_seq, count)

    def close(self) -> None:
        self._readers.close()


def read_reports(path: Path, limit: int = 10_000) -> list[QueueReport]:
    """How the queues of a store stand, whether its node runs or not."""
    with closing(open_existing(path)) as db:
        try:
            return push_reads.reports(db, None, None, limit)
        except sqlite3.Error as e:
            raise _unread(path, e) from None


def redeliver_at(path: Path, now: int, identity: bytes | None = None, url: str | None = None) -> int:
    """Let dead batches of a store wait again, whether its node runs or not; how many there were."""
    open_existing(path).close()
    count, some = 0, -1
    try:
        with closing(connect_writer(path)) as db:
            while some:  # in small transactions: a running node's commits wait for each
                db.execute("BEGIN IMMEDIATE")
                some = settling.redeliver(db, now, identity, url)
                db.execute("COMMIT")
                count += max(some, 0)
    except sqlite3.Error as e:
        raise _unread(path, e) from None
    return count


def _unread(path: Path, error: sqlite3.Error) -> Unavailable:
    return Unavailable(f"{path}: {unavailable('used', error).message}: a store without queues, or a busy one")
