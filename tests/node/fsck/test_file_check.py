"""fsck of a store's file: by several processes, and while its node runs."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import MisuseError, Unavailable
from enc.node.fsck import check_file, file_check, report
from enc.node.store.sqlite.connection import PAGE_BYTES
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.sqlite.store_snapshot import open_snapshot
from enc.runtime.locks import FileLock
from tests.node.fsck.stores import Damaged, ignore_progress
from tests.node.store.test_upgrade import downgraded
from tests.node.store_host import NODE, Host


def found(path: Path, jobs: int = 1, *chosen: bytes) -> list[str]:
    report = check_file(path, NODE.public, chosen, ignore_progress, jobs)
    assert report.is_whole
    return sorted(difference.message for difference in report.differences)


@pytest.mark.parametrize("jobs", [1, 3])
def test_it_finds_what_a_check_of_the_open_store_finds(damaged: Damaged, jobs: int) -> None:
    assert found(damaged.path, jobs) == []
    damaged.run("DELETE FROM events WHERE k = k(9); DELETE FROM bundles WHERE e = {idle}")
    damaged.run("UPDATE node SET enclaves = 0; UPDATE usage SET events = events + 1")
    expected = sorted(difference.message for difference in damaged.check().differences)
    assert len(expected) > 3
    assert found(damaged.path, jobs) == expected
    life = damaged.names["life"]
    assert found(damaged.path, jobs, life, life) == [each for each in expected if life.hex() in each]


def test_an_enclave_that_does_not_exist(damaged: Damaged) -> None:
    with pytest.raises(MisuseError, match="this node has no enclave 0000"):
        check_file(damaged.path, NODE.public, [bytes(32)], ignore_progress)


def test_a_running_node_writes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_check, "PORTION", 1)
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        enclaves = [host.create(meta={"n": n}) for n in range(3)]

        def write(more: int) -> None:
            for enclave in enclaves:
                host.send(enclave, "alice", "message", "meanwhile")

        report = check_file(path, NODE.public, (), write)
        assert (report.differences, report.is_whole) == ([], False)
        assert check_file(path, NODE.public, enclaves[:1], write).is_whole, "it was not asked for the counts"
        assert found(path) == []


def test_a_write_just_before_the_counts_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        enclave = host.create()
        check = report.check_counts

        def write_first(*args: Any) -> Any:
            host.send(enclave, "alice", "message", "late")
            return check(*args)

        monkeypatch.setattr(file_check, "check_counts", write_first)
        assert found(path) == []


def test_enclaves_that_cannot_be_listed_are_damage(damaged: Damaged) -> None:
    with closing(sqlite3.connect(damaged.path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_enclaves_1'").fetchone()
    raw = bytearray(damaged.path.read_bytes())
    raw[(page - 1) * PAGE_BYTES : (page - 1) * PAGE_BYTES + 8] = b"\xff" * 8
    damaged.path.write_bytes(raw)
    assert any("integrity_check" in each for each in found(damaged.path))


def test_a_snapshot_is_of_one_moment_and_read_only(tmp_path: Path) -> None:
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        enclave = host.create()
        with open_snapshot(path) as snapshot:
            host.send(enclave, "alice", "message", "later")
            state = snapshot.load(enclave)
            assert state is not None
            assert (state.seq, len(snapshot.events(enclave, 0, 9))) == (0, 1)
            with pytest.raises(MisuseError, match="read-only"):
                snapshot.write([], 1)
    with open_snapshot(path) as snapshot:
        assert len(snapshot.events(enclave, 0, 9)) == 2
    assert {each.name for each in tmp_path.iterdir()} <= {"enc.db", "enc.db.lock"}


def test_a_store_with_an_older_schema_is_upgraded_unless_its_node_runs(tmp_path: Path) -> None:
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        Host(store).create()
    old = downgraded(path, tmp_path / "old.db")
    with closing(FileLock(tmp_path / "old.db.lock")), pytest.raises(Unavailable, match="in use"):
        check_file(old, NODE.public, (), ignore_progress)
    assert found(old) == []


def test_a_killed_process_is_reported(damaged: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_check, "_check_portion", kill)
    with pytest.raises(Unavailable, match="was killed"):
        found(damaged.path, 2)


def kill(*args: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
