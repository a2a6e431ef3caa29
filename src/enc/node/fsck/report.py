"""Checks many enclaves, and the counts over all of them, and reports all differences."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from enc.core.errors import ReplayFailed, Unavailable
from enc.node.fsck.difference import Difference
from enc.node.fsck.enclave import EnclaveCheck, FsckProgress
from enc.node.fsck.usage import UsageTally, check_usage
from enc.node.store.sqlite.check import WRONG, check_integrity, check_whole
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store


class Report(Struct, frozen=True):
    """The result of a check of many enclaves."""

    enclaves: int
    events: int
    """Number of events checked; for an enclave with a difference, approximately those before it."""
    differences: list[Difference]
    """The first of each enclave, and those of the store as a whole."""


def check_enclave(store: Store, enclave: bytes, seq_pub: bytes, progress: FsckProgress) -> None:
    """Raise the first Difference between an enclave's log and the rest of the store of the node
    `seq_pub`.

    Only check_store checks SQLite's file and what belongs to no single enclave.
    """
    _check(store, enclave, seq_pub, progress, UsageTally())


def check_store(store: Store, seq_pub: bytes, enclaves: Iterable[bytes] | None, progress: FsckProgress) -> Report:
    """Check these enclaves; with None, all enclaves and the counts over all of them.

    A difference in one enclave does not stop the check of the others. Raises Unavailable if the
    store cannot be read at all.
    """
    checked, events, tally = 0, 0, UsageTally()

    def count(more: int) -> None:
        nonlocal events
        events += more
        progress(more)

    found = [Difference(b"", None, what) for what in _damage(store)]
    is_sound = not found
    for enclave in _all(store, is_sound) if enclaves is None else enclaves:
        checked += 1
        try:
            _check(store, enclave, seq_pub, count, tally)
        except Difference as e:
            found.append(e)
    if enclaves is None and is_sound:
        tally.is_complete = not found
        found += [Difference(b"", None, what) for what in _check_counts(store, checked, tally)]
    return Report(checked, events, found)


def _check(store: Store, enclave: bytes, seq_pub: bytes, progress: FsckProgress, tally: UsageTally) -> None:
    check = EnclaveCheck(store, enclave, seq_pub, progress, tally)
    try:
        check.run()
    except Difference:
        raise
    except ReplayFailed as e:
        raise Difference(enclave, e.seq, f"{e.code}: {e.cause.message}") from e
    except Exception as e:  # a damaged row may make its reader raise anything
        raise Difference(enclave, check.at, f"cannot be read: {type(e).__name__}: {e}") from e


def _damage(store: Store) -> Iterator[str]:
    if isinstance(store, SqliteStore):
        yield from check_integrity(store)


def _all(store: Store, is_sound: bool) -> list[bytes]:
    """Return all enclaves; of a damaged file, none if they cannot be listed."""
    try:
        return list(store.enclaves())
    except Unavailable:
        if is_sound:
            raise
        return []


def _check_counts(store: Store, enclaves: int, tally: UsageTally) -> Iterator[str]:
    try:
        if store.count() != enclaves - tally.purged:
            yield f"the number of enclaves: {WRONG}"
        if isinstance(store, SqliteStore):
            yield from check_whole(store)
        yield from check_usage(store, tally)
    except Exception as e:  # as above
        yield f"cannot be read: {type(e).__name__}: {e}"
