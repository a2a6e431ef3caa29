"""Compacting gives free pages back to the disk, and changes nothing else."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from enc.core.errors import MisuseError, Unavailable
from enc.node.fsck import check_file
from enc.node.ops.compact import compact
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.sqlite.store_snapshot import open_snapshot
from tests.cli.ops.node_command import enc, failure
from tests.node.store_host import NODE, Host


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of which most was purged, and whose node does not run."""
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        kept, gone = (host.create(meta={"n": n}) for n in range(2))
        host.send(kept, "alice", "message", "stays")
        for _ in range(80):
            host.send(gone, "alice", "message", "x" * 8_000)
        host.send(gone, "alice", "Terminate")
        while not store.purge(gone):
            pass
    return path


def test_the_file_shrinks_and_the_store_is_sound(store: Path) -> None:
    inode, before = store.stat().st_ino, store.stat().st_size
    done = compact(store)
    assert (done.before, done.after) == (before, store.stat().st_size)
    assert done.after < before / 2
    assert store.stat().st_ino == inode
    assert {each.name for each in store.parent.iterdir()} == {"enc.db", "enc.db.lock"}
    assert check_file(store, NODE.public, (), lambda more: None).differences == []
    again = compact(store)
    assert again.before == again.after


def test_not_while_the_node_runs(store: Path) -> None:
    with closing(SqliteStore(store)), pytest.raises(Unavailable, match="in use by another process"):
        compact(store)


def test_not_while_another_program_reads(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **{**more, "timeout": 0}))
    with open_snapshot(store), pytest.raises(Unavailable, match="another program is reading it"):
        compact(store)
    assert compact(store).after < store.stat().st_size + 1


def test_a_disk_without_space(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.read_bytes()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(Unavailable, match="bytes must be free, 1,000 are"):
        compact(store)
    assert store.read_bytes() == before


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="no such file"):
        compact(tmp_path / "enc.db")
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        db.execute("CREATE TABLE x (y)")
    with pytest.raises(MisuseError, match="not a node's store"):
        compact(tmp_path / "other.db")


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from enc.node.ops.compact import compact

class Dying(sqlite3.Connection):
    def execute(self, sql, *args):
        if sql == "VACUUM":
            self.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), 300)
        return super().execute(sql, *args)

connect = sqlite3.connect
sqlite3.connect = lambda *args, **more: connect(*args, **{**more, "factory": Dying})
compact(Path(sys.argv[1]))
"""


def test_killed_meanwhile_it_changes_nothing(store: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, store], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert check_file(store, NODE.public, (), lambda more: None).differences == []
    assert compact(store).after < compact(store).before + 1


def test_the_command(store: Path) -> None:
    result = enc("compact", "--data", store.parent)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{store}: ")
    assert " bytes, before " in result.stdout
    with closing(SqliteStore(store)):
        assert "in use" in failure(enc("compact", "--data", store.parent), 1)
