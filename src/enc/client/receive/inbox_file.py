"""The file of an inbox: a SQLite database that only its owner can read, used by one process at a
time.
"""

import sqlite3
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError, Unavailable
from enc.runtime import private_file
from enc.runtime.locks import FileLock, LockHeld

APPLICATION, VERSION = 0x454E4349, 1
"""The application id in the database: "ENCI"."""

_SCHEMA = """
CREATE TABLE enc_inbox (identity BLOB NOT NULL, url TEXT NOT NULL);
-- the key that the node at a URL was found to have
CREATE TABLE enc_nodes (node TEXT PRIMARY KEY, seq_pub BLOB NOT NULL) WITHOUT ROWID;
-- every batch below `next` is here or was; what lies beyond it came early
CREATE TABLE enc_queues (seq_pub BLOB PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE enc_early (seq_pub BLOB, push_seq INTEGER, PRIMARY KEY (seq_pub, push_seq)) WITHOUT ROWID;
-- whose word counts for an enclave, and the event that was handed over last
CREATE TABLE enc_enclaves (
  enclave BLOB PRIMARY KEY, seq_pub BLOB NOT NULL, last INTEGER NOT NULL DEFAULT -1, last_id BLOB,
  noticed INTEGER NOT NULL DEFAULT -1
) WITHOUT ROWID;
CREATE INDEX enc_enclaves_of ON enc_enclaves (seq_pub);
-- events that wait to be handed over; one whose push_seq lies beyond its queue's `next` waits for those before it
CREATE TABLE enc_events (
  enclave BLOB, seq INTEGER, id BLOB NOT NULL, seq_pub BLOB NOT NULL, push_seq INTEGER NOT NULL, event BLOB NOT NULL,
  PRIMARY KEY (enclave, seq)
) WITHOUT ROWID;
CREATE TABLE enc_notices (enclave BLOB PRIMARY KEY, seq INTEGER NOT NULL, notice BLOB NOT NULL) WITHOUT ROWID;
"""


class Db(sqlite3.Connection):
    """The database that a handler gets. Only the receiver ends its transaction."""

    def commit(self) -> NoReturn:
        raise MisuseError("do not commit: the receiver commits after the handler returns")

    def rollback(self) -> NoReturn:
        raise MisuseError("do not roll back: the receiver does if the handler raises")

    def executescript(self, *_: object) -> NoReturn:
        raise MisuseError("a script would end the receiver's transaction: give one statement at a time, or `schema`")


class InboxFile:
    """`schema`: SQL that creates the handler's own tables if they are missing."""

    def __init__(self, path: Path, identity: bytes, url: str, schema: str = "") -> None:
        self._path = path
        self._lock = _locked(path)
        try:
            private_file.create(path)
            self.db = self._open()
            self._make(schema)
            self._check_owner(identity, url)
        except BaseException:
            self.close()
            raise

    def _open(self) -> Db:
        try:
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, factory=Db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")  # an event may be erased later
        except sqlite3.Error as e:
            private_file.refuse(self._path, f"is not an inbox: {e}")
        return db

    def _make(self, schema: str) -> None:
        (application,), (version,), (tables,) = (
            self.db.execute(sql).fetchone()
            for sql in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
        )
        if tables and (application, version) != (APPLICATION, VERSION):
            private_file.refuse(self._path, "is not an inbox that this program supports; give another path")
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
        try:
            made = "" if tables else f"BEGIN; {_SCHEMA} {marks} COMMIT;"
            sqlite3.Connection.executescript(self.db, made + schema)
        except sqlite3.Error as e:
            raise MisuseError(f"schema: {e}") from None
        if self.db.in_transaction:
            raise MisuseError("schema: leaves a transaction open")

    def _check_owner(self, identity: bytes, url: str) -> None:
        """Reject the inbox of another identity or URL: its positions would lose events."""
        found = self.db.execute("SELECT identity, url FROM enc_inbox").fetchone()
        if found is None:
            self.db.execute("INSERT INTO enc_inbox VALUES (?, ?)", (identity, url))
        elif found != (identity, url):
            private_file.refuse(self._path, f"is the inbox of {found[0].hex()} at {found[1]}; give another path")

    def close(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
        self._lock.close()


def _locked(path: Path) -> FileLock:
    """Lock the inbox until the process ends: two receivers on one inbox would deliver everything
    twice.

    Uses a file of its own: closing any descriptor of the database itself would drop SQLite's locks
    on it.
    """
    if not path.name or path.is_dir():
        raise MisuseError(f"state: expected the path of a file, not {str(path)!r}")
    if not path.parent.is_dir():
        private_file.refuse(path, f"there is no directory {path.parent}")
    lock = path.with_name(path.name + ".lock")
    try:
        return FileLock(lock)
    except LockHeld:
        private_file.refuse(path, "another receiver is using it; close that one, or give the path of another")
    except (OSError, ValueError) as e:
        private_file.refuse(lock, f"cannot be made: {private_file.reason(e)}")


def unavailable(error: sqlite3.Error) -> Unavailable:
    """Return the error for a full or broken disk, without details for the peer."""
    return Unavailable(f"the inbox cannot be written: {type(error).__name__}")
