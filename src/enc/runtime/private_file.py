"""Files that only their owner may read: written completely or not at all.

A file that another user could access is rejected. Every failure is a MisuseError that names the
path and says what to do. No message contains what a file holds.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError
from enc.runtime.files import atomic_file, sync_directory


def read(path: Path, limit: int) -> bytes | None:
    """Return what the file holds, at most `limit` bytes; None if there is no file."""
    try:
        fault, data = _read(path, limit)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:
        refuse(path, f"cannot be read: {reason(e)}")
    if fault:
        refuse(path, fault)
    return data


def _read(path: Path, limit: int) -> tuple[str, bytes]:
    """Return what is wrong with the file, and what it holds.

    The checks are made on the open file, so that nobody can swap it between check and read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not block
    try:
        fault = _fault(path, os.fstat(fd))
        data = b"" if fault else os.read(fd, limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        fault = f"holds more than {limit} bytes, so enc did not write it; give another path"
    return fault, data


def _fault(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file; give the path of one"
    if is_credential(path, status):
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user; run as that user, or take a copy of your own"
    if status.st_mode & 0o077:
        return f"can be read or written by users other than its owner; if nobody else has used it, `chmod 600 {path}`"
    return ""


def is_credential(path: Path, status: os.stat_result) -> bool:
    """Return whether systemd provides this file to the service (LoadCredential).

    It may belong to root, and an ACL that lets only the service read it shows as a right of the
    group.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    is_there = bool(folder) and path.parent == Path(str(folder))
    return is_there and status.st_uid == 0 and not status.st_mode & 0o037


def write(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Write the file with mode 0600, on disk when this returns.

    Without `overwrite`, an existing file stays as it is. The file gets its name only when it is
    complete: after a crash there is the old one or the new one.
    """
    try:
        with atomic_file(path, private=True, overwrite=overwrite) as file:
            file.write(data)
    except FileExistsError:
        refuse(path, "exists already and was not changed; give another path, or move the file away first")
    except (OSError, ValueError) as e:
        refuse(path, f"cannot be written: {reason(e)}")


def create(path: Path) -> None:
    """Create an empty file with mode 0600; one that exists must be accessible to its owner alone."""
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            sync_directory(path.parent)
        fault = _fault(path, path.stat())
    except (OSError, ValueError) as e:
        refuse(path, f"cannot be made: {reason(e)}")
    if fault:
        refuse(path, fault)


def make_directory(path: Path) -> None:
    """Create the directory, and those above it that are missing, with mode 0700."""
    if path.is_dir() or path == path.parent:
        return
    make_directory(path.parent)
    path.mkdir(0o700, exist_ok=True)
    sync_directory(path.parent)


def refuse(path: Path, why: str) -> NoReturn:
    """Raise MisuseError about this path."""
    raise MisuseError(f"{path}: {why}") from None


def reason(error: Exception) -> str:
    """Return the system's description of an error, without the path."""
    return getattr(error, "strerror", None) or str(error)
