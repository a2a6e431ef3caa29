"""File locks: between threads, and between real processes, one of which is killed."""

import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enc.runtime.locks import MAX_NOTE, FileLock, LockHeld

HOLDER = """
import sys
from pathlib import Path
from enc.runtime.locks import FileLock
with FileLock(Path(sys.argv[1])) as lock:
    lock.write_note(b"mine")
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the lock until its standard input ends."""
    command, pipe = [sys.executable, "-c", HOLDER, str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_another_process_is_kept_out_until_the_holder_ends(path: Path) -> None:
    with holder(path) as process:
        with pytest.raises(LockHeld) as caught:
            FileLock(path)
        assert caught.value.note == b"mine"
        process.communicate()
        FileLock(path).close()


def test_a_killed_holder_leaves_the_lock_free(path: Path) -> None:
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with FileLock(path):
            pass


def test_two_locks_of_one_process_exclude_each_other(path: Path) -> None:
    with FileLock(path), pytest.raises(LockHeld):
        FileLock(path)
    FileLock(path).close()


def test_a_waiting_lock_is_granted_when_the_holder_closes(path: Path) -> None:
    first, got = FileLock(path), threading.Event()

    def wait() -> None:
        with FileLock(path, wait=True):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.wait(0.05)
    first.close()
    assert got.wait(10)
    thread.join()


def test_closing_twice_does_nothing(path: Path) -> None:
    lock = FileLock(path)
    lock.close()
    lock.close()


def test_the_file_is_created_for_its_owner_or_with_the_given_mode(path: Path) -> None:
    FileLock(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other = path.with_name("other")
    FileLock(other, mode=0o644).close()
    assert stat.S_IMODE(other.stat().st_mode) & 0o600 == 0o600


def test_a_note_replaces_the_last_and_is_read_up_to_a_bound(path: Path) -> None:
    with FileLock(path) as lock:
        lock.write_note(b"n" * 2 * MAX_NOTE)
        with pytest.raises(LockHeld) as caught:
            FileLock(path)
        assert caught.value.note == b"n" * MAX_NOTE
        lock.write_note(b"short")
        assert path.read_bytes() == b"short"
        lock.write_note(b"")
        assert path.read_bytes() == b""


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "missing" / "lock")


def test_a_directory_is_locked_and_noticed_when_it_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with pytest.raises(FileNotFoundError):
        FileLock.on_directory(folder)
    folder.mkdir()
    with FileLock.on_directory(folder) as lock:
        assert lock.is_at_path()
        with pytest.raises(LockHeld) as caught:
            FileLock.on_directory(folder)
        assert caught.value.note == b""
        folder.rmdir()
        assert not lock.is_at_path()
        folder.mkdir()
        assert not lock.is_at_path()
