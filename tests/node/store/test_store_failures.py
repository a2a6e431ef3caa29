"""A failed write or read leaves nothing behind, and the next one works."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import MisuseError, Unavailable
from enc.core.log.filter import Filter
from enc.core.primitives.types import Receipt
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Usage
from tests.core.world import START
from tests.node.store_host import EVERYTHING, Host, Log, failing_commit, seqs


class Broken:
    """A connection that fails at some statements, with a message that contains a secret."""

    def __init__(self, db: sqlite3.Connection, *statements: str) -> None:
        self._db, self._statements = db, statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if any(statement in sql for statement in self._statements):
            raise sqlite3.OperationalError(f"disk I/O error at /secret/path near {sql}")
        return self._db.execute(sql, *args)


def assert_it_still_works(store: SqliteStore, log: Log) -> None:
    log.write()
    assert store.events(log.enclave, 0, 10_000) == log.events
    assert seqs(store, log.enclave, limit=1000) == [event.seq for event in log.events]


def test_a_write_that_fails_leaves_nothing_and_the_next_one_works(sqlite: SqliteStore) -> None:
    host = Host(sqlite)
    enclave = host.create()
    sqlite.database.writer.db.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'disk'); END"
    )
    first = host.commit(enclave, "alice", "message", "no tags")
    second = host.commit(enclave, "alice", "message", "tags", ("k", "v"))
    assert [type(outcome) for outcome in host.run(first, second)] == [Unavailable, Unavailable]
    assert len(sqlite.events(enclave, 0, 10)) == 1
    sqlite.database.writer.db.execute("DROP TRIGGER broken")
    assert [outcome.seq for outcome in host.run(first, second) if isinstance(outcome, Receipt)] == [1, 2]


def test_a_commit_that_fails_leaves_nothing_and_the_next_one_works(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    log.add("new", tags=(("k", "v"),))
    with failing_commit(sqlite), pytest.raises(Unavailable, match=r"^the store cannot be written: SQLITE_CONSTRAINT"):
        sqlite.write(log.steps, START + 99)
    assert (len(sqlite.events(log.enclave, 0, 10)), sqlite.clock(), sqlite.usage(b"A" * 32)) == (1, START, Usage())
    assert_it_still_works(sqlite, log)


def test_a_full_disk_is_unavailable_until_there_is_room(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    (pages,) = sqlite.database.writer.db.execute("PRAGMA page_count").fetchone()
    sqlite.database.writer.db.execute(f"PRAGMA max_page_count = {pages}")
    for _ in range(100):
        log.add(content="x" * 5000)
    for _ in range(3):
        with pytest.raises(Unavailable, match=r"^the store cannot be written: SQLITE_FULL$"):
            sqlite.write(log.steps, START)
        assert len(sqlite.events(log.enclave, 0, 10)) == 1
    sqlite.database.writer.db.execute("PRAGMA max_page_count = 1000000")
    assert_it_still_works(sqlite, log)


def test_a_connection_that_cannot_even_roll_back_is_replaced(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    log.add()
    sqlite.database.writer.db = Broken(sqlite.database.writer.db, "COMMIT", "ROLLBACK")  # type: ignore[assignment]
    with pytest.raises(Unavailable) as caught:
        sqlite.write(log.steps, START)
    assert "secret" not in caught.value.message
    assert "COMMIT" not in caught.value.message
    assert_it_still_works(sqlite, log)
    assert sqlite.database.writer.db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_whatever_a_write_raises_it_leaves_nothing(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    log.add()
    log.add("Update", tags=(("r", "ab" * 32),))
    with pytest.raises(MisuseError):
        sqlite.write(log.steps, START)
    assert len(sqlite.events(log.enclave, 0, 10)) == 1
    del log.steps[1:], log.events[2:]
    assert_it_still_works(sqlite, log)


def test_a_log_without_its_manifest_is_refused(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    sealed = replace(log.steps[0], event=None)
    with pytest.raises(MisuseError):
        sqlite.write([sealed], START)
    assert sqlite.count() == 0


READS: list[Callable[[SqliteStore, bytes], Any]] = [
    lambda store, enclave: store.clock(),
    lambda store, enclave: store.count(),
    lambda store, enclave: store.usage(enclave),
    lambda store, enclave: store.load(enclave),
    lambda store, enclave: list(store.enclaves()),
    lambda store, enclave: store.overdue(0, 10),
    lambda store, enclave: store.read_node(enclave, enclave),
    lambda store, enclave: store.read_hash(enclave, 0, 0),
    lambda store, enclave: store.target(enclave, enclave),
    lambda store, enclave: store.event(enclave, enclave),
    lambda store, enclave: store.committed(enclave, enclave, 0),
    lambda store, enclave: store.events(enclave, 0, 10),
    lambda store, enclave: store.ids(enclave, 0, 10),
    lambda store, enclave: list(store.find(enclave, Filter(), EVERYTHING)),
    lambda store, enclave: store.bundle(enclave, 0),
    lambda store, enclave: store.bundle_of(enclave, 0),
    lambda store, enclave: store.head(enclave),
    lambda store, enclave: store.expired(0, 1),
    lambda store, enclave: store.terminated(0, 1),
    lambda store, enclave: store.is_purged(enclave),
]


def test_a_read_that_fails_is_unavailable_and_the_next_one_works(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    for read in READS:
        with suppress(KeyError):
            read(sqlite, log.enclave)
        (db,) = sqlite.database.readers._idle
        sqlite.database.readers._idle = [Broken(db, "SELECT")]  # type: ignore[list-item]
        with pytest.raises(Unavailable, match=r"^the store cannot be read: [A-Za-z_]+$"):
            read(sqlite, log.enclave)
        with suppress(KeyError):
            read(sqlite, log.enclave)


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    lock = tmp_path / "no such folder" / "enc.db.lock"
    with pytest.raises(Unavailable, match=re.escape(f"{lock}: No such file or directory")):
        SqliteStore(tmp_path / "no such folder" / "enc.db")
    (tmp_path / "enc.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(Unavailable) as caught:
        SqliteStore(tmp_path / "enc.db")
    assert str(tmp_path) not in caught.value.message
    (tmp_path / "enc.db").unlink()
    SqliteStore(tmp_path / "enc.db").close()  # the lock was released


def test_a_reader_that_cannot_be_opened_is_unavailable(sqlite: SqliteStore, tmp_path: Path) -> None:
    sqlite.database.readers._path = tmp_path / "no such folder" / "enc.db"
    with pytest.raises(Unavailable, match=r"^the store cannot be read: SQLITE_CANTOPEN$"):
        sqlite.clock()
    sqlite.database.readers._path = tmp_path / "enc.db"
    assert sqlite.clock() == 0


class LateFailure:
    """A connection whose COMMIT succeeds and then reports a failure."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, sql: str, *args: Any) -> Any:
        found = self._db.execute(sql, *args)
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def test_what_a_failed_write_left_on_the_disk_is_found_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.create()
    db, commit = store.database.writer.db, host.commit(enclave, "alice", "message", "made all the same")
    store.database.writer.db = LateFailure(db)  # type: ignore[assignment]
    (outcome,) = host.run(commit)
    store.database.writer.db = db
    assert isinstance(outcome, Unavailable)
    (event,) = store.events(enclave, 1, 10)
    found = store.event(enclave, event.id)
    assert found is not None
    assert found.event == event
    assert host.send(enclave, "alice", "message", "next").seq == 2
    store.close()


def test_a_writer_that_was_given_up_is_opened_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.create()
    store.database.writer.db.close()
    store.database.writer._roll_back()
    store.database.writer._is_closed, store.database._cache_is_stale = True, True
    assert host.send(enclave, "alice", "message", "again").seq == 1
    store.close()
