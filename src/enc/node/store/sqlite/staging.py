"""Imports a log into the database: slice by slice, under a number that no enclave has until the
end.

Rows of an enclave are stored by its number. A staged log has one too, in a row of `enclaves` whose
id is 32 random bytes and whose `purged` is STAGED; searches, sweeps and listings ignore it.
Adopting the log is one transaction that gives the row the enclave's id. So a node that dies at any
point has all of it or nothing, and the next start deletes leftovers in bounded steps. The same code
makes the rows of imported events and of commits.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence

from msgspec.json import encode

from enc.core.errors import Duplicate, EnclaveExists, ReplayFailed
from enc.core.log.event import target_of
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event, Target
from enc.node.store.sqlite import purge
from enc.node.store.sqlite.batch import ERASE, Batch, WriterCache, add_usage
from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.enclave_numbers import EnclaveNumbers
from enc.node.store.sqlite.event_index import EventIndex, EventKeys, find_in_index
from enc.node.store.sqlite.event_rows import COLUMNS, MAX_SEQ, all_first8, key_of, pack_plain, unpack_event
from enc.node.store.sqlite.snapshot import pack_state
from enc.node.store.sqlite.withheld_tables import carry_over
from enc.node.store.steps import AppendRun, Step
from enc.node.store.store_interface import Charge

STAGED, GONE = -1, -2
"""Values of `enclaves.purged`: a log that is not, or no longer, an enclave's; and one whose rows
are all deleted.
"""

MAX_ERASED = 500
"""Contents that one call of `rest` erases: it bounds how long commits wait."""

GENERATION = 65_536
"""Ids that are collected before they are inserted into the index, where neighbours share a page."""

_EVENT = f"SELECT {COLUMNS} FROM events WHERE k = ?"  # noqa: S608
_ERASE_EXPIRED = (
    f"{ERASE} WHERE k IN (SELECT k FROM events INDEXED BY events_auto_delete "  # noqa: S608
    "WHERE auto_delete <= ? AND k BETWEEN ? AND ? LIMIT ?)"
)
_REPEATS = (
    "SELECT min(b.k) FROM json_each(?) AS asked CROSS JOIN events AS b ON b.k = asked.value "
    "CROSS JOIN events AS a ON a.exp = b.exp AND a.hash8 = b.hash8 "
    "WHERE a.k >= ? AND a.k < b.k AND substr(a.head, 82, 64) = substr(b.head, 82, 64)"
)


class StagedEventIndex(EventIndex):
    """The event index of one staged log: the latest ids in memory, the others in the index."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def add(self, db: sqlite3.Connection, places: EventKeys) -> Callable[[], None]:
        return lambda: self._places.update(places)

    def find(self, db: sqlite3.Connection, e: int, event_id: bytes) -> int | None:
        k = self._places.get(event_id)
        return find_in_index(db, e, event_id) if k is None else k

    @property
    def is_full(self) -> bool:
        return len(self._places) >= GENERATION

    def move(self, db: sqlite3.Connection) -> Callable[[], None]:
        """Move all ids from memory into the index."""
        bulk_insert(db, "INSERT INTO ids", sorted(zip(all_first8(self._places), self._places.values(), strict=True)))
        return self._places.clear


class StagingBatch(Batch):
    """The rows of staged steps. State and usage are written at the end."""

    def __init__(self, db: sqlite3.Connection, cache: WriterCache, enclave: bytes, e: int) -> None:
        super().__init__(db, cache)
        self._numbers[enclave], self._e = e, e

    def add_run(self, run: AppendRun) -> None:
        """Do the same as `add` for each step of the run."""
        e, predefined, kinds = self._e, run.state.policy.predefined, dict[str, int]()
        for event in run.events:
            k, c = key_of(e, event.seq), kinds.get(event.type)
            if c is None:
                c = kinds[event.type] = self._kind(e, event.type, event.type)
            if event.tags or event.alg != "schnorr":
                self._events.append(self._pack(e, k, c, event, predefined))
            else:
                self._plain.append(pack_plain(k, c, event))
            self._keys[e, event.id] = k, event.tags
            self._live[c] += 1

    def _charge(self, event: Event) -> None:
        """Do nothing: one identity is charged at the end."""

    def _write_states(self) -> None:
        """Do nothing: the last state is written at the end."""


class SqliteStaging:
    """A Staging in the database. One thread at a time may use it; it writes on the store's thread."""

    def __init__(self, database: NodeDatabase, enclave: bytes, held: int) -> None:
        self._database, self._enclave, self._held = database, enclave, held
        self.name = os.urandom(32)
        self._ids = StagedEventIndex()
        self._cache = WriterCache(EnclaveNumbers(), self._ids)
        self.size = 0
        self._e, self._latest_exp = 0, -1
        database.transact(self._begin)
        database.staged[self.name] = self._e
        database.hidden.add(self._e)

    def _begin(self, db: sqlite3.Connection) -> None:
        query = "INSERT INTO enclaves (enclave, manifest, purged) VALUES (?, '', ?)"
        self._e = db.execute(query, (self.name, STAGED)).lastrowid or 0

    def write(self, steps: Sequence[Step | AppendRun]) -> None:
        events = _events(steps)
        doubtful = self._doubtful(events)
        repeat: int | None = None

        def work(db: sqlite3.Connection) -> Callable[[], None]:
            nonlocal repeat
            batch = StagingBatch(db, self._cache, self._enclave, self._e)
            for step in steps:
                if isinstance(step, AppendRun):
                    batch.add_run(step)
                else:
                    batch.add(step)
            after_commit = batch.write()
            if doubtful:
                ((repeat,),) = db.execute(_REPEATS, (encode(doubtful).decode(), key_of(self._e, 0)))
            return after_commit

        self._database.transact(work, lasting=False)  # the adoption is lasting, and makes everything before it so
        self.size += sum(_size(event.content) for event in events if event.content and event.seq > self._held)
        if repeat is not None:
            raise ReplayFailed(repeat & MAX_SEQ, Duplicate("the commit is already in the log"))
        if self._ids.is_full:
            self._database.transact(self._ids.move, lasting=False)

    def _doubtful(self, events: Sequence[Event]) -> list[int]:
        """Return the keys of events that may be in the log twice. A commit's hash covers its `exp`,
        so an event with a higher `exp` than all before cannot be a repetition.

        The index then decides, so that the log need not be kept in memory.
        """
        found, latest = list[int](), self._latest_exp
        for event in events:
            if event.exp > latest:
                latest = event.exp
            else:
                found.append(key_of(self._e, event.seq))
        self._latest_exp = latest
        return found

    def target(self, event_id: bytes) -> Target | None:
        with self._database.readers.lend() as db:
            k = self._ids.find(db, self._e, event_id)
            row = None if k is None else db.execute(_EVENT, (k,)).fetchone()
        return None if row is None else target_of(unpack_event(row))

    def rest(self, clock: int) -> bool:
        self._database.transact(self._ids.move, lasting=False)
        erased = 0

        def work(db: sqlite3.Connection) -> None:
            nonlocal erased
            args = clock, key_of(self._e, 0), key_of(self._e, MAX_SEQ), MAX_ERASED
            erased = db.execute(_ERASE_EXPIRED, args).rowcount

        self._database.transact(work)
        return erased == MAX_ERASED

    def adopt(self, state: EnclaveState, payer: bytes, clock: int) -> None:
        self._database.transact(self._ids.move, lasting=False)
        self._database.transact(lambda db: self._adopt(db, state, payer, clock))
        self._database.staged.pop(self.name)
        self._database.hidden.discard(self._e)
        self._database.cache.numbers.forget(self._enclave)

    def _adopt(self, db: sqlite3.Connection, state: EnclaveState, payer: bytes, clock: int) -> Callable[[], None]:
        row = db.execute("SELECT e FROM enclaves WHERE enclave = ?", (self._enclave,)).fetchone()
        if (row is None) != (self._held < 0):
            raise EnclaveExists("the enclave was created or removed while its log was imported")
        if row is not None:
            self._replace(db, row[0], clock)
            carry_over(db, row[0], self._e)
        query = "UPDATE enclaves SET enclave = ?, manifest = ?, purged = 0 WHERE e = ?"
        db.execute(query, (self._enclave, self._manifest(db), self._e))
        db.execute("UPDATE node SET clock = max(clock, ?), enclaves = enclaves + ?", (clock, row is None))
        deadline = state.bundle.deadline(state.policy.bundle) if state.bundle else None
        db.execute("INSERT INTO states VALUES (?, ?, ?)", (self._e, pack_state(state), deadline))
        bulk_insert(db, "INSERT INTO pending", [(self._e, key, value) for key, value in state.pending.items()])
        self._charge(db, state.seq, payer)
        return lambda: None if row is None else self._database.hidden.add(row[0])

    def _manifest(self, db: sqlite3.Connection) -> str:
        (content,) = db.execute("SELECT content FROM events WHERE k = ?", (key_of(self._e, 0),)).fetchone()
        return str(content)

    def _replace(self, db: sqlite3.Connection, e: int, clock: int) -> None:
        """Detach the log that was stored before. Running reads may continue for a while."""
        query = "UPDATE enclaves SET enclave = ?, purged = ?, terminated_at = ?, became = ? WHERE e = ?"
        db.execute(query, (os.urandom(32), STAGED, clock, self._e, e))
        db.execute("UPDATE outbox SET e = ? WHERE e = ?", (self._e, e))
        db.execute("DELETE FROM states WHERE e = ?", (e,))
        db.execute("UPDATE charges SET e = ? WHERE e = ?", (self._e, e))

    def _charge(self, db: sqlite3.Connection, last: int, payer: bytes) -> None:
        if last > self._held:
            db.execute("INSERT INTO charges VALUES (?, ?, ?, ?)", (self._e, self._held + 1, last, payer))
        add_usage(db, [(payer, self._held < 0, last - self._held, self.size)])

    def drop(self) -> None:
        """Abandon it: its rows are now orphans, and are deleted as such."""
        self._database.staged.pop(self.name, None)


def _events(steps: Sequence[Step | AppendRun]) -> list[Event]:
    events = list[Event]()
    for step in steps:
        if isinstance(step, AppendRun):
            events += step.events
        elif step.event is not None:
            events.append(step.event)
    return events


def _size(content: str) -> int:
    return len(content) if content.isascii() else len(content.encode())


def charges(db: sqlite3.Connection, e: int) -> tuple[Charge, ...]:
    query = "SELECT first_seq, last_seq, identity FROM charges WHERE e = ? ORDER BY first_seq"
    return tuple(Charge(*row) for row in db.execute(query, (e,)))


def find_orphan(db: sqlite3.Connection, in_use: Sequence[int], before: int) -> int | None:
    """Return the number of a log that no enclave and no import has, and that is unused since
    `before`.
    """
    query = "SELECT e FROM enclaves WHERE purged = -1 AND coalesce(terminated_at, 0) <= ?"
    return next((e for (e,) in db.execute(query, (before,)) if e not in in_use), None)


def delete_orphan_rows(db: sqlite3.Connection, ids: EventIndex, e: int, limit: int) -> tuple[bool, Callable[[], None]]:
    """Delete up to `limit` rows of an orphaned log.

    Returns whether nothing is left, and a function to be called after the commit.
    """
    done, after_commit = purge.delete_rows(db, ids, e, limit)
    if done:
        (was_real,) = db.execute("SELECT terminated_at IS NOT NULL FROM enclaves WHERE e = ?", (e,)).fetchone()
        # The ids of a former enclave may still be in `recent_ids`: never reuse its number.
        gone = "UPDATE enclaves SET purged = -2 WHERE e = ?" if was_real else "DELETE FROM enclaves WHERE e = ?"
        db.execute(gone, (e,))
    return done, after_commit
