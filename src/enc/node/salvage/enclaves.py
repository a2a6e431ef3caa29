"""Salvages one log after the other, and records what became of each."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property, partial

from msgspec import MsgspecError, Struct

from enc.core.errors import EncError, InvalidArchive, ReplayFailed, Unavailable
from enc.core.primitives.signer import Signer
from enc.core.rules.parse_manifest import parse_manifest
from enc.node.salvage.found_log import FoundLog
from enc.node.salvage.found_rows import FoundRows
from enc.node.salvage.log_replay import SalvageReplay
from enc.node.salvage.log_staging import SalvageStaging
from enc.node.salvage.withheld import copy_withheld
from enc.node.signatures.import_check import ImportSignaturePool
from enc.node.store.sqlite.event_rows import SqlRow
from enc.node.store.sqlite.purge import DONE
from enc.node.store.sqlite.snapshot import unpack_state
from enc.node.store.sqlite.staging import GONE
from enc.node.store.sqlite.store import SqliteStore

SalvageProgress = Callable[[int], None]
"""Called with the number of further events that were salvaged."""

FAR = 1 << 62


class LeftOut(Struct, frozen=True):
    """An enclave that is not in the new store, or not with all of its events."""

    enclave: bytes
    """Empty if its id could not be read."""
    number: int
    """Its number in the damaged store."""
    reason: str
    missing: list[tuple[int, int]]
    """Ranges of seqs of the events that cannot be read."""
    kept: int = 0
    """Number of events in the new store: those before the first that is missing or invalid."""


class SalvagedEnclaves(Struct):
    """What became of the enclaves."""

    enclaves: int = 0
    events: int = 0
    tombstones: int = 0
    """Number of purged enclaves: only the purge itself is known of them."""
    signed_again: int = 0
    without_head: int = 0
    unconfirmed: int = 0
    """Number of enclaves whose stored state could not be read: the store does not say whether later
    events are lost.
    """
    left_out: list[LeftOut] = []


class EnclaveSalvage:
    """Salvages the enclaves of one store into another."""

    def __init__(
        self,
        rows: FoundRows,
        store: SqliteStore,
        key: Signer,
        checkers: ImportSignaturePool,
        *,
        prefixes: bool,
        progress: SalvageProgress,
    ) -> None:
        """`prefixes`: salvage also the beginning of a log whose later events are lost."""
        self._rows, self._store, self._key, self._checkers = rows, store, key, checkers
        self._prefixes, self._progress = prefixes, progress
        self.done = SalvagedEnclaves()

    def run(self, chosen: Sequence[bytes]) -> None:
        """Salvage the chosen enclaves; without any, all."""
        self._keep_purged(chosen)
        for enclave, logs in self._logs.items():
            if (not chosen or enclave in chosen) and enclave not in self._ordered:
                self._salvage_first(logs)

    def ids(self) -> set[bytes]:
        """Return the ids of the enclaves that were found."""
        purged = {bytes(enclave) for (enclave,) in self._rows.rows("SELECT enclave FROM enclaves WHERE purged > 0")}
        return purged | self._logs.keys()

    @property
    def count(self) -> int:
        """Return how many enclaves were found, without purged ones."""
        return len(self._logs)

    @cached_property
    def _ordered(self) -> set[bytes]:
        """The enclaves that the operator had purged: nothing of them comes back."""
        query = "SELECT target FROM restrictions WHERE kind = 'purge' AND length(target) = 64"
        return {bytes.fromhex(target) for (target,) in self._rows.rows(query)}

    def keep_ordered(self) -> None:
        """Keep what the operator forbids, and the tombstones of enclaves that the operator had purged.

        Call it last: an enclave whose row was not found gets a new number.
        """
        restrictions = self._rows.rows("SELECT * FROM restrictions")
        self._store.database.transact(lambda db: _insert_restrictions(db, restrictions, self._ordered))

    @cached_property
    def _logs(self) -> dict[bytes, list[FoundLog]]:
        """Return the logs of each enclave, the likeliest first. An import may have left an older one,
        and then its row says so; if the row is lost, the state tells which one the node served.
        """
        query = (
            "SELECT DISTINCT k >> 40 FROM events UNION SELECT e FROM states "
            "UNION SELECT e FROM enclaves WHERE purged = 0 EXCEPT SELECT e FROM enclaves WHERE purged != 0"
        )
        found = defaultdict[bytes, list[FoundLog]](list)
        for (e,) in self._rows.rows(query):
            log = FoundLog(self._rows, e)
            found[log.enclave or b"%d" % e].append(log)
        for logs in found.values():
            logs.sort(key=lambda log: (log.position is not None, log.expected), reverse=True)
        return found

    def _salvage_first(self, logs: list[FoundLog]) -> None:
        """Salvage one of the logs of an enclave, or record why that is not possible."""
        failures = []
        for log in logs:
            failure = self._salvage(log)
            if failure is None or failure.kept:
                failures = [failure] if failure else []
                break
            failures.append(failure)
        self.done.left_out += failures[:1]

    def _salvage(self, log: FoundLog) -> LeftOut | None:
        try:
            self._replay(log, log.expected)
            return None
        except ReplayFailed as e:
            reason, good = f"event {e.seq}: {e.code}: {e.cause.message}", e.seq
        except Unavailable:
            raise
        except EncError as e:
            reason, good = f"{e.code}: {e.message}", 0
        missing = log.missing()
        kept = self._replay_prefix(log, good) if self._prefixes and good else 0
        return LeftOut(log.enclave, log.e, "events cannot be read" if missing else reason, missing, kept)

    def _replay_prefix(self, log: FoundLog, end: int) -> int:
        """Salvage the events before `end`, if they replay; return their number."""
        try:
            self._replay(log, end)
        except Unavailable:
            raise
        except EncError:
            return 0
        return end

    def _replay(self, log: FoundLog, end: int) -> None:
        with ExitStack() as stack:
            staging = SalvageStaging(self._store.database, log.enclave, log.e, log.charges())
            stack.callback(self._clear)
            stack.callback(staging.drop)
            replay = SalvageReplay(self._store, staging, self._key, log, self._checkers)
            stack.callback(replay.close)
            replay.replay_events(log.events(end))
            if replay.replay.events < end:
                raise ReplayFailed(replay.replay.events, InvalidArchive("the event cannot be read"))
            if not replay.is_own:
                raise InvalidArchive("this node's key does not occur in the log")
            state = replay.adopt()
            copy_withheld(self._rows, self._store.database, log.e)
        done = self.done
        done.enclaves, done.events = done.enclaves + 1, done.events + state.seq + 1
        done.signed_again += replay.signed_again
        done.without_head += replay.without_head
        done.unconfirmed += log.position is None
        self._progress(state.seq + 1)

    def _clear(self) -> None:
        """Delete the rows of a log that failed."""
        while not self._store.delete_orphans(FAR):
            pass

    def _keep_purged(self, chosen: Sequence[bytes]) -> None:
        """Keep what is left of purged enclaves: that they were terminated. And keep which log replaced
        which.
        """
        columns = "e, enclave, manifest, terminated_at, state"
        query = f"SELECT {columns} FROM enclaves LEFT JOIN states USING (e) WHERE purged > 0"  # noqa: S608
        for e, enclave, manifest, terminated_at, state in self._rows.rows(query):
            is_ordered = enclave in self._ordered
            if chosen and enclave not in chosen and not is_ordered:
                continue
            if not is_ordered and (terminated_at is None or not _is_terminated(enclave, manifest, state)):
                self.done.left_out.append(LeftOut(enclave, e, "purged, and its last state cannot be read", []))
                continue
            row = e, enclave, manifest, terminated_at or 0, DONE
            self._store.database.transact(partial(_insert_purged, row, None if is_ordered else (e, state)))
            self.done.tombstones += 1
        replaced = self._rows.rows("SELECT e, became FROM enclaves WHERE purged < 0")
        self._store.database.transact(lambda db: _insert_replaced(db, replaced))


def _is_terminated(enclave: bytes, manifest: str, state: bytes | None) -> bool:
    try:
        return (
            state is not None and unpack_state(state, enclave, parse_manifest(manifest), {}).lifecycle == "terminated"
        )
    except (EncError, MsgspecError):
        return False


def _insert_purged(row: SqlRow, state: SqlRow | None, db: sqlite3.Connection) -> None:
    query = "INSERT OR IGNORE INTO enclaves (e, enclave, manifest, terminated_at, purged) VALUES (?, ?, ?, ?, ?)"
    db.execute(query, row)
    if state is not None:  # the operator's order to purge leaves none
        db.execute("INSERT OR IGNORE INTO states VALUES (?, ?, NULL)", state)
    db.execute("DELETE FROM sizes WHERE e = ?", row[:1])


def _insert_replaced(db: sqlite3.Connection, rows: Sequence[SqlRow]) -> None:
    query = "INSERT OR IGNORE INTO enclaves (e, enclave, manifest, purged, became) VALUES (?, randomblob(32), '', ?, ?)"
    db.executemany(query, [(e, GONE, became) for e, became in rows])


def _insert_restrictions(db: sqlite3.Connection, rows: Sequence[SqlRow], purged: set[bytes]) -> None:
    db.executemany("INSERT OR IGNORE INTO restrictions VALUES (?, ?, ?, ?, ?, ?)", rows)
    query = "INSERT OR IGNORE INTO enclaves (enclave, manifest, terminated_at, purged) VALUES (?, '', 0, ?)"
    for enclave in purged:
        db.execute(query, (enclave, DONE))
        db.execute("DELETE FROM sizes WHERE e = (SELECT e FROM enclaves WHERE enclave = ?)", (enclave,))
