"""Connections to the database file: one that writes, some that read, and a lock that excludes other
processes.

SQLite errors become Unavailable here. Their messages may quote paths and SQL, so only the name of
the error code is reported. Paths appear only in messages from before the node serves: the operator
sees those, peers do not.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock, Semaphore

from enc.core.errors import MisuseError, Unavailable
from enc.node.store.damage import DamagedData
from enc.node.store.sqlite.upgrade import APPLICATION
from enc.runtime.locks import FileLock, LockHeld

WRITER_CACHE_KIB, READER_CACHE_KIB = 48 * 1024, 4 * 1024
MAX_READERS = 12
"""Maximum number of concurrent reads. With the writer's cache, all caches stay under 100 MB."""
PAGE_BYTES = 8192
"""Page size of a new store. An event takes about 1,000 bytes; doubling SQLite's default page size
halves the number of writes.
"""
CHECKPOINT_PAGES = 2000
"""Pages in the write-ahead log after which a commit also copies them into the database: 16 MB."""
MAX_WAL_BYTES = 64 << 20
"""Maximum size of the write-ahead log's file after it was copied into the database."""
BUSY_S = 30

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_DATA")

AfterCommit = Callable[[], None]


def unavailable(what: str, error: sqlite3.Error) -> Unavailable:
    """Return the error for a failure of SQLite: DamagedData if a page cannot be read or is not one."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    kind = DamagedData if name.startswith(_DAMAGE) else Unavailable
    return kind(f"the store cannot be {what}: {name}", retry_after_ms=1000)


def lock_store(path: Path) -> FileLock:
    """Lock the file beside the database, so that one process uses the store; Unavailable if another does."""
    try:
        return FileLock(path)
    except LockHeld:
        raise Unavailable(f"the store is in use by another process, which holds {path}") from None
    except OSError as e:
        raise Unavailable(f"the store's lock file cannot be opened: {path}: {e.strerror}") from None


def _connect(path: Path, cache_kib: int) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S, cached_statements=256)
    db.execute(f"PRAGMA cache_size = -{cache_kib}")
    return db


def open_existing(path: Path) -> sqlite3.Connection:
    """Open a read-only connection to an existing store, whether or not its node runs.

    Raises MisuseError if the file is missing or is not a store. A connection in SQLite's read-only
    mode would leave a `-wal` and a `-shm` file beside the store of a stopped node; this one does
    not.
    """
    if not path.is_file():
        raise MisuseError(f"{path}: no such file")
    with ExitStack() as undo:
        try:
            db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_S)
            undo.callback(db.close)
            db.execute("PRAGMA query_only = ON")
            (application,) = db.execute("PRAGMA application_id").fetchone()
        except sqlite3.Error as e:
            raise Unavailable(f"{path}: cannot be read: {e}") from None
        if application != APPLICATION:
            raise MisuseError(f"{path}: not a node's store")
        undo.pop_all()
    return db


def connect_writer(path: Path) -> sqlite3.Connection:
    db = _connect(path, WRITER_CACHE_KIB)
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")  # an erased content is overwritten, not only freed
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    db.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
    return db


class Writer:
    """The only connection that writes."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self.db = connect_writer(path)
        self._is_closed, self._waits = False, True
        self.is_rolled_back = True
        """Whether the last failed transaction surely changed nothing."""

    def transact(self, work: Callable[[sqlite3.Connection], AfterCommit | None], *, lasting: bool = True) -> None:
        """Run the work in one transaction, durably. Call the function that it returns after the
        commit.

        After a failure the next call starts afresh. Work that need not be `lasting` does not wait
        for the disk: it survives the death of the process, and survives that of the machine once a
        later lasting transaction is committed.
        """
        with self._lock:
            self.is_rolled_back = True
            try:
                self._wait_for_disk(lasting)
                self.db.execute("BEGIN IMMEDIATE")
                after_commit = work(self.db)
                self.is_rolled_back = False
                self.db.execute("COMMIT")
            except BaseException as e:
                self._roll_back()
                if isinstance(e, sqlite3.Error):
                    raise unavailable("written", e) from e
                raise
            if after_commit is not None:
                after_commit()

    def _wait_for_disk(self, waits: bool) -> None:
        if waits != self._waits:
            self.db.execute(f"PRAGMA synchronous = {'FULL' if waits else 'NORMAL'}")
            self._waits = waits

    def _roll_back(self) -> None:
        """Roll back. A connection that cannot even do that is closed, to be reopened by `ready`."""
        try:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self.db.close()
            self._is_closed, self.is_rolled_back = True, False

    def ready(self) -> None:
        """Reopen the connection if it was closed after a failure."""
        if self._is_closed:
            self.db = connect_writer(self._path)
            self._is_closed, self._waits = False, True

    def close(self) -> None:
        """Copy the write-ahead log into the database, so that the database is one file again."""
        with self._lock:
            with suppress(sqlite3.Error):  # what cannot be copied stays in the log; the next start reads it
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.db.close()


class Readers:
    """A pool of read-only connections. Each sees what was committed when it is lent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[sqlite3.Connection] = []
        self._slots = Semaphore(MAX_READERS)
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        with self._slots:
            if self._closed:
                raise Unavailable("the store is closed")
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._open()
            try:
                yield db
                if db.in_transaction:
                    db.execute("ROLLBACK")
            except BaseException as e:
                db.close()
                if isinstance(e, sqlite3.Error):
                    raise unavailable("read", e) from e
                raise
            self._idle.append(db)

    def _open(self) -> sqlite3.Connection:
        try:
            db = _connect(self._path, READER_CACHE_KIB)
            db.execute("PRAGMA query_only = ON")
        except sqlite3.Error as e:
            raise unavailable("read", e) from e
        return db

    def close(self) -> None:
        """Wait for running reads, then close the connections."""
        self._closed = True
        for _ in range(MAX_READERS):
            self._slots.acquire()
        while self._idle:
            self._idle.pop().close()
        self._slots.release(MAX_READERS)
