"""The part of a SqliteStore that is about pushing (enc.node.store.push says what it promises)."""

import sqlite3
from collections.abc import Callable, Sequence

from enc.node.store import push_reads, settling, spreading
from enc.node.store.batch import Known
from enc.node.store.connection import Readers, Settle
from enc.node.store.push import Died, Due, Endpoints, Limits, Outcome, PushBatch, PushTotals, QueueReport


class PushTables:
    """Mixed into the store, whose connections it uses."""

    _readers: Readers
    _known: Known

    def _number(self, db: sqlite3.Connection, enclave: bytes) -> int | None:
        raise NotImplementedError

    def _transact(self, work: Callable[[sqlite3.Connection], Settle | None], *, lasting: bool = True) -> None:
        raise NotImplementedError

    # Reading

    def endpoints(self, enclave: bytes) -> Endpoints:
        with self._readers.lend() as db:
            e = self._number(db, enclave)
            return {} if e is None else push_reads.endpoints(db, e)

    def due(self, now: int, limit: int, after: int = 0) -> list[Due]:
        with self._readers.lend() as db:
            return push_reads.due(db, now, limit, after)

    def batch(self, queue: int, push_seq: int) -> PushBatch | None:
        with self._readers.lend() as db:
            found = push_reads.batches(db, queue, push_seq, push_seq, 1)
        return found[0] if found else None

    def pushed(self, identity: bytes, url: str, first: int, last: int, limit: int) -> list[PushBatch]:
        with self._readers.lend() as db:
            q = push_reads.queue(db, identity, url)
            return [] if q is None else push_reads.batches(db, q, first, last, limit)

    def reports(
        self, enclave: bytes | None = None, identity: bytes | None = None, limit: int = 10_000
    ) -> list[QueueReport]:
        with self._readers.lend() as db:
            e = None if enclave is None else self._number(db, enclave)
            if enclave is not None and e is None:
                return []
            return push_reads.reports(db, e, identity, limit)

    def totals(self) -> PushTotals:
        with self._readers.lend() as db:
            return push_reads.totals(db)

    # Writing

    def spread(self, now: int, limits: Limits = Limits()) -> bool:  # noqa: B008
        with self._readers.lend() as db:
            if db.execute("SELECT 1 FROM outbox LIMIT 1").fetchone() is None:
                return False
        done = spreading.Spread()

        def work(db: sqlite3.Connection) -> Settle | None:
            nonlocal done
            done = spreading.spread(db, now, limits)
            return self._known.audiences.clear if done.has_forgotten else None

        self._transact(work)
        return done.is_more

    def settle(self, outcomes: Sequence[Outcome]) -> list[Died]:
        """A power cut may forget it: the batches then go out once more. So it need not wait for the disk."""
        died = list[Died]()

        def work(db: sqlite3.Connection) -> None:
            died[:] = settling.settle(db, outcomes)

        if outcomes:
            self._transact(work, lasting=False)
        return died

    def retire(self, delivered_before: int, dead_before: int, limit: int = 10_000) -> bool:
        with self._readers.lend() as db:
            if not settling.is_any_old(db, delivered_before, dead_before):
                return False
        is_more = False

        def work(db: sqlite3.Connection) -> None:
            nonlocal is_more
            is_more = settling.retire(db, delivered_before, dead_before, limit)

        self._transact(work, lasting=False)
        return is_more

    def redeliver(self, now: int, identity: bytes | None = None, url: str | None = None) -> int:
        count, some = 0, -1

        def work(db: sqlite3.Connection) -> None:
            nonlocal some
            some = settling.redeliver(db, now, identity, url)

        while some:
            self._transact(work)
            count += some
        return count
