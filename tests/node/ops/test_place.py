"""A store whose files were copied or replaced is recognised, and one that stayed where it was is not."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace
from structlog.testing import capture_logs

from enc.core.errors import Unavailable
from enc.node.ops import place as module
from enc.node.ops.place import Place, adopt, mark_if_copied, start_path
from enc.node.store.sqlite.store import SqliteStore
from tests.node.store_host import Host, downgrade_to_5

OTHER_FILE = "a copy: its file is not that of the last start"
OTHER_MACHINE = "a copy from another machine"
EARLIER = "an earlier state: the file beside it names a later start, or is missing"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the store of a node that has run once."""
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "enc.db"
    assert restart(path) == ""
    return path


def restart(path: Path, host_id: str = "", work: Callable[[SqliteStore], object] = lambda store: None) -> str:
    """Start and stop as a node does; return why it would sign nothing."""
    with closing(SqliteStore(path)) as store:
        mark_if_copied(store, path, host_id)
        work(store)
        return store.restored()


def recorded(path: Path) -> Place:
    with closing(SqliteStore(path)) as store:
        return decode(store.provenance.place, type=Place)


def record(path: Path, **changes: int) -> None:
    """Change what the last start recorded."""
    with closing(SqliteStore(path)) as store:
        store.provenance.record(encode(replace(decode(store.provenance.place, type=Place), **changes)).decode())


def test_a_store_that_stays_is_no_copy(path: Path) -> None:
    starts = {recorded(path).start}
    for _ in range(3):
        assert restart(path) == ""
        starts.add(recorded(path).start)
        assert start_path(path).read_text() == recorded(path).start
    assert len(starts) == 4


def test_a_store_that_is_moved_on_its_file_system_or_vacuumed_is_no_copy(path: Path, tmp_path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        Host(store).create()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("VACUUM")
    assert restart(path) == ""
    path.parent.rename(tmp_path / "elsewhere")
    assert restart(tmp_path / "elsewhere" / "enc.db") == ""


def test_a_store_of_an_earlier_version_is_no_copy(path: Path) -> None:
    downgrade_to_5(path)
    assert restart(path) == restart(path) == ""


def test_a_copied_directory_is_a_copy_and_its_original_is_not(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path.parent, tmp_path / "copy")
    assert restart(tmp_path / "copy" / "enc.db") == OTHER_FILE
    assert restart(tmp_path / "copy" / "enc.db") == OTHER_FILE, "until it is adopted"
    assert restart(path) == ""


def test_a_file_that_took_the_place_and_the_inode_of_another_is_a_copy(path: Path) -> None:
    """File systems give the inode of a deleted file to the next one."""
    kept = path.read_bytes()
    path.unlink()
    path.write_bytes(kept)
    record(path, inode=path.stat().st_ino)
    assert restart(path) == OTHER_FILE


def test_content_that_was_replaced_in_the_same_file_is_a_copy(path: Path) -> None:
    earlier = path.read_bytes()
    assert restart(path) == ""
    inode = path.stat().st_ino
    path.write_bytes(earlier)
    assert path.stat().st_ino == inode
    assert restart(path) == EARLIER


def test_a_store_without_the_file_beside_it_is_a_copy(path: Path) -> None:
    assert restart(path) == ""
    start_path(path).unlink()
    assert restart(path) == EARLIER


def test_another_machine(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}\n")
    monkeypatch.setattr(module, "MACHINE_ID", tmp_path / "one")
    adopted(path)
    assert restart(path) == ""
    assert "one" not in recorded(path).machine
    monkeypatch.setattr(module, "MACHINE_ID", tmp_path / "two")
    assert restart(path) == OTHER_MACHINE


def test_a_machine_may_have_no_id_or_a_name_of_its_own(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MACHINE_ID", tmp_path / "missing")
    adopted(path)
    assert restart(path) == restart(path) == ""
    adopted(path, "volume 1")
    (tmp_path / "missing").write_text("a new container's")
    assert restart(path, "volume 1") == ""
    assert restart(path, "volume 2") == OTHER_MACHINE


def adopted(path: Path, host_id: str = "") -> None:
    with closing(SqliteStore(path)) as store:
        adopt(store, path, host_id)
        assert not store.restored()


def test_the_device_counts_only_where_the_file_system_does_not_tell_when_a_file_was_created(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(path, device=1)  # numbers of devices may change when a machine starts
    assert restart(path) == ""
    monkeypatch.setattr(module, "_birth", lambda path: 0)
    assert restart(path) == ""
    record(path, device=1)
    assert restart(path) == OTHER_FILE


def test_when_a_file_was_created_stays_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    born = module._birth(file)
    os.utime(file, (1, 1))
    file.chmod(0o600)
    file.write_text("two")
    assert module._birth(file) == born
    assert module._birth(tmp_path / "missing") == 0


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_that_dies_while_it_starts_makes_no_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    def die(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_write_start", die)
        for _ in range(times):
            with pytest.raises(KeyboardInterrupt):
                restart(path)
    assert restart(path) == restart(path) == ""


def test_a_full_disk_keeps_no_node_from_starting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise Unavailable("the store cannot be written: SQLITE_FULL")

    with capture_logs() as logs, closing(SqliteStore(path)) as store, monkeypatch.context() as patch:
        patch.setattr(store.provenance, "record", fail)
        mark_if_copied(store, path)
        assert store.restored() == ""
    assert [line["event"] for line in logs] == ["place_not_recorded"]
    assert restart(path) == ""


def test_a_copy_that_cannot_be_marked_does_not_start(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise Unavailable("the store cannot be written: SQLITE_FULL")

    shutil.copytree(path.parent, tmp_path / "copy")
    with closing(SqliteStore(tmp_path / "copy" / "enc.db")) as store:
        monkeypatch.setattr(store.provenance, "mark", fail)
        with pytest.raises(Unavailable):
            mark_if_copied(store, tmp_path / "copy" / "enc.db")


def test_an_adopted_copy_is_at_home(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "enc.db"
    shutil.copytree(path.parent, copy.parent)
    assert restart(copy) == OTHER_FILE
    adopted(copy)
    assert restart(copy) == restart(copy) == ""


def test_a_marked_backup_keeps_its_mark(path: Path, tmp_path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.provenance.mark("a backup")
    shutil.copytree(path.parent, tmp_path / "copy")
    assert restart(tmp_path / "copy" / "enc.db") == "a backup"
