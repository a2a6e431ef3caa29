"""Atomic file writes: after a crash there is the old file or the new one, and never a part of one.

The functions here raise OSError. `private_file` turns that into messages for a person.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(
    path: Path,
    *,
    draft: Path | None = None,
    prefix: str = ".enc-",
    private: bool = False,
    overwrite: bool = True,
    durable: bool = True,
) -> Iterator[BinaryIO]:
    """Yield a file to write to, which gets its name once it is complete; an exception removes it.

    It is written as a draft beside `path`: under `prefix` and a random name, or as `draft`, which
    replaces a leftover of that name. `private`: mode 0600 whatever the umask. Without `overwrite`,
    raises FileExistsError if `path` exists. `durable`: the disk has the data before the name, and
    the name before this returns.
    """
    exclusive = os.O_EXCL if draft is None else os.O_TRUNC
    draft = draft or path.with_name(f"{prefix}{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | exclusive, 0o600 if private else 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            if private:
                os.fchmod(fd, 0o600)
            yield file
            if durable:
                file.flush()
                os.fsync(fd)
        _publish(draft, path, overwrite=overwrite)
    except BaseException as e:
        _discard(draft)
        if durable and isinstance(e, FileExistsError):  # its writer may have died before the name was on disk
            sync_directory(path.parent)
        raise
    if durable:
        sync_directory(path.parent)


def _publish(draft: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(draft, path)
    else:
        os.link(draft, path)
        _discard(draft)  # a second name, which must not come back after a crash


def _discard(draft: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(draft)


def write_atomic(path: Path, data: bytes, *, draft: Path | None = None, durable: bool = True) -> None:
    """Write the file as `atomic_file` does, in place of one that exists."""
    with atomic_file(path, draft=draft, durable=durable) as file:
        file.write(data)


def sync_directory(path: Path) -> None:
    """Return once the disk has the names in this directory."""
    _sync(path, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Return once the disk has the file's content."""
    _sync(path)


def _sync(path: Path, flags: int = 0) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
