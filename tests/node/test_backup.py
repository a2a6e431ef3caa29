"""A backup is whole, is of one moment, and never takes the place of a file."""

from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.node.backup import backup
from enc.node.fsck import check_store
from enc.node.store.sqlite import SqliteStore

from .test_store import NODE, Host


def test_a_backup_of_a_store_in_use_is_the_store_of_that_moment(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.found()
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


def test_a_backup_takes_no_file_s_place_and_leaves_no_draft(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    (tmp_path / "copy.db").write_text("something else")
    with pytest.raises(MisuseError, match="is there already"):
        backup(tmp_path / "enc.db", tmp_path / "copy.db")
    with pytest.raises(MisuseError, match="there is no database"):
        backup(tmp_path / "nothing.db", tmp_path / "other.db")
    with pytest.raises(MisuseError, match="cannot be written"):
        backup(tmp_path / "enc.db", tmp_path / "no such directory" / "copy.db")
    (tmp_path / "rubbish.db").write_text("no database at all, whatever its name")
    with pytest.raises(MisuseError, match="cannot be written"):
        backup(tmp_path / "rubbish.db", tmp_path / "other.db")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    assert not (tmp_path / "other.db").exists()
