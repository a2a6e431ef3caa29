"""The check of many enclaves, and of what is counted over all of them: what it found, in one report."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from enc.core.errors import ReplayFailed, Unavailable
from enc.node.fsck.difference import Difference
from enc.node.fsck.enclave import EnclaveCheck, Progress
from enc.node.fsck.usage import Tally, check_usage
from enc.node.store.base import Store
from enc.node.store.sqlite import SqliteStore
from enc.node.store.sqlite_check import WRONG, check_integrity, check_whole


class Report(Struct, frozen=True):
    """What a check of many enclaves found."""

    enclaves: int
    events: int
    """Those that were checked; of an enclave with a difference, about those before it."""
    differences: list[Difference]
    """The first of each enclave, and those of the store as a whole."""


def check_enclave(store: Store, enclave: bytes, seq_pub: bytes, progress: Progress) -> None:
    """Raise the first Difference between an enclave's log and what the store of the node `seq_pub` holds of it.

    Whether SQLite's file is sound, and what belongs to no single enclave, only check_store asks.
    """
    _check(store, enclave, seq_pub, progress, Tally())


def check_store(store: Store, seq_pub: bytes, enclaves: Iterable[bytes] | None, progress: Progress) -> Report:
    """Check these enclaves; or, given None, all of them and what is counted over all.

    A difference in one enclave does not end the check of the others. Unavailable: the store cannot be asked at all.
    """
    checked, events, tally = 0, 0, Tally()

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


def _check(store: Store, enclave: bytes, seq_pub: bytes, progress: Progress, tally: Tally) -> None:
    check = EnclaveCheck(store, enclave, seq_pub, progress, tally)
    try:
        check.run()
    except Difference:
        raise
    except ReplayFailed as e:
        raise Difference(enclave, e.seq, f"{e.code}: {e.cause.message}") from e
    except Exception as e:  # whatever a damaged row makes its reader raise
        raise Difference(enclave, check.at, f"cannot be read: {type(e).__name__}: {e}") from e


def _damage(store: Store) -> Iterator[str]:
    if isinstance(store, SqliteStore):
        yield from check_integrity(store)


def _all(store: Store, is_sound: bool) -> list[bytes]:
    """All enclaves; of a damaged file, none where not even they can be listed."""
    try:
        return list(store.enclaves())
    except Unavailable:
        if is_sound:
            raise
        return []


def _check_counts(store: Store, enclaves: int, tally: Tally) -> Iterator[str]:
    try:
        if store.count() != enclaves - tally.purged:
            yield f"the number of enclaves: {WRONG}"
        if isinstance(store, SqliteStore):
            yield from check_whole(store)
        yield from check_usage(store, tally)
    except Exception as e:  # as above
        yield f"cannot be read: {type(e).__name__}: {e}"
