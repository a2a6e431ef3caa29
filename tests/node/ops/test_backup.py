"""A backup is complete and of one moment, never replaces a file, and leaves nothing behind if it fails."""

import os
import re
import resource
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import EncError, MisuseError, Unavailable
from enc.node.fsck import check_store
from enc.node.ops import backup as module
from enc.node.ops.backup import backup
from enc.node.store.sqlite.store import SqliteStore
from tests.node.store_host import NODE, Host, downgrade_to_5


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the store of a node that does not run."""
    (tmp_path / "data").mkdir()
    opened = SqliteStore(tmp_path / "data" / "enc.db")
    Host(opened).create()
    opened.close()
    return tmp_path / "data" / "enc.db"


@pytest.fixture
def to(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "copy.db"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def refusal(store: Path, to: Path, kind: type[EncError]) -> str:
    """Return the error of a failed backup, after checking that it leaves no file."""
    before = names(to.parent) if to.parent.exists() else None
    with pytest.raises(kind) as caught:
        backup(store, to)
    assert (names(to.parent) if to.parent.exists() else None) == before
    return caught.value.message


def test_a_backup_of_a_store_in_use_is_the_store_of_that_moment(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.create()
    for i in range(9):
        host.send(enclave, "alice", "message", f"before {i}")
    assert backup(tmp_path / "enc.db", tmp_path / "copy.db") > 0
    host.send(enclave, "alice", "message", "after")
    store.close()
    copy = SqliteStore(tmp_path / "copy.db")
    assert [event.seq for event in copy.events(enclave, 0, 100)] == list(range(10))
    assert not check_store(copy, NODE.public, None, lambda events: None).differences
    copy.close()
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0


def test_a_backup_is_marked_and_its_store_is_not(store: Path, to: Path) -> None:
    backup(store, to)
    for path, is_copy in ((store, False), (to, True)):
        with closing(SqliteStore(path)) as opened:
            marked = re.fullmatch(r"a backup made at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", opened.restored())
            assert bool(marked) == is_copy


def test_a_backup_of_an_earlier_version_s_store_stays_of_that_version_and_is_marked(store: Path, to: Path) -> None:
    downgrade_to_5(store)
    backup(store, to)
    with closing(sqlite3.connect(to)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (5,), "the program of that version can restore it"
    with closing(SqliteStore(to)) as upgraded:
        assert upgraded.restored().startswith("a backup made at ")
        assert upgraded.provenance.place == ""


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_backup_is_one_file_for_its_owner_alone(store: Path, to: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        size = backup(store, to)
    finally:
        os.umask(before)
    assert names(to.parent) == ["copy.db"]
    assert (stat.S_IMODE(to.stat().st_mode), to.stat().st_size) == (0o600, size)
    assert to.stat().st_nlink == 1
    with closing(sqlite3.connect(to)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",), "reading it adds no other file"


def test_a_backup_leaves_nothing_beside_the_store(store: Path, to: Path) -> None:
    before = names(store.parent), store.read_bytes()
    backup(store, to)
    assert (names(store.parent), store.read_bytes()) == before


def test_a_backup_takes_no_file_s_place(store: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise AssertionError("copied in vain")

    monkeypatch.setattr(module, "_copy", fail)
    to.write_text("something else")
    assert refusal(store, to, MisuseError) == f"{to}: already exists"
    assert to.read_text() == "something else"
    to.unlink()
    to.symlink_to("nowhere")
    assert refusal(store, to, MisuseError) == f"{to}: already exists"


def test_nor_that_of_a_file_which_came_meanwhile(store: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_late(*args: Any) -> Path:
        draft = copy(*args)
        to.write_text("first")
        return draft

    copy = module._copy
    monkeypatch.setattr(module, "_copy", copy_late)
    with pytest.raises(MisuseError, match="already exists"):
        backup(store, to)
    assert (names(to.parent), to.read_text()) == (["copy.db"], "first")


def test_a_directory_that_is_not_there(store: Path, tmp_path: Path) -> None:
    directory = tmp_path / "no such directory"
    assert refusal(store, directory / "copy.db", MisuseError) == f"{directory}: no such directory"


def test_a_store_that_is_bad_is_named_and_not_the_copy(store: Path, to: Path) -> None:
    other = store.with_name("other.db")
    assert refusal(other, to, MisuseError) == f"{other}: no such file"
    other.write_text("no database at all, whatever its name")
    assert refusal(other, to, Unavailable) == f"{other}: cannot be read: file is not a database"
    other.write_bytes(store.read_bytes()[:40_960])
    assert refusal(other, to, Unavailable) == f"{other}: cannot be read: database disk image is malformed"
    other.write_bytes(b"")
    assert refusal(other, to, MisuseError) == f"{other}: not a node's store"


def broken(kind: type[sqlite3.Error], name: str) -> sqlite3.Error:
    error = kind("what SQLite says")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "is_store"),
    [
        (broken(sqlite3.DatabaseError, "SQLITE_CORRUPT"), True),
        (broken(sqlite3.OperationalError, "SQLITE_IOERR_READ"), True),
        (broken(sqlite3.OperationalError, "SQLITE_BUSY"), True),
        (broken(sqlite3.OperationalError, "SQLITE_FULL"), False),
        (broken(sqlite3.OperationalError, "SQLITE_IOERR_WRITE"), False),
        (sqlite3.ProgrammingError("what SQLite says"), False),
    ],
    ids=lambda value: getattr(value, "sqlite_errorname", None),
)
def test_a_failure_while_it_copies_names_the_one_that_failed(
    store: Path, to: Path, monkeypatch: pytest.MonkeyPatch, error: sqlite3.Error, is_store: bool
) -> None:
    def fail(source: sqlite3.Connection, draft: Path) -> None:
        for name in ("draft", "draft-wal", "draft-shm"):
            draft.with_name(name).write_text("half")
        raise error

    monkeypatch.setattr(module, "_copy", fail)
    where = f"{store}: cannot be read" if is_store else f"{to}: cannot be written"
    assert refusal(store, to, Unavailable) == f"{where}: what SQLite says"


def test_a_disk_that_gets_full_leaves_nothing(store: Path, to: Path) -> None:
    """A limit on the size of files simulates a full disk."""
    program = "from enc.cli import main; main()"
    command = [sys.executable, "-c", program, "node", "backup", "--data", str(store.parent), "--to", str(to)]
    limit = store.stat().st_size // 2
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # the limit would truncate the bytecode that it writes
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"enc node: {to}: cannot be written: disk I/O error\n"
    assert (names(to.parent), names(store.parent)) == ([], ["enc.db", "enc.db.lock"])


def test_the_disk_has_the_copy_before_its_name(store: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def note_fsync(fd: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def note_link(*args: Any) -> None:
        done.append("link")
        link(*args)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    backup(store, to)
    assert done == ["file", "link", "directory"]


def test_a_damaged_store_is_copied_only_on_request(store: Path, to: Path) -> None:
    with closing(sqlite3.connect(store)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_hash'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    raw = bytearray(store.read_bytes())
    raw[(page - 1) * size : (page - 1) * size + 8] = b"\xff" * 8
    store.write_bytes(raw)
    said = refusal(store, to, Unavailable)
    assert said.startswith(f"{store}: is damaged, and nothing was copied: integrity_check: ")
    assert backup(store, to, damaged_too=True) == to.stat().st_size
