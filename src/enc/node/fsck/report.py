"""Checks many enclaves, and the counts over all of them, and reports all differences."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from enc.core.errors import ReplayFailed, Unavailable
from enc.node.fsck.difference import Difference
from enc.node.fsck.enclave import EnclaveCheck, FsckProgress
from enc.node.fsck.usage import UsageTally, check_usage
from enc.node.store.sqlite.check import WRONG, check_integrity, check_whole
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store


class EnclaveReport(Struct):
    """The result of a check of some enclaves, one by one."""

    enclaves: int = 0
    events: int = 0
    differences: list[Difference] = []
    tally: UsageTally = field(default_factory=UsageTally)

    def add(self, other: "EnclaveReport") -> None:
        """Add the result of a check of other enclaves."""
        self.enclaves += other.enclaves
        self.events += other.events
        self.differences = [*self.differences, *other.differences]
        self.tally.add(other.tally)


class Report(Struct, frozen=True):
    """The result of a check of many enclaves."""

    enclaves: int
    events: int
    """Number of events checked; for an enclave with a difference, approximately those before it."""
    differences: list[Difference]
    """The first of each enclave, and those of the store as a whole."""
    is_whole: bool = True
    """False if the counts over all enclaves could not be checked, because the node wrote meanwhile."""


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
    damage = find_damage(store)
    found = check_enclaves(
        store, seq_pub, list_enclaves(store, is_sound=not damage) if enclaves is None else enclaves, progress
    )
    differences = [*damage, *found.differences]
    if enclaves is None and not damage:
        differences += [*check_counts(store, found), *check_rows(store)]
    return Report(found.enclaves, found.events, differences)


def check_enclaves(store: Store, seq_pub: bytes, enclaves: Iterable[bytes], progress: FsckProgress) -> EnclaveReport:
    """Check these enclaves, one by one."""
    found = EnclaveReport()

    def count(more: int) -> None:
        found.events += more
        progress(more)

    for enclave in enclaves:
        found.enclaves += 1
        try:
            _check(store, enclave, seq_pub, count, found.tally)
        except Difference as e:
            found.differences.append(e)
    return found


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


def find_damage(store: Store) -> list[Difference]:
    """Return the damage to a SQLite file."""
    found = check_integrity(store) if isinstance(store, SqliteStore) else ()
    return [Difference(b"", None, what) for what in found]


def check_rows(store: Store) -> list[Difference]:
    """Check the rows of a SQLite store that belong to no single enclave."""
    found = _read(check_whole, store) if isinstance(store, SqliteStore) else ()
    return [Difference(b"", None, what) for what in found]


def list_enclaves(store: Store, *, is_sound: bool) -> list[bytes]:
    """Return all enclaves; of a damaged file, none if they cannot be listed."""
    try:
        return list(store.enclaves())
    except Unavailable:
        if is_sound:
            raise
        return []


def check_counts(store: Store, found: EnclaveReport) -> list[Difference]:
    """Compare the counts over all enclaves with what was found in their logs."""
    found.tally.is_complete = not found.differences
    return [Difference(b"", None, what) for what in _read(_check_counts, store, found)]


def _check_counts(store: Store, found: EnclaveReport) -> Iterator[str]:
    if store.count() != found.enclaves - found.tally.purged:
        yield f"the number of enclaves: {WRONG}"
    yield from check_usage(store, found.tally)


def _read(check: Callable[..., Iterator[str]], *args: object) -> Iterator[str]:
    try:
        yield from check(*args)
    except Exception as e:  # a damaged row may make its reader raise anything
        yield f"cannot be read: {type(e).__name__}: {e}"
