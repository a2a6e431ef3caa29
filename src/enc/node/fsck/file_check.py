"""Checks a store's file on all cores, whether or not its node runs.

Each enclave is checked as it is at one moment. A process reads a few enclaves at one moment and then
takes a later one, so that the node's write-ahead log can shrink meanwhile. What belongs to no single
enclave is checked at one moment too, except the counts over all enclaves: only if the node has
written nothing since the check began, they can be compared with the logs.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from enc.core.errors import MisuseError, Unavailable
from enc.node.fsck.difference import Difference
from enc.node.fsck.enclave import FsckProgress
from enc.node.fsck.report import (
    EnclaveReport,
    Report,
    check_counts,
    check_enclaves,
    check_rows,
    find_damage,
    list_enclaves,
)
from enc.node.store.sqlite.connection import open_existing
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.sqlite.store_snapshot import has_older_schema, open_snapshot

PORTION = 64
"""Enclaves that are read at one moment."""
SMALL_BYTES = 16 << 20
"""Size of a store from which further processes are worth their start."""
POLL_S = 0.2

_counter: "Synchronized[int]"


def check_file(
    path: Path, seq_pub: bytes, chosen: Sequence[bytes], progress: FsckProgress, jobs: int | None = None
) -> Report:
    """Check these enclaves; without any, all enclaves and the store as a whole.

    A store with an older schema is upgraded first, for which its node must not run. Raises
    MisuseError for an enclave that does not exist, and Unavailable if the store cannot be read at
    all.
    """
    if has_older_schema(path):
        SqliteStore(path).close()
    with closing(open_existing(path)) as watch:
        (before,) = watch.execute("PRAGMA data_version").fetchone()
        with open_snapshot(path) as store:
            damage = find_damage(store)
        with open_snapshot(path) as store:
            enclaves = list_enclaves(store, is_sound=not damage)
            for missing in set(chosen) - set(enclaves):
                raise MisuseError(f"--enclave: this node has no enclave {missing.hex()}")
        rows = list[Difference]()
        if not chosen and not damage:
            with open_snapshot(path) as store:
                rows = check_rows(store)
        found = EnclaveReport()
        enclaves = list(dict.fromkeys(chosen)) or enclaves
        for part in _check_all(path, seq_pub, enclaves, progress, _jobs(path, jobs, len(enclaves))):
            found.add(part)
        with open_snapshot(path) as store:  # before the question whether the node has written
            is_quiet = watch.execute("PRAGMA data_version").fetchone() == (before,)
            if is_quiet and not chosen and not damage:
                rows += check_counts(store, found)
    return Report(found.enclaves, found.events, [*damage, *found.differences, *rows], bool(chosen) or is_quiet)


def _jobs(path: Path, wanted: int | None, enclaves: int) -> int:
    if wanted is None and path.stat().st_size < SMALL_BYTES:
        return 1
    return max(1, min(wanted or len(os.sched_getaffinity(0)), enclaves))


def _check_all(
    path: Path, seq_pub: bytes, enclaves: Sequence[bytes], progress: FsckProgress, jobs: int
) -> Iterator[EnclaveReport]:
    size = max(1, min(PORTION, len(enclaves) // (4 * jobs)))
    portions = [enclaves[start : start + size] for start in range(0, len(enclaves), size)]
    if jobs == 1:
        yield from (check_portion(path, seq_pub, portion, progress) for portion in portions)
        return
    context = multiprocessing.get_context("spawn")
    counter = context.Value("Q", 0)
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(counter,)) as pool:
        try:
            futures = [pool.submit(_check_portion, path, seq_pub, portion) for portion in portions]
            yield from _collect(futures, counter, progress)
        except BrokenProcessPool:
            raise Unavailable("a process of the check was killed; if memory is short, give a lower --jobs") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _collect(
    futures: Sequence["Future[EnclaveReport]"], counter: "Synchronized[int]", progress: FsckProgress
) -> Iterator[EnclaveReport]:
    """Yield the results as they come, and report progress meanwhile."""
    waiting, shown = set(futures), 0
    while waiting:
        done, waiting = wait(waiting, POLL_S, FIRST_COMPLETED)
        progress(counter.value - shown)
        shown = counter.value
        yield from (each.result() for each in done)


def _begin(counter: "Synchronized[int]") -> None:
    """Prepare a process: only the parent handles interrupts."""
    global _counter
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _counter = counter


def _count(more: int) -> None:
    with _counter.get_lock():
        _counter.value += more


def _check_portion(path: Path, seq_pub: bytes, enclaves: Sequence[bytes]) -> EnclaveReport:
    return check_portion(path, seq_pub, enclaves, _count)


def check_portion(path: Path, seq_pub: bytes, enclaves: Sequence[bytes], progress: FsckProgress) -> EnclaveReport:
    """Check some enclaves as they are at one moment."""
    with open_snapshot(path) as store:
        return check_enclaves(store, seq_pub, enclaves, progress)
