"""Reads a store as it is at one moment, whether or not its node runs. Nothing is written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError, Unavailable
from enc.node.store.sqlite.batch import WriterCache
from enc.node.store.sqlite.connection import Readers, open_existing, unavailable
from enc.node.store.sqlite.database import NodeDatabase, hidden_numbers
from enc.node.store.sqlite.enclave_numbers import EnclaveNumbers
from enc.node.store.sqlite.event_index import EventIndex
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.sqlite.upgrade import LATEST


class _OneReader(Readers):
    """One connection, inside one transaction. May be lent again while it is lent."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._db
        except sqlite3.Error as e:
            raise unavailable("read", e) from e

    def close(self) -> None:
        self._db.close()


class _SnapshotDatabase(NodeDatabase):
    """The database at the moment of the first read."""

    def __init__(self, db: sqlite3.Connection) -> None:
        try:
            db.execute("BEGIN")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != LATEST:
                todo = "use the version of enc that wrote the store"
                raise Unavailable(f"the store has schema {version}, this version of enc reads {LATEST}: {todo}")
            self.readers = _OneReader(db)
            self.cache = WriterCache(EnclaveNumbers(), EventIndex(db))
            self.hidden = hidden_numbers(db)
        except sqlite3.Error as e:
            raise unavailable("read", e) from e
        self.staged = {}

    def transact(self, *args: object, **kwargs: object) -> NoReturn:
        raise MisuseError("a snapshot of a store is read-only")

    def close(self) -> None:
        self.readers.close()


@contextmanager
def open_snapshot(path: Path) -> Iterator[SqliteStore]:
    """Yield the store as it is now. For one thread.

    While it is open, the node's write-ahead log cannot shrink: close it soon.
    """
    with closing(open_existing(path)) as db:
        db.isolation_level = None
        yield SqliteStore(path, _SnapshotDatabase(db))


def has_older_schema(path: Path) -> bool:
    """Return whether opening the store for writing would upgrade it."""
    with closing(open_existing(path)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
    return bool(0 < version < LATEST)
