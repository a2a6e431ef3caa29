"""Files for their owner's eyes only: written whole or not at all, read only where nobody else could have put a hand in.

Every refusal is a MisuseError that names the path and says what to do. It never tells what a file holds.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError


def read(path: Path, limit: int) -> bytes | None:
    """What the file holds, at most `limit` bytes; None where there is no file."""
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
    """What is wrong with the file, or what it holds. Judged is what was opened: nobody can swap it in between."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe must not hold us up
    try:
        fault = _fault(path, os.fstat(fd))
        data = b"" if fault else os.read(fd, limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        fault = f"holds more than {limit} bytes, and so is none of ours; give the path of another"
    return fault, data


def _fault(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file; give the path of one"
    if status.st_uid != os.geteuid():
        return "belongs to another user; run as that user, or take a copy of your own"
    if status.st_mode & 0o077:
        return f"is open to others than its owner; if nobody else has used it, `chmod 600 {path}`"
    return ""


def write(path: Path, data: bytes, *, overwrite: bool) -> None:
    """Put `data` there, on disk when this returns. Without `overwrite`, a file that is there stays as it is.

    The file gets its name only when it is whole: after a crash there is the old one or the new one.
    """
    try:
        _put(path, data, overwrite)
    except FileExistsError:
        refuse(path, "is there already, and stays as it is; give another path, or ask for it to be overwritten")
    except (OSError, ValueError) as e:
        refuse(path, f"cannot be written: {reason(e)}")


def _put(path: Path, data: bytes, overwrite: bool) -> None:
    draft = path.with_name(f".enc-{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)  # whatever the umask took away
            file.write(data)
            file.flush()
            os.fsync(fd)
        if overwrite:
            os.replace(draft, path)
        else:
            os.link(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    sync_directory(path.parent)


def create(path: Path) -> None:
    """An empty file, unless one is there already; that one must be its owner's alone."""
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
    """Make the directory, and those above it that are missing, for their owner alone."""
    if path.is_dir() or path == path.parent:
        return
    make_directory(path.parent)
    path.mkdir(0o700, exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """The disk has the names in this directory when this returns."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse(path: Path, why: str) -> NoReturn:
    raise MisuseError(f"{path}: {why}") from None


def reason(error: Exception) -> str:
    """What the system says went wrong, without the path."""
    return getattr(error, "strerror", None) or str(error)
