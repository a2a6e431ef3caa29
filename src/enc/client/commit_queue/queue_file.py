"""The file of a commit queue: a SQLite database that only its owner can read. It holds no keys.

Every change is on disk when its call returns. Several programs may use one file: a commit is
replaced by a newly signed one only if it is still the one that the program has seen.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.core.errors import EncError, MisuseError, PeerError, Unavailable, from_wire
from enc.core.log.commit import UNLIMITED, parse_commit, wire_commit
from enc.core.primitives.types import Commit
from enc.runtime import private_file

_SCHEMA = """
CREATE TABLE IF NOT EXISTS enc_commit_queue (
  number INTEGER PRIMARY KEY AUTOINCREMENT, identity BLOB NOT NULL, enclave BLOB NOT NULL, at TEXT,
  hash BLOB NOT NULL,   -- of the commit as it was added
  signed TEXT NOT NULL, -- every commit that was signed for it, the last one valid
  error TEXT,           -- why a node rejected it
  UNIQUE (identity, hash)
);
CREATE INDEX IF NOT EXISTS enc_commit_queue_waiting ON enc_commit_queue (identity, enclave, number)
  WHERE error IS NULL;
"""
_SELECT = "SELECT number, at, signed, error FROM enc_commit_queue WHERE identity = ?"
_WAITING, _REJECTED = f"{_SELECT} AND error IS NULL", f"{_SELECT} AND error IS NOT NULL"

LOCK_S = 5.0
"""Seconds to wait for another program that writes to the file."""
_MAX_NUMBER = (1 << 63) - 1
_signed = msgspec.json.Decoder(list[msgspec.Raw])
_error = msgspec.json.Decoder(dict[str, object])


class QueuedCommit(Struct, frozen=True):
    """A commit in a queue. `at`: the URL at which its enclave is looked for first, if not the client's;
    `error`: why a node rejected it.
    """

    number: int
    signed: tuple[Commit, ...]
    """All commits that were signed for it, since earlier ones had expired."""
    at: str | None = None
    error: EncError | None = None

    @property
    def commit(self) -> Commit:
        """The commit as it was signed last."""
        return self.signed[-1]


class QueueFile:
    """The commits of one identity in a file. For any thread."""

    def __init__(self, path: Path, identity: bytes) -> None:
        self._path, self._identity = path, identity
        private_file.create(path)
        try:
            self._db = sqlite3.connect(path, LOCK_S, isolation_level=None, check_same_thread=False)
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as e:
            private_file.refuse(path, f"is not a commit queue: {e}")

    def add(self, commit: Commit, at: str | None) -> int:
        """Store a commit behind all others, unless it is there already; return its number.

        Raises InvalidCommit for one that every node would reject, such as one over a size limit.
        """
        parse_commit(msgspec.json.encode(wire_commit(commit)))
        row = (self._identity, commit.enclave, at, commit.hash, _encode([commit]))
        sql = "INSERT OR IGNORE INTO enc_commit_queue (identity, enclave, at, hash, signed) VALUES (?, ?, ?, ?, ?)"
        self._run(sql, *row)
        find = "SELECT number FROM enc_commit_queue WHERE identity = ? AND hash = ?"
        return int(self._run(find, self._identity, commit.hash)[0][0])

    def enclaves(self) -> list[bytes]:
        """Return the enclaves of waiting commits; the one that has waited longest is the first."""
        sql = "SELECT enclave FROM enc_commit_queue WHERE identity = ? AND error IS NULL GROUP BY enclave"
        return [row[0] for row in self._run(f"{sql} ORDER BY min(number)", self._identity)]

    def first(self, enclave: bytes) -> QueuedCommit | None:
        """Return the first waiting commit to an enclave that is not damaged."""
        sql, after = f"{_WAITING} AND enclave = ? AND number > ? ORDER BY number LIMIT 1", 0
        while rows := self._run(sql, self._identity, enclave, after):
            if (found := _queued(*rows[0])) is not None:
                return found
            after = rows[0][0]
        return None

    def waiting(self) -> list[QueuedCommit]:
        return self._load(f"{_WAITING} ORDER BY number", self._identity)

    def rejected(self) -> list[QueuedCommit]:
        return self._load(f"{_REJECTED} ORDER BY number", self._identity)

    def damaged(self) -> list[int]:
        """Return the numbers of the commits that cannot be read. They are neither waiting nor rejected."""
        return [row[0] for row in self._run(f"{_SELECT} ORDER BY number", self._identity) if _queued(*row) is None]

    def replace(self, queued: QueuedCommit, commit: Commit) -> QueuedCommit:
        """Store a newly signed commit; raise Unavailable if another program has changed this one."""
        signed = (*queued.signed, commit)
        sql = "UPDATE enc_commit_queue SET signed = ? WHERE number = ? AND signed = ? RETURNING number"
        if not self._run(sql, _encode(signed), queued.number, _encode(queued.signed)):
            raise Unavailable(f"{self._path}: another program sends commit {queued.number}", retry_after_ms=1000)
        return QueuedCommit(queued.number, signed, queued.at)

    def reject(self, number: int, error: EncError) -> None:
        """Set a commit aside with the error that rejected it."""
        text = msgspec.json.encode(error.to_wire()).decode()
        self._run("UPDATE enc_commit_queue SET error = ? WHERE number = ?", text, number)

    def retry(self, number: int) -> None:
        """Let a rejected commit wait again, at its old place."""
        sql = "UPDATE enc_commit_queue SET error = NULL WHERE number = ? AND identity = ? AND error IS NOT NULL"
        self._change(sql, number, "rejected commit")

    def remove(self, number: int) -> None:
        """Remove a commit whose outcome is known; do nothing if it is gone."""
        self._run("DELETE FROM enc_commit_queue WHERE number = ?", number)

    def discard(self, number: int) -> None:
        """Remove a commit that shall not be sent any more."""
        self._change("DELETE FROM enc_commit_queue WHERE number = ? AND identity = ?", number, "commit")

    def close(self) -> None:
        self._db.close()

    def _change(self, sql: str, number: int, what: str) -> None:
        is_possible = 0 < number <= _MAX_NUMBER
        if not is_possible or not self._run(f"{sql} RETURNING number", number, self._identity):
            private_file.refuse(self._path, f"has no {what} {number}")

    def _load(self, sql: str, *values: object) -> list[QueuedCommit]:
        return [found for row in self._run(sql, *values) if (found := _queued(*row)) is not None]

    def _run(self, sql: str, *values: object) -> list[Any]:
        with self._translated():
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as e:
            raise MisuseError(f"{self._path}: this queue is closed: {e}") from None
        except sqlite3.Error as e:
            raise Unavailable(f"{self._path}: the queue cannot be read or written: {e}", retry_after_ms=1000) from None


def _queued(number: int, at: str | None, signed: str, error: str | None) -> QueuedCommit | None:
    """Return the commit of a row; None if the row is damaged."""
    try:
        commits = tuple(parse_commit(bytes(each), UNLIMITED) for each in _signed.decode(signed))
        found = None if error is None else from_wire(_error.decode(error))
    except (PeerError, msgspec.MsgspecError):
        return None
    return QueuedCommit(number, commits, at, found) if commits else None


def _encode(signed: Sequence[Commit]) -> str:
    return msgspec.json.encode([wire_commit(commit) for commit in signed]).decode()
