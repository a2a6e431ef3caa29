"""A SQLite store on disk: reopened, locked, of other versions, erased and purged."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.core.rules.policy_types import Effects
from enc.node.store.sqlite import connection, purge, upgrade
from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite.store import SqliteStore
from tests.node.store_host import Host, Log, live


def test_reopened_it_is_as_it_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave, events = live(host)
    before = store.load(enclave)
    store.close()
    store = SqliteStore(tmp_path / "enc.db")
    after = store.load(enclave)
    assert before is not None
    assert after is not None
    for name in ("seq", "min_timestamp", "sequencer", "lifecycle", "migrated", "log", "bundle", "root", "pending"):
        assert getattr(after, name) == getattr(before, name), name
    assert store.events(enclave, 0, 100) == events
    assert store.clock() == host.now
    second = Host(store)
    second.now = host.now
    second.send(enclave, "alice", "message", "goes on")
    store.close()


def test_closed_it_is_one_file_and_refuses_reads_and_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    store.load(log.enclave)
    assert (tmp_path / "enc.db-wal").stat().st_size > 0
    with closing(sqlite3.connect(tmp_path / "enc.db")) as other:
        other.execute("SELECT clock FROM node").fetchall()
        store.close()
        assert (tmp_path / "enc.db-wal").stat().st_size == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["enc.db", "enc.db.lock"]
    with pytest.raises(Unavailable, match="closed"):
        store.clock()
    with pytest.raises(Unavailable):
        store.write([], 1)
    store.close()


def test_a_second_process_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from enc.node.store.sqlite.store import SqliteStore;"
    program += "SqliteStore(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "enc.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(Unavailable, match="in use by another process"):
            SqliteStore(tmp_path / "enc.db")
        other.kill()
    SqliteStore(tmp_path / "enc.db").close()


def set_version(path: Path, version: int) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()


def test_a_database_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    set_version(tmp_path / "enc.db", 99)
    with pytest.raises(Unavailable, match="newer version: schema 99"):
        SqliteStore(tmp_path / "enc.db")


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "enc.db")
    db.execute("CREATE TABLE enclaves (x)")
    db.close()
    for version in (0, 1):
        set_version(tmp_path / "enc.db", version)
        with pytest.raises(Unavailable, match="another program"):
            SqliteStore(tmp_path / "enc.db")


def test_an_older_database_is_upgraded_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    store.close()
    set_version(tmp_path / "enc.db", 1)
    steps = ["CREATE TABLE second (x);", "CREATE TABLE third (x); INSERT INTO third VALUES (3);"]
    monkeypatch.setattr(upgrade, "UPGRADES", (steps[0], steps[1] + "CREATE TABLE second (x);"))
    with pytest.raises(Unavailable):
        SqliteStore(tmp_path / "enc.db")
    monkeypatch.setattr(upgrade, "UPGRADES", tuple(steps))
    store = SqliteStore(tmp_path / "enc.db")
    assert store.database.writer.db.execute("PRAGMA user_version").fetchone() == (3,)
    assert store.database.writer.db.execute("SELECT x FROM third").fetchall() == [(3,)]
    assert store.events(log.enclave, 0, 10) == log.events
    store.close()
    SqliteStore(tmp_path / "enc.db").close()


def test_it_waits_for_the_disk_and_keeps_caches_and_logs_small(sqlite: SqliteStore) -> None:
    sqlite.clock()
    (reader,) = sqlite.database.readers._idle

    def says(db: sqlite3.Connection, name: str) -> Any:
        return db.execute(f"PRAGMA {name}").fetchone()[0]

    writer = sqlite.database.writer.db
    assert (says(writer, "journal_mode"), says(writer, "synchronous"), says(writer, "secure_delete")) == ("wal", 2, 1)
    caches = -says(writer, "cache_size") - connection.MAX_READERS * says(reader, "cache_size")
    assert caches * 1024 <= 100 << 20
    assert says(writer, "wal_autocheckpoint") * says(writer, "page_size") <= says(writer, "journal_size_limit")
    assert says(writer, "journal_size_limit") <= 64 << 20
    assert says(reader, "query_only") == 1


def test_an_erased_content_is_nowhere_in_the_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    events = [log.add(content="a secret " * size) for size in (10, 2000)]
    log.write()
    store.erase([(log.enclave, event.id) for event in events])
    store.close()
    assert b"a secret" not in (tmp_path / "enc.db").read_bytes()


TABLES = ("events", "ids", "tags", "pending", "tree_nodes", "log_nodes", "bundles", "kinds")


def count_rows(store: SqliteStore) -> int:
    queries = [f"SELECT count(*) AS n FROM {table}" for table in TABLES]  # noqa: S608
    query = f"SELECT sum(n) FROM ({' UNION ALL '.join(queries)})"  # noqa: S608
    return int(store.database.writer.db.execute(query).fetchone()[0])


def test_a_purge_takes_few_rows_at_a_time(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GENERATION", 4)
    monkeypatch.setattr(ids, "STRIDE", 1)
    log = Log(sqlite)
    for i in range(20):
        log.add(tags=(("k", str(i)),))
        log.write()
    log.add("Terminate", effects=Effects(lifecycle="terminated"))
    log.write()
    before, is_done = count_rows(sqlite), False
    assert before > 80
    while not is_done:
        is_done = sqlite.purge(log.enclave, 10)
        after = count_rows(sqlite)
        assert before - 10 <= after < before or is_done
        before = after
    assert before == 0


def test_a_purge_takes_few_bytes_at_a_time(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "MAX_BYTES", 10_000)
    log = Log(sqlite)
    for _ in range(10):
        log.add(content="x" * 4000)
    log.add("Terminate", effects=Effects(lifecycle="terminated"))
    log.write()
    calls = 1
    while not sqlite.purge(log.enclave):
        calls += 1
    assert calls == 5
    assert count_rows(sqlite) == 0
