"""A copy of a node's database as it stood at one moment, made while the node runs."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from enc.core.errors import MisuseError


def backup(store: Path, to: Path) -> int:
    """Copy the database at `store` into the new file `to`; how many bytes it has.

    One read transaction covers all of it, so the copy is whole; writers go on meanwhile, and what they write is not in
    it. The file gets its name once the disk has it.
    """
    if not store.is_file():
        raise MisuseError(f"{store}: there is no database")
    if to.exists():
        raise MisuseError(f"{to}: is there already")
    draft = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(descriptor)
        _copy(store, draft)
        os.link(draft, to)
        _sync(to.parent)
    except (OSError, sqlite3.Error) as e:
        raise MisuseError(f"{to}: cannot be written: {getattr(e, 'strerror', None) or e}") from None
    finally:
        with suppress(OSError):
            draft.unlink()
    return to.stat().st_size


def _copy(store: Path, draft: Path) -> None:
    with (
        closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as source,
        closing(sqlite3.connect(draft)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no -wal beside it
    _sync(draft)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
