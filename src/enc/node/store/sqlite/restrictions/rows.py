"""Reads and writes the table `restrictions`."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from enc.node.store.restrictions import Restriction, RestrictionKind
from enc.node.store.sqlite.connection import AfterCommit
from enc.node.store.sqlite.event_rows import SqlRow

_READ = "SELECT kind, target, made_at, until, reason, is_full FROM restrictions"
_PUT = "INSERT OR REPLACE INTO restrictions VALUES (?, ?, ?, ?, ?, ?)"
_BLOCKED = "SELECT 1 FROM restrictions WHERE kind = 'suspension' AND target = ?"


class _Database(Protocol):
    def rows(self, query: str, *args: Any) -> list[SqlRow]: ...

    def transact(self, work: Callable[[sqlite3.Connection], AfterCommit | None]) -> None: ...


class RestrictionRows:
    """A RestrictionStore in a database."""

    def __init__(self, database: _Database) -> None:
        self._database = database

    def read_all(self) -> list[Restriction]:
        return [_unpack(row) for row in self._database.rows(_READ)]

    def find(self, kind: RestrictionKind, target: str) -> Restriction | None:
        rows = self._database.rows(f"{_READ} WHERE kind = ? AND target = ?", kind, target)
        return _unpack(rows[0]) if rows else None

    def put(self, restriction: Restriction) -> None:
        self._database.transact(lambda db: put(db, restriction))

    def remove(self, kind: RestrictionKind, targets: Sequence[str]) -> None:
        def work(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM restrictions WHERE kind = ? AND target = ?", ((kind, each) for each in targets))

        self._database.transact(work)


def _unpack(row: SqlRow) -> Restriction:
    kind, target, made_at, until, reason, is_full = row
    return Restriction(kind=kind, target=target, made_at=made_at, until=until, reason=reason, is_full=bool(is_full))


def put(db: sqlite3.Connection, one: Restriction) -> None:
    db.execute(_PUT, (one.kind, one.target, one.made_at, one.until, one.reason, one.is_full))


def has_suspended(db: sqlite3.Connection, enclaves: Iterable[bytes]) -> bool:
    """Return whether one of these enclaves is suspended."""
    if db.execute("SELECT 1 FROM restrictions WHERE kind = 'suspension' LIMIT 1").fetchone() is None:
        return False
    return any(db.execute(_BLOCKED, (enclave.hex(),)).fetchone() for enclave in enclaves)
