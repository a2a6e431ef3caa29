"""Returns the free space in a node's database to the disk. The node must not run."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from msgspec import Struct

from enc.core.errors import Unavailable
from enc.node.store.sqlite.connection import lock_store, open_existing

FACTOR = 2
"""SQLite first writes the whole database to a temporary file, and then to its write-ahead log."""


class Compacted(Struct, frozen=True):
    """Size of the database before and after, in bytes."""

    before: int
    after: int


def compact(store: Path) -> Compacted:
    """Rewrite the database without its free pages, in one transaction: an interruption changes nothing.

    Raises Unavailable if the node runs, if another program reads the store, if the disk is too full or
    if the store is damaged.
    """
    open_existing(store).close()
    with ExitStack() as stack:
        stack.enter_context(closing(lock_store(store.with_name(f"{store.name}.lock"))))
        stack.enter_context(_temporary_files_in(store.parent))
        try:
            db = stack.enter_context(closing(sqlite3.connect(store, isolation_level=None)))
            _empty_log(store, db)
            before = store.stat().st_size
            _check_space(store, before)
            db.execute("VACUUM")
            _empty_log(store, db)
        except sqlite3.Error as e:
            raise Unavailable(f"{store}: cannot be compacted: {e}") from None
    return Compacted(before, store.stat().st_size)


def _empty_log(store: Path, db: sqlite3.Connection) -> None:
    """Move the write-ahead log into the database."""
    (is_busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if is_busy:
        raise Unavailable(f"{store}: another program is reading it: try again when it has ended")


def _check_space(store: Path, size: int) -> None:
    free, needed = shutil.disk_usage(store.parent).free, FACTOR * size
    if free < needed:
        raise Unavailable(f"{store.parent}: {needed:,} bytes must be free, {free:,} are: free some space")


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Let SQLite write temporary files there: its default folder may be on a small disk."""
    name = "SQLITE_TMPDIR"
    before = os.environ.get(name)
    os.environ[name] = str(folder.absolute())
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
