"""Salvages a whole store: finds its rows, replays its logs into a new directory, and checks the result.

The new directory gets its name at the end. A failure leaves nothing; a crash leaves a directory
under another name, whose store is marked as restored from the beginning.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.signer import Signer
from enc.node.fsck import check_file
from enc.node.salvage.deliveries import SalvagedQueues, copy_deliveries, copy_queues
from enc.node.salvage.enclaves import EnclaveSalvage, SalvagedEnclaves
from enc.node.salvage.found_rows import FoundRows
from enc.node.salvage.pages import Pages
from enc.node.signatures.import_check import FEW, ImportSignaturePool
from enc.node.store.sqlite.connection import AfterCommit, lock_store, unavailable
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.provenance import ENDS_EARLY
from enc.node.store.sqlite.store import SqliteStore
from enc.runtime.clock import now_ms, utc_time
from enc.runtime.files import sync_directory, sync_file

PREFIX, FOUND = ".enc-salvage-", "found.db"


class SalvageReport(Struct, frozen=True):
    """The result of a salvage."""

    enclaves: SalvagedEnclaves
    queues: SalvagedQueues
    pages: int
    unreadable_pages: int
    damaged_frames: int
    """Damaged parts of the write-ahead log: the transactions in them are lost."""
    unnamed: int
    """Enclaves that the store counted, and of which nothing was found."""
    has_clock: bool
    """Whether the time that the node had recorded was found."""

    @property
    def is_whole(self) -> bool:
        """Return whether nothing is left out, as far as one can know."""
        return not (self.enclaves.left_out or self.unnamed)


class SalvageSteps(Struct, frozen=True):
    """What is called with progress: further pages that were searched, events that were replayed, and events
    that were checked.
    """

    pages: Callable[[int], None]
    events: Callable[[int], None]
    checked: Callable[[int], None]


class _Draft(NodeDatabase):
    """The new database. It does not wait for the disk: it is complete, or it is deleted."""

    def transact(self, work: Callable[[sqlite3.Connection], AfterCommit | None], *, lasting: bool = True) -> None:
        super().transact(work, lasting=False)


def salvage(
    store: Path,
    to: Path,
    key: Signer,
    steps: SalvageSteps,
    *,
    chosen: Sequence[bytes] = (),
    prefixes: bool = False,
    files: Sequence[Path] = (),
) -> SalvageReport:
    """Salvage the store into the new directory `to`, as a database with the same name.

    `chosen`: only these enclaves. `prefixes`: also logs whose last events are lost. `files`: further
    files to copy, such as the key's. Raises Unavailable if the node runs, if the new directory
    cannot be written, or if the new store does not pass its check.
    """
    if os.path.lexists(to):
        raise MisuseError(f"--to: {to}: already exists")
    with ExitStack() as stack:
        stack.enter_context(_stopped(store))
        pages = stack.enter_context(closing(Pages(store)))
        draft = stack.enter_context(_new_directory(to))
        try:
            report = _fill(draft / store.name, store, pages, key, steps, chosen, prefixes)
            _check(draft / store.name, key.public, steps)
            _finish(draft / store.name, files)
        except sqlite3.Error as e:
            raise unavailable("written", e) from None
        except OSError as e:
            raise Unavailable(f"{to}: cannot be written: {e.strerror or e}") from None
    return report


@contextmanager
def _stopped(store: Path) -> Iterator[None]:
    """Lock the store, unless it has no lock: then no node has run on it there."""
    lock = store.with_name(f"{store.name}.lock")
    with closing(lock_store(lock)) if lock.exists() else ExitStack():
        yield


@contextmanager
def _new_directory(to: Path) -> Iterator[Path]:
    """Yield a directory that gets its name afterwards; a failure deletes it."""
    try:
        draft = Path(tempfile.mkdtemp(prefix=PREFIX, dir=to.parent))
    except OSError as e:
        raise MisuseError(f"--to: {to}: cannot be created: {e.strerror}") from None
    try:
        yield draft
        if os.path.lexists(to):
            raise MisuseError(f"--to: {to}: already exists")
        os.rename(draft, to)
        sync_directory(to.parent)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(draft)
        raise


def _fill(
    path: Path,
    source: Path,
    pages: Pages,
    key: Signer,
    steps: SalvageSteps,
    chosen: Sequence[bytes],
    prefixes: bool,
) -> SalvageReport:
    with ExitStack() as stack:
        rows = stack.enter_context(closing(FoundRows(pages, path.with_name(FOUND))))
        rows.scan(steps.pages)
        store = SqliteStore(path, _Draft(path))
        stack.enter_context(closing(store))
        reason = f"salvaged from {source} at {utc_time(now_ms())}"
        store.provenance.mark(reason)
        checkers = _checkers(rows)
        stack.callback(checkers.close)
        copy_queues(rows, store.database)
        enclaves = EnclaveSalvage(rows, store, key, checkers, prefixes=prefixes, progress=steps.events)
        for missing in set(chosen) - enclaves.ids():
            raise MisuseError(f"--enclave: nothing was found of an enclave {missing.hex()}")
        enclaves.run(chosen)
        queues = copy_deliveries(rows, store.database)
        enclaves.keep_ordered()
        if any(each.kept for each in enclaves.done.left_out):
            store.provenance.mark(f"{reason}, {ENDS_EARLY}")
        has_clock = _copy_rest(rows, store.database)
        counted = rows.rows("SELECT coalesce(max(enclaves), 0) FROM node")[0][0]
        unnamed = 0 if chosen else max(0, counted - enclaves.count)
        return SalvageReport(
            enclaves.done, queues, pages.count, rows.unreadable, pages.damaged_frames, unnamed, has_clock
        )


def _checkers(rows: FoundRows) -> ImportSignaturePool:
    """Return processes for all cores, if there is a log that is worth their start."""
    largest = rows.rows("SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM events GROUP BY k >> 40)")[0][0]
    cores = os.sched_getaffinity(0)
    return ImportSignaturePool(cores, largest if len(cores) > 1 else min(largest, FEW))


def _copy_rest(rows: FoundRows, database: NodeDatabase) -> bool:
    """Copy the requests that are not accepted again, and the clock; return whether the clock was found."""
    clocks = rows.rows("SELECT clock, coalesce(shown, 0) FROM node")
    spent = rows.rows("SELECT digest, identity, until FROM spent_requests")

    def work(db: sqlite3.Connection) -> None:
        db.executemany("INSERT OR IGNORE INTO spent_requests VALUES (?, ?, ?)", spent)
        db.executemany("UPDATE node SET clock = max(clock, ?), shown = max(shown, ?)", clocks)

    database.transact(work)
    return bool(clocks)


def _check(path: Path, seq_pub: bytes, steps: SalvageSteps) -> None:
    differences = check_file(path, seq_pub, (), steps.checked).differences
    if differences:
        what = differences[0].message
        raise Unavailable(
            f"the new store has {len(differences)} differences, and was not kept: {what}; please report it"
        )


def _finish(path: Path, files: Sequence[Path]) -> None:
    path.with_name(FOUND).unlink()
    for file in files:
        shutil.copy2(file, path.with_name(file.name))  # with its mode
        sync_file(path.with_name(file.name))
    path.chmod(0o600)
    sync_file(path)
    sync_directory(path.parent)
