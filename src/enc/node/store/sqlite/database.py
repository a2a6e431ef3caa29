"""The open database file: its lock, its connections, and what the writer caches."""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from enc.node.store.sqlite.batch import WriterCache
from enc.node.store.sqlite.connection import AfterCommit, Readers, Writer, lock_store, unavailable
from enc.node.store.sqlite.enclave_numbers import EnclaveNumbers
from enc.node.store.sqlite.event_index import EventIndex
from enc.node.store.sqlite.event_rows import SqlRow
from enc.node.store.sqlite.push.backfill import backfill_endpoints
from enc.node.store.sqlite.record_backfill import backfill_records
from enc.node.store.sqlite.upgrade import upgrade


def hidden_numbers(db: sqlite3.Connection) -> set[int]:
    return {e for (e,) in db.execute("SELECT e FROM enclaves WHERE purged = -1")}


class NodeDatabase:
    """One writer and many readers of one file, which no other process writes meanwhile."""

    def __init__(self, path: Path) -> None:
        with ExitStack() as undo:
            self._lock = lock_store(path.with_name(f"{path.name}.lock"))
            undo.callback(self._lock.close)
            try:
                self.writer = Writer(path)
                undo.callback(self.writer.close)
                upgrade(self.writer.db)
                backfill_endpoints(self.writer.db)
                backfill_records(self.writer.db)
                self.cache = WriterCache(EnclaveNumbers(), EventIndex(self.writer.db))
                self.hidden = hidden_numbers(self.writer.db)
                """Numbers of logs that are not an enclave's: staged or left over."""
            except sqlite3.Error as e:
                raise unavailable("opened", e) from e
            self.readers = Readers(path)
            self._cache_is_stale = False
            self.staged: dict[bytes, int] = {}
            """Numbers of the logs that are being imported, by name."""
            undo.pop_all()

    def close(self) -> None:
        self.readers.close()
        self.writer.close()
        self._lock.close()

    def rows(self, query: str, *args: Any) -> list[SqlRow]:
        with self.readers.lend() as db:
            return db.execute(query, args).fetchall()

    def rows_of(self, enclave: bytes, query: str, *args: Any) -> list[SqlRow]:
        """Return the rows of a query whose first argument is the enclave's number."""
        with self.readers.lend() as db:
            e = self.number(db, enclave)
            return [] if e is None else db.execute(query, (e, *args)).fetchall()

    def number(self, db: sqlite3.Connection, enclave: bytes) -> int | None:
        """Return the enclave's number; None if it does not exist or is purged."""
        numbers = self.cache.numbers
        e = numbers.get(enclave) or self.staged.get(enclave)
        if e is None:
            epoch = numbers.epoch
            row = db.execute("SELECT e FROM enclaves WHERE enclave = ? AND purged = 0", (enclave,)).fetchone()
            if row is not None:
                e = row[0]
                numbers.put(enclave, row[0], epoch)
        return e

    def transact(self, work: Callable[[sqlite3.Connection], AfterCommit | None], *, lasting: bool = True) -> None:
        """Run the work in one transaction; see Writer.transact.

        After a failed COMMIT, reload the cache: the transaction may have reached the disk.
        """
        try:
            if self._cache_is_stale:
                self._reload_cache()
            self.writer.transact(work, lasting=lasting)
        except sqlite3.Error as e:
            raise unavailable("written", e) from e
        except BaseException:
            if not self.writer.is_rolled_back:
                self._cache_is_stale = True
                with suppress(sqlite3.Error):  # else before the next write
                    self._reload_cache()
            raise

    def _reload_cache(self) -> None:
        self.writer.ready()
        self.cache = WriterCache(EnclaveNumbers(), EventIndex(self.writer.db))
        self.hidden = hidden_numbers(self.writer.db)
        self._cache_is_stale = False
