"""Copies a node's database as of one moment, while the node runs."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from enc.core.errors import MisuseError, Unavailable
from enc.node.store.sqlite.check import damage_of
from enc.node.store.sqlite.connection import open_existing
from enc.node.store.sqlite.provenance import mark_copy
from enc.runtime.clock import now_ms, utc_time
from enc.runtime.files import sync_directory, sync_file

_OF_THE_STORE = ("NOTADB", "CORRUPT", "IOERR_READ", "IOERR_SHORT_READ", "BUSY")
"""SQLite errors that only the store can cause: the copy is new, and no other process has it open.
"""


def backup(store: Path, to: Path, *, damaged_too: bool = False) -> int:
    """Copy the database at `store` into the new file `to`, readable only by its owner; return its
    size.

    The copy is checked for damaged pages and indexes; a damaged one is deleted, unless `damaged_too`.
    It is marked as restored: a node that runs on it signs nothing until its operator adopts it.
    One read transaction covers the whole copy. Writers continue meanwhile; their changes are not in
    the copy. It is written in a temporary directory beside `to`, and is linked to its name after
    fsync: a failure leaves nothing.
    """
    if os.path.lexists(to):
        raise MisuseError(f"{to}: already exists")
    if not to.parent.is_dir():
        raise MisuseError(f"{to.parent}: no such directory")
    with closing(open_existing(store)) as source:
        try:
            with TemporaryDirectory(prefix=".enc-backup-", dir=to.parent) as own:
                draft = _copy(source, Path(own, "draft"))
                if not damaged_too:
                    _check(store, draft)
                os.link(draft, to)
            sync_directory(to.parent)
        except FileExistsError:
            raise MisuseError(f"{to}: already exists") from None
        except OSError as e:
            raise Unavailable(f"{to}: cannot be written: {e.strerror or e}") from None
        except sqlite3.Error as e:
            is_store = getattr(e, "sqlite_errorname", "").removeprefix("SQLITE_").startswith(_OF_THE_STORE)
            where = f"{store}: cannot be read" if is_store else f"{to}: cannot be written"
            raise Unavailable(f"{where}: {e}") from None
    return to.stat().st_size


def _check(store: Path, draft: Path) -> None:
    with closing(sqlite3.connect(draft)) as copy:
        damage = damage_of(copy)
    if damage:
        raise Unavailable(
            f"{store}: is damaged, and nothing was copied: {damage[0]}. "
            "Keep the last sound backup; --damaged copies the store all the same"
        )


def _copy(source: sqlite3.Connection, draft: Path) -> Path:
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(draft)) as copy:
        source.backup(copy)
        mark_copy(copy, f"a backup made at {utc_time(now_ms())}")
        copy.commit()
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no -wal beside it
    sync_file(draft)
    return draft
