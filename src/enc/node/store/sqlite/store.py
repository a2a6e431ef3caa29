"""The embedded store: SQLite in WAL mode with synchronous=FULL.

One connection writes everything that waited in one transaction; when `write` returns, it is on
disk. Other connections read, and see only committed data. The database file and its `-wal` are all
that recovery needs. A `.lock` file beside them excludes a second process.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from msgspec.msgpack import Decoder

from enc.core.log.event import target_of
from enc.core.log.filter import Filter
from enc.core.machine.state import ClosedBundle, EnclaveState
from enc.core.primitives.types import Commit, Event, KeyRecord, RecordKind, Target, TreeHead
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy
from enc.node.store.damage import DamagedData
from enc.node.store.events import EventWithStatus, RawEvent, SearchItem
from enc.node.store.restrictions import Restriction, RestrictionStore
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.sqlite import purge
from enc.node.store.sqlite.batch import ERASE, INSERT_NODES, Batch
from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.connection import AfterCommit
from enc.node.store.sqlite.database import NodeDatabase
from enc.node.store.sqlite.duplicates import find_duplicates
from enc.node.store.sqlite.event_rows import (
    COLUMNS,
    ID_SQL,
    MAX_SEQ,
    SqlRow,
    first8,
    key_of,
    status_of,
    unhexed,
    unpack_event,
)
from enc.node.store.sqlite.event_slices import read_raw_events
from enc.node.store.sqlite.provenance import Provenance
from enc.node.store.sqlite.push_store import PushTables
from enc.node.store.sqlite.registry_records import BY_ENTRY, BY_KEY, listing, unpack_record
from enc.node.store.sqlite.restrictions import ordered_purge
from enc.node.store.sqlite.restrictions.rows import RestrictionRows
from enc.node.store.sqlite.search import EventSearch
from enc.node.store.sqlite.snapshot import unpack_state, with_closed_gates
from enc.node.store.sqlite.spent_rows import SpentRows
from enc.node.store.sqlite.staging import SqliteStaging, charges, delete_orphan_rows, find_orphan
from enc.node.store.sqlite.withheld_tables import WithheldTables
from enc.node.store.steps import Step
from enc.node.store.store_interface import Charge, ReadRights, Usage

_EVENTS = f"SELECT {COLUMNS} FROM events"  # noqa: S608
_PAGE = 1000
"""Enclaves per page of a listing."""

decode_head = Decoder(TreeHead | None).decode


class SqliteStore(PushTables, WithheldTables):
    """A Store in one file."""

    def __init__(self, path: Path, database: NodeDatabase | None = None) -> None:
        """`database`: the open file at this path, if it is not to be opened for writing."""
        super().__init__(NodeDatabase(path) if database is None else database)
        self._spent = SpentRows(self.database)
        self.provenance = Provenance(self.database)
        self.restrictions: RestrictionStore = RestrictionRows(self.database)

    def close(self) -> None:
        self.database.close()

    # Writing

    def write(self, steps: Sequence[Step], clock: int) -> None:
        def work(db: sqlite3.Connection) -> AfterCommit:
            batch = Batch(db, self.database.cache)
            for step in steps:
                batch.add(step)
            db.execute("UPDATE node SET clock = max(clock, ?), writes = writes + 1", (clock,))
            return batch.write()

        self.database.transact(work)

    def write_nodes(self, enclave: bytes, nodes: Sequence[tuple[bytes, bytes]]) -> None:
        def work(db: sqlite3.Connection) -> None:
            e = self.database.number(db, enclave)
            if e is not None:  # else it was purged
                bulk_insert(db, INSERT_NODES, [(e, *node) for node in nodes])

        self.database.transact(work, lasting=False)

    def clock(self) -> int:
        return int(self.database.rows("SELECT clock FROM node")[0][0])

    def shown(self) -> int:
        return int(self.database.rows("SELECT max(clock, shown) FROM node")[0][0])

    def restored(self) -> str:
        return self.provenance.restored

    def usage(self, identity: bytes) -> Usage:
        rows = self.database.rows("SELECT enclaves, events, bytes FROM usage WHERE identity = ?", identity)
        return Usage(*rows[0]) if rows else Usage()

    def size(self, enclave: bytes) -> int:
        rows = self.database.rows_of(enclave, "SELECT bytes FROM sizes WHERE e = ?")
        return int(rows[0][0]) if rows else 0

    def largest_size(self) -> int:
        return int(self.database.rows("SELECT coalesce(max(bytes), 0) FROM sizes")[0][0])

    def reusable(self) -> int:
        with self.database.readers.lend() as db:
            pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size"))
        return int(pages * size)

    def spend(self, request: SpentRequest, clock: int) -> None:
        self._spent.spend(request, clock)

    # Enclaves

    def load(self, enclave: bytes, policy: Policy | None = None) -> EnclaveState | None:
        with self.database.readers.lend() as db:
            if not db.in_transaction:
                db.execute("BEGIN")  # read the state and the pending leaves at the same moment
            query = "SELECT e, manifest, state, purged FROM enclaves JOIN states USING (e) WHERE enclave = ?"
            row = db.execute(query, (enclave,)).fetchone()
            if row is None:
                return None
            e, manifest, packed, purged = row
            pending = dict(db.execute("SELECT key, value FROM pending WHERE e = ?", (e,)))
            state = unpack_state(packed, enclave, policy or parse_manifest(manifest), pending)
            return state if purged else with_closed_gates(state, db, e)

    def manifest(self, enclave: bytes) -> str | None:
        query = "SELECT manifest FROM enclaves JOIN states USING (e) WHERE enclave = ?"
        rows = self.database.rows(query, enclave)
        return str(rows[0][0]) if rows else None

    def count(self) -> int:
        return int(self.database.rows("SELECT enclaves FROM node")[0][0])

    def enclaves(self) -> Iterator[bytes]:
        query, last = "SELECT enclave FROM enclaves WHERE enclave > ? AND purged >= 0 ORDER BY enclave LIMIT ?", b""
        while page := self.database.rows(query, last, _PAGE):
            for (last,) in page:
                yield last

    def overdue(self, clock: int, limit: int) -> list[bytes]:
        query = "SELECT enclave FROM states CROSS JOIN enclaves USING (e) WHERE deadline <= ? ORDER BY deadline LIMIT ?"
        try:
            rows = self.database.rows(query, clock, limit)
        except DamagedData:  # the index alone is sound: look the enclaves up one by one
            numbers = self.database.rows("SELECT e FROM states WHERE deadline <= ? ORDER BY deadline", clock)
            rows = list(islice(chain.from_iterable(self._enclave_of(*number) for number in numbers), limit))
        return [enclave for (enclave,) in rows]

    def _enclave_of(self, e: int) -> list[SqlRow]:
        """Return the id of an enclave; nothing if it cannot be read."""
        try:
            return self.database.rows("SELECT enclave FROM enclaves WHERE e = ?", e)
        except DamagedData:
            return []

    # What lies behind a state

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes:
        rows = self.database.rows_of(enclave, "SELECT record FROM tree_nodes WHERE e = ? AND hash = ?", node_hash)
        if not rows:
            raise KeyError(node_hash)
        return bytes(rows[0][0])

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes:
        query = "SELECT hash FROM log_nodes WHERE e = ? AND level = ? AND i = ?"
        rows = self.database.rows_of(enclave, query, level, index)
        if not rows:
            raise KeyError((level, index))
        return bytes(rows[0][0])

    def target(self, enclave: bytes, event_id: bytes) -> Target | None:
        found = self.event(enclave, event_id)
        return target_of(found.event) if found else None

    # A registry's records

    def record(self, enclave: bytes, kind: RecordKind, key: bytes) -> KeyRecord | None:
        rows = self.database.rows_of(enclave, BY_KEY, kind, key)
        return unpack_record(rows[0]) if rows else None

    def record_of(self, enclave: bytes, event_id: bytes) -> KeyRecord | None:
        rows = self.database.rows_of(enclave, BY_ENTRY, event_id)
        return unpack_record(rows[0]) if rows else None

    def listed(
        self, enclave: bytes, after: bytes, limit: int, *, app: str | None = None, creator: bytes | None = None
    ) -> list[KeyRecord]:
        query, args = listing(after, limit, app, creator)
        return [unpack_record(row) for row in self.database.rows_of(enclave, query, *args)]

    # Events

    def event(self, enclave: bytes, event_id: bytes) -> EventWithStatus | None:
        with self.database.readers.lend() as db:
            e = self.database.number(db, enclave)
            k = None if e is None else self.database.cache.ids.find(db, e, event_id)
            row = None if k is None else db.execute(f"{_EVENTS} WHERE k = ?", (k,)).fetchone()
        if row is None:
            return None
        return EventWithStatus(unpack_event(row), status_of(row), row[2])

    def committed(self, enclave: bytes, commit_hash: bytes, exp: int) -> Event | None:
        with self.database.readers.lend() as db:
            e = self.database.number(db, enclave)
            if e is None:
                return None
            query = f"{_EVENTS} WHERE exp = ? AND hash8 = ? AND k BETWEEN ? AND ?"
            rows = db.execute(query, (exp, first8(commit_hash), key_of(e, 0), key_of(e, MAX_SEQ))).fetchall()
        events = (unpack_event(row) for row in rows)
        return next((event for event in events if event.hash == commit_hash), None)

    def committed_among(self, commits: Sequence[Commit]) -> dict[bytes, Event]:
        with self.database.readers.lend() as db:
            return find_duplicates(db, commits, self.database.hidden)

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        return [unpack_event(row) for row in self._by_seq(_EVENTS, enclave, first_seq, count)]

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        with self.database.readers.lend() as db:
            return read_raw_events(db, enclave, first_seq, count)

    def ids(self, enclave: bytes, first_seq: int, count: int) -> list[bytes]:
        rows = self._by_seq(f"SELECT {ID_SQL} FROM events", enclave, first_seq, count)  # noqa: S608
        return [unhexed(row[0]) for row in rows]

    def _by_seq(self, select: str, enclave: bytes, first_seq: int, count: int) -> list[SqlRow]:
        with self.database.readers.lend() as db:
            e = self.database.number(db, enclave)
            if e is None or first_seq > MAX_SEQ:
                return []
            ends = key_of(e, first_seq), key_of(e, min(first_seq + count - 1, MAX_SEQ))
            return db.execute(f"{select} WHERE k BETWEEN ? AND ? ORDER BY k", ends).fetchall()

    def find(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[SearchItem]:
        return chain.from_iterable(self.find_in_steps(enclave, filter_, readable))

    def find_in_steps(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[Sequence[SearchItem]]:
        with self.database.readers.lend() as db:
            e = self.database.number(db, enclave)
            if e is None:
                return
            search = EventSearch(db, self.database.cache.ids, enclave, e, filter_, readable)
        while not search.done:
            with self.database.readers.lend() as db:
                rows = search.read(db)
            yield ()
            yield from search.items(rows)

    # Bundles and heads

    def _bundle(self, enclave: bytes, where: str, number: int) -> ClosedBundle | None:
        query = f"SELECT i, first_seq, count, events_root, state_hash FROM bundles WHERE e = ? AND {where}"  # noqa: S608
        rows = self.database.rows_of(enclave, query, number)
        return ClosedBundle(*rows[0]) if rows else None

    def bundle(self, enclave: bytes, index: int) -> ClosedBundle | None:
        return self._bundle(enclave, "i = ?", index)

    def bundle_of(self, enclave: bytes, seq: int) -> ClosedBundle | None:
        found = self._bundle(enclave, "first_seq <= ? ORDER BY first_seq DESC LIMIT 1", seq)
        return found if found and seq < found.first_seq + found.count else None

    def head(self, enclave: bytes, size: int | None = None) -> TreeHead | None:
        where, args = ("i = ?", (size - 1,)) if size is not None else ("1 ORDER BY i DESC LIMIT 1", ())
        rows = self.database.rows_of(enclave, f"SELECT head FROM bundles WHERE e = ? AND {where}", *args)  # noqa: S608
        head: TreeHead | None = decode_head(rows[0][0]) if rows else None
        return head

    # Erasure by time

    def expired(self, clock: int, limit: int) -> list[tuple[bytes, bytes]]:
        due = "FROM events CROSS JOIN enclaves ON e = k >> 40 WHERE auto_delete <= ? AND purged = 0"
        query = f"SELECT enclave, {ID_SQL} {due} ORDER BY auto_delete LIMIT ?"
        try:
            rows = self.database.rows(query, clock, limit)
        except DamagedData:  # the index alone is sound: read the events one by one
            places = self.database.rows(f"SELECT enclave, k {due} ORDER BY auto_delete", clock)
            rows = list(islice(chain.from_iterable(self._id_at(*place) for place in places), limit))
        return [(enclave, unhexed(digits)) for enclave, digits in rows]

    def _id_at(self, enclave: bytes, k: int) -> list[SqlRow]:
        """Return the enclave and the event's id; nothing if it cannot be read."""
        query = f"SELECT ?, {ID_SQL} FROM events WHERE k = ?"  # noqa: S608
        try:
            return self.database.rows(query, enclave, k)
        except DamagedData:
            return []

    def erase(self, due: Sequence[tuple[bytes, bytes]]) -> None:
        def work(db: sqlite3.Connection) -> None:
            for enclave, event_id in due:
                e = self.database.number(db, enclave)
                k = None if e is None else self.database.cache.ids.find(db, e, event_id)
                db.execute(f"{ERASE} WHERE k = ?", (k,))
                db.execute(f"{ERASE} WHERE target = ?", (k,))

        self.database.transact(work)

    def terminated(self, before: int, limit: int) -> list[bytes]:
        query = (
            "SELECT enclave FROM enclaves WHERE terminated_at <= ? AND purged < 2 AND purged >= 0 "
            "ORDER BY terminated_at LIMIT ?"
        )
        return [enclave for (enclave,) in self.database.rows(query, before, limit)]

    def purge(self, enclave: bytes, limit: int = 10_000) -> bool:
        done = True

        def work(db: sqlite3.Connection) -> AfterCommit | None:
            nonlocal done
            row = db.execute("SELECT e, purged FROM enclaves WHERE enclave = ?", (enclave,)).fetchone()
            if row is None:
                return None
            e, purged = row
            if not purged:
                purge.mark_purged(db, e)
            done, after_commit = purge.delete_rows(db, self.database.cache.ids, e, limit)
            return after_commit

        self.database.transact(work)
        self.database.cache.numbers.forget(enclave)
        return done

    def purge_by_order(self, enclave: bytes, order: Restriction) -> None:
        def work(db: sqlite3.Connection) -> None:
            row = db.execute("SELECT e FROM enclaves WHERE enclave = ? AND purged >= 0", (enclave,)).fetchone()
            if row is not None:
                ordered_purge.begin(db, row[0], order)

        self.database.transact(work)
        self.database.cache.numbers.forget(enclave)

    # Logs on their way in

    def stage(self, enclave: bytes, held: int = -1) -> SqliteStaging:
        return SqliteStaging(self.database, enclave, held)

    def charges(self, enclave: bytes) -> tuple[Charge, ...]:
        with self.database.readers.lend() as db:
            e = self.database.number(db, enclave)
            return () if e is None else charges(db, e)

    def delete_orphans(self, before: int, limit: int = 10_000) -> bool:
        with self.database.readers.lend() as db:
            e = find_orphan(db, list(self.database.staged.values()), before)
        if e is None:
            return True
        done = False

        def work(db: sqlite3.Connection) -> AfterCommit:
            nonlocal done
            done, after_commit = delete_orphan_rows(db, self.database.cache.ids, e, limit)
            return after_commit

        self.database.transact(work)
        if done:
            self.database.hidden.discard(e)
        return False

    def has(self, enclave: bytes) -> bool:
        return bool(self.database.rows("SELECT 1 FROM enclaves WHERE enclave = ? AND purged >= 0", enclave))

    def is_purged(self, enclave: bytes) -> bool:
        return bool(self.database.rows("SELECT 1 FROM enclaves WHERE enclave = ? AND purged > 0", enclave))
