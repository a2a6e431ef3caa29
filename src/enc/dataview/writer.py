"""One writer a lake: a lock on a file in its root, which the kernel takes back when its holder dies.

Only for a root on a file system of this machine: an address such as s3:// has no locks, and whoever runs the pipeline
there sees to it that there is one.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from urllib.parse import unquote, urlsplit

from enc.core.errors import MisuseError
from enc.runtime.locks import FileLock, LockHeld

NAME = "_writer"


def local(root: str) -> Path | None:
    """The directory that a root is; None where it is an address."""
    scheme, colon, _ = root.partition(":")
    if not colon or len(scheme) == 1 or "/" in scheme:
        return Path(root)
    return Path(unquote(urlsplit(root).path)) if scheme == "file" else None


class Writer:
    """Who writes to the lake under `root`. One object may hold it several times over, and gives it back as often."""

    def __init__(self, root: str) -> None:
        directory = local(root)
        self._path = None if directory is None else directory / NAME
        self._lock: FileLock | None = None
        self._times, self._guard = 0, Lock()

    @contextmanager
    def holding(self, what: str) -> Iterator["Writer"]:
        """`what`: for others to read who come meanwhile."""
        self.hold(what)
        try:
            yield self
        finally:
            self.let_go()

    def hold(self, what: str) -> None:
        """MisuseError says who holds it, if it is another."""
        with self._guard:
            if self._path is not None and not self._times:
                self._lock = _locked(self._path, what)
            self._times += 1

    def let_go(self) -> None:
        with self._guard:
            self._times -= 1
            if not self._times and self._lock is not None:
                self._lock.write_note(b"")
                self._lock.close()
                self._lock = None


def _locked(path: Path, what: str) -> FileLock:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, mode=0o644)
    except LockHeld as e:
        raise MisuseError(f"{path.parent}: a lake has one writer, and {_holder(e.note)} is it") from None
    except OSError as e:
        raise MisuseError(f"{path.parent}: cannot be a lake: {e.strerror}") from None
    since = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    holder = {"what": what, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
    lock.write_note(json.dumps(holder).encode())
    return lock


def _holder(note: bytes) -> str:
    try:
        found = json.loads(note)
        return f"`{found['what']}` (process {found['pid']} on {found['host']}, since {found['since']})"
    except (ValueError, TypeError, LookupError):
        return "another process"
