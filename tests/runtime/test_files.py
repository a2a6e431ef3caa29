"""Atomic files: complete or absent, durable in the right order, and without leftovers."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from enc.runtime.files import atomic_file, sync_directory, sync_file, write_atomic


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def alone(path: Path) -> bool:
    return list(path.parent.iterdir()) == [path]


def test_the_name_appears_with_the_complete_content(path: Path) -> None:
    with atomic_file(path) as file:
        file.write(b"one ")
        assert not path.exists()
        file.write(b"two")
    assert path.read_bytes() == b"one two"
    assert alone(path)


def test_an_exception_keeps_the_old_file_and_removes_the_draft(path: Path) -> None:
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.write(b"%d" % (1 // 0))
    assert path.read_bytes() == b"old"
    assert alone(path)


@pytest.mark.parametrize("durable", [False, True])
def test_without_overwrite_an_existing_file_stays(path: Path, durable: bool) -> None:
    path.write_bytes(b"old")
    with (
        pytest.raises(FileExistsError),
        atomic_file(path, overwrite=False, durable=durable) as file,
    ):
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert alone(path)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_a_private_file_has_mode_0600_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_file(path, private=True):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_another_file_has_the_mode_that_the_umask_leaves(path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(path, b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_draft_with_a_fixed_name_replaces_its_leftover(path: Path) -> None:
    draft = path.with_name("file.draft")
    draft.write_bytes(b"a longer leftover of a crash")
    write_atomic(path, b"new", draft=draft)
    assert path.read_bytes() == b"new"
    assert alone(path)


def test_a_draft_has_the_given_prefix_and_a_random_name(path: Path) -> None:
    with atomic_file(path, prefix=".draft-"):
        (draft,) = path.parent.iterdir()
    assert draft.name.startswith(".draft-")
    assert len(draft.name) == len(".draft-") + 16


def order_of_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    for name in ("fsync", "replace", "link", "unlink"):
        real = getattr(os, name)

        def call(*args: Any, name: str = name, real: Any = real) -> None:
            on_directory = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            done.append("fsync directory" if on_directory else name)
            real(*args)

        monkeypatch.setattr(os, name, call)
    return done


def test_the_disk_has_the_data_before_the_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = order_of_calls(monkeypatch)
    write_atomic(path, b"new")
    assert done == ["fsync", "replace", "fsync directory"]


def test_who_finds_the_file_there_also_waits_for_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"of a process that died before its name was on disk")
    done = order_of_calls(monkeypatch)
    with pytest.raises(FileExistsError), atomic_file(path, overwrite=False):
        pass
    assert done == ["fsync", "link", "unlink", "fsync directory"]


def test_a_crash_cannot_bring_back_the_draft_of_a_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = order_of_calls(monkeypatch)
    with atomic_file(path, private=True, overwrite=False):
        pass
    assert done == ["fsync", "link", "unlink", "fsync directory"]


def test_a_file_that_need_not_be_durable_costs_no_fsync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = order_of_calls(monkeypatch)
    write_atomic(path, b"new", durable=False)
    assert done == ["replace"]


def test_what_cannot_be_synced(tmp_path: Path, path: Path) -> None:
    sync_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_file(path)
    path.write_bytes(b"")
    sync_file(path)
    with pytest.raises(NotADirectoryError):
        sync_directory(path)
