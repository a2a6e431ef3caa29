"""The push part of a SqliteStore (enc.node.store.push_interface documents the protocol)."""

import sqlite3
from collections.abc import Sequence

from enc.node.store.push_interface import (
    BatchLimits,
    DeadBatch,
    DueBatch,
    Endpoints,
    PushBatch,
    PushResult,
    PushTotals,
    QueueReport,
)
from enc.node.store.sqlite.connection import AfterCommit
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.push import delivery_results, endpoint_state, fan_out, queries


class PushTables:
    """The push half of the store, over the database that both halves share."""

    def __init__(self, database: NodeDatabase) -> None:
        self.database = database

    # Reading

    def endpoints(self, enclave: bytes) -> Endpoints:
        with self.database.readers.lend() as db:
            e = self.database.number(db, enclave)
            return {} if e is None else queries.endpoints(db, e)

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        with self.database.readers.lend() as db:
            return queries.due(db, now, limit, after)

    def batch(self, queue: int, push_seq: int) -> PushBatch | None:
        with self.database.readers.lend() as db:
            found = queries.batches(db, queue, push_seq, push_seq, 1)
        return found[0] if found else None

    def list_batches(self, identity: bytes, url: str, first: int, last: int, limit: int) -> list[PushBatch]:
        with self.database.readers.lend() as db:
            q = queries.queue(db, identity, url)
            return [] if q is None else queries.batches(db, q, first, last, limit)

    def queue_reports(
        self, enclave: bytes | None = None, identity: bytes | None = None, limit: int = 10_000
    ) -> list[QueueReport]:
        with self.database.readers.lend() as db:
            e = None if enclave is None else self.database.number(db, enclave)
            if enclave is not None and e is None:
                return []
            return queries.reports(db, e, identity, limit)

    def totals(self) -> PushTotals:
        with self.database.readers.lend() as db:
            return queries.totals(db)

    # Writing

    def fan_out(self, now: int, limits: BatchLimits = BatchLimits()) -> bool:  # noqa: B008
        with self.database.readers.lend() as db:
            if db.execute("SELECT 1 FROM outbox LIMIT 1").fetchone() is None:
                return False
        done = fan_out.FanOutResult()

        def work(db: sqlite3.Connection) -> AfterCommit | None:
            nonlocal done
            done = fan_out.fan_out(db, now, limits)
            return self.database.cache.audiences.clear if done.has_forgotten else None

        self.database.transact(work)
        return done.is_more

    def record_results(self, results: Sequence[PushResult]) -> list[DeadBatch]:
        """Store results without waiting for the disk: after a power cut, the batches are sent once
        more.
        """
        died = list[DeadBatch]()

        def work(db: sqlite3.Connection) -> None:
            died[:] = delivery_results.record_results(db, results)

        if results:
            self.database.transact(work, lasting=False)
        return died

    def expire_unconfirmed(self, made_before: int, now: int, limit: int = 10_000) -> int:
        with self.database.readers.lend() as db:
            if not endpoint_state.find_expired(db, made_before, 1):
                return 0
        count = 0

        def work(db: sqlite3.Connection) -> None:
            nonlocal count
            count = endpoint_state.expire(db, made_before, now, limit)

        self.database.transact(work, lasting=False)
        return count

    def delete_settled(self, delivered_before: int, dead_before: int, limit: int = 10_000) -> bool:
        with self.database.readers.lend() as db:
            if not delivery_results.has_settled_before(db, delivered_before, dead_before):
                return False
        is_more = False

        def work(db: sqlite3.Connection) -> None:
            nonlocal is_more
            is_more = delivery_results.delete_settled(db, delivered_before, dead_before, limit)

        self.database.transact(work, lasting=False)
        return is_more

    def redeliver(self, now: int, identity: bytes | None = None, url: str | None = None) -> int:
        count, some = 0, -1

        def work(db: sqlite3.Connection) -> None:
            nonlocal some
            some = delivery_results.redeliver(db, now, identity, url)

        while some:
            self.database.transact(work)
            count += some
        return count
