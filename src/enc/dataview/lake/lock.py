"""One writer per lake: a lock on a file in its root, which the kernel releases when the holder
dies.

It works only for a root on a local file system; an address such as s3:// has no locks. Where the
lock is not enough, the writer also claims the tables: see claim.py.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from enc.core.errors import MisuseError
from enc.dataview.lake.claim import holder, holder_note
from enc.runtime.locks import FileLock, LockHeld

NAME = "_writer"


def local_directory(root: str) -> Path | None:
    """Return the directory of a root; None if it is an address."""
    scheme, colon, _ = root.partition(":")
    if not colon or len(scheme) == 1 or "/" in scheme:
        return Path(root)
    return Path(unquote(urlsplit(root).path)) if scheme == "file" else None


class LakeLock:
    """The lock of the lake under `root`. One object may acquire it several times, and releases it
    as often.
    """

    def __init__(self, root: str) -> None:
        directory = local_directory(root)
        self._path = None if directory is None else directory / NAME
        self._lock: FileLock | None = None
        self._depth, self._guard = 0, Lock()
        self.was_released = False
        """The previous holder released the lock, so nothing of it is still writing. False if it was
        killed, and for an address.
        """
        self._has_claimed = False

    @contextmanager
    def locked(self, what: str) -> Iterator["LakeLock"]:
        """Hold the lock. `what` describes the holder to other processes."""
        self.acquire(what)
        try:
            yield self
        finally:
            self.release()

    def acquire(self, what: str) -> None:
        """Acquire the lock. MisuseError names the holder if another process has it."""
        with self._guard:
            if self._path is not None and not self._depth:
                self._lock = _lock_file(self._path)
                self.was_released, self._has_claimed = not self._lock.read_note(), False
                self._lock.write_note(json.dumps(holder_note(what)).encode())
            self._depth += 1

    def claimed(self) -> None:
        """Record that the tables are claimed, so that nothing of a killed holder can still write."""
        self._has_claimed = True

    def release(self) -> None:
        """Release the lock. If a killed holder may still be writing, a note stays for the next one."""
        with self._guard:
            self._depth -= 1
            if not self._depth and self._lock is not None:
                if self.was_released or self._has_claimed:
                    self._lock.write_note(b"")
                self._lock.close()
                self._lock = None


def _lock_file(path: Path) -> FileLock:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path, mode=0o644)
    except LockHeld as e:
        raise MisuseError(f"{path.parent}: a lake has one writer, and {holder(e.note)} holds its lock") from None
    except OSError as e:
        raise MisuseError(f"{path.parent}: cannot create a lake here: {e.strerror}") from None
