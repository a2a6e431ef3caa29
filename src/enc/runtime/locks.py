"""Locks between processes: `flock` on a file or a directory.

The kernel releases a lock when its process ends.
"""

import fcntl
import os
from pathlib import Path
from typing import Self

MAX_NOTE = 1000
"""Bytes of a holder's note that are read."""


class LockHeld(Exception):
    """Another process, or another FileLock of this one, holds the lock. `note`: the holder's note."""

    def __init__(self, note: bytes) -> None:
        super().__init__("the lock is held")
        self.note = note


class FileLock:
    """An exclusive lock, held from construction to `close` or to the end of the `with` block.

    The file is created if missing, with `mode`, and stays. `wait`: wait for the holder; otherwise
    raise LockHeld. Raises OSError if the file cannot be opened or locked.
    """

    def __init__(self, path: Path, *, wait: bool = False, mode: int = 0o600) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        self._lock(wait)

    @classmethod
    def on_directory(cls, path: Path, *, wait: bool = False) -> Self:
        """Lock a directory that exists. Raises OSError if it does not."""
        self = cls.__new__(cls)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._lock(wait)
        return self

    def _lock(self, wait: bool) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = LockHeld(self.read_note())
            self.close()
            raise held from None
        except BaseException:
            self.close()
            raise

    def read_note(self) -> bytes:
        """Return the note of the present holder or, before it writes one, of the previous one."""
        try:
            return os.pread(self._fd, MAX_NOTE, 0)
        except IsADirectoryError:
            return b""

    def write_note(self, note: bytes) -> None:
        """Replace the file's content: what others read from LockHeld.note. Empty: remove it."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, note, 0)

    def is_at_path(self) -> bool:
        """Return whether the path still names what is locked; its last holder may have removed it."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the lock; does nothing the second time."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
