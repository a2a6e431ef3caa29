"""The embedded store: SQLite in WAL mode, synchronous=FULL.

One connection writes, in one transaction for everything that waited; when `write` returns, the disk has it. Reads have
a connection for each thread and see only what is committed. The database file, its `-wal` and its `-shm` are the whole
truth: there is nothing else to recover from.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from enc.core.commit import auto_delete_at
from enc.core.content import revised_id
from enc.core.enclave import ClosedBundle, EnclaveState
from enc.core.errors import Unavailable
from enc.core.event import is_erasable, target_of
from enc.core.filter import Filter, Range
from enc.core.manifest import parse_manifest
from enc.core.signing import Alg
from enc.core.state_key import DELETED
from enc.core.types import Event, Tags, Target, TreeHead
from enc.node.store.base import Found, Readable, Step
from enc.node.store.snapshot import pack_state, unpack_state

SCHEMA_VERSION = 1
SEQ_BITS = 40
MAX_SEQ = (1 << SEQ_BITS) - 1


class _Fields(Struct, array_like=True):
    """What of an event no query asks for."""

    id: bytes
    hash: bytes
    from_: bytes
    content_hash: bytes
    exp: int
    tags: Tags
    alg: Alg
    sig: bytes
    sequencer: bytes
    seq_sig: bytes


_encode, _decode_fields, _decode_head = Encoder().encode, Decoder(_Fields).decode, Decoder(TreeHead).decode


def _first8(hash_: bytes) -> int:
    return int.from_bytes(hash_[:8], "big", signed=True)


def _pack_event(e: int, event: Event, subject: str, target: int | None) -> tuple[Any, ...]:
    fields = _Fields(
        event.id,
        event.hash,
        event.from_,
        event.content_hash,
        event.exp,
        event.tags,
        event.alg,
        event.sig,
        event.sequencer,
        event.seq_sig,
    )
    return (
        e << SEQ_BITS | event.seq,
        e,
        _first8(event.id),
        _first8(event.hash),
        _first8(event.from_),
        event.type,
        subject,
        None,
        event.timestamp,
        auto_delete_at(event) if event.content is not None and is_erasable(event) else None,
        target,
        event.content,
        _encode(fields),
    )


def _unpack_event(enclave: bytes, k: int, type_: str, timestamp: int, content: str | None, fields: bytes) -> Event:
    found = _decode_fields(fields)
    return Event(
        hash=found.hash,
        enclave=enclave,
        from_=found.from_,
        type=type_,
        content=content,
        content_hash=found.content_hash,
        exp=found.exp,
        tags=found.tags,
        alg=found.alg,
        sig=found.sig,
        id=found.id,
        timestamp=timestamp,
        sequencer=found.sequencer,
        seq=k & MAX_SEQ,
        seq_sig=found.seq_sig,
    )


def _found(event: Event, status: bytes | None) -> Found:
    if status is None:
        return Found(event, "active")
    return Found(event, "deleted") if status == DELETED else Found(event, "updated", status)


_COLUMNS = "k, type, timestamp, content, fields, status, subject"


class _Batch:
    """The rows of many steps, gathered so that each table is written once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.numbers: dict[bytes, int] = {}
        self.last: dict[bytes, EnclaveState] = {}
        self.leaves: dict[bytes, dict[bytes, bytes | None]] = {}
        self.flushed: set[bytes] = set()
        self.keys: dict[tuple[int, bytes], int] = {}
        self.rows: dict[str, list[tuple[Any, ...]]] = {
            statement: []
            for statement in (
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "INSERT INTO tags VALUES (?, ?, ?, ?)",
                "UPDATE events SET status = ? WHERE k = ?",
                "UPDATE events SET content = NULL, auto_delete = NULL WHERE k = ?",
                "INSERT OR IGNORE INTO tree_nodes VALUES (?, ?, ?)",
                "INSERT INTO log_nodes VALUES (?, ?, ?, ?)",
                "INSERT INTO bundles VALUES (?, ?, ?, ?, ?, ?, ?)",
            )
        }
        self.events, self.tags, self.statuses, self.erased, self.tree, self.log, self.bundles = self.rows.values()

    def add(self, step: Step) -> None:
        transition, enclave = step.transition, step.transition.state.enclave
        e = self._number(enclave, step)
        if step.event is not None:
            self._add_event(e, step.event, step)
        self.tree += [(e, node, record) for node, record in transition.tree_nodes.items()]
        self.log += [(e, level, i, node) for (level, i), node in transition.log_nodes.items()]
        self.bundles += [
            (e, b.index, b.first_seq, b.count, b.events_root, b.state_hash, _encode(head))
            for b, head in zip(transition.closed, step.heads, strict=True)
        ]
        self.last[enclave] = transition.state
        self.leaves.setdefault(enclave, {}).update(transition.leaves)
        if transition.flushed:
            self.flushed.add(enclave)

    def _add_event(self, e: int, event: Event, step: Step) -> None:
        k = self.keys[e, event.id] = e << SEQ_BITS | event.seq
        target = self._key(e, revised_id(event)) if event.type in ("Update", "Delete") else None
        self.events.append(_pack_event(e, event, step.subject, target if event.type == "Update" else None))
        self.tags += [(e, tag[0], tag[1] if len(tag) > 1 else None, k) for tag in event.tags]
        self.statuses += [(event.id, self._key(e, old)) for old in step.effects.supersedes]
        if event.type == "Delete":
            self.statuses.append((DELETED, target))
        self.erased += [(self._key(e, gone),) for gone in step.effects.erases]

    def _number(self, enclave: bytes, step: Step) -> int:
        """The enclave's number; a new enclave gets the next one."""
        if enclave not in self.numbers:
            row = self.db.execute("SELECT e FROM enclaves WHERE enclave = ?", (enclave,)).fetchone()
            if row is None:
                manifest = step.event.content if step.event else ""
                row = (
                    self.db.execute(
                        "INSERT INTO enclaves VALUES (NULL, ?, ?, x'', NULL)", (enclave, manifest)
                    ).lastrowid,
                )
            self.numbers[enclave] = row[0]
        return self.numbers[enclave]

    def _key(self, e: int, event_id: bytes) -> int:
        key = self.keys.get((e, event_id))
        return key if key is not None else _find_key(self.db, e, event_id)

    def write(self) -> None:
        for statement, rows in self.rows.items():
            if rows:
                self.db.executemany(statement, rows)
        for enclave, state in self.last.items():
            e, leaves = self.numbers[enclave], self.leaves[enclave]
            if enclave in self.flushed:
                self.db.execute("DELETE FROM pending WHERE e = ?", (e,))
                leaves = dict(state.pending)
            self.db.executemany(
                "INSERT OR REPLACE INTO pending VALUES (?, ?, ?)", [(e, key, value) for key, value in leaves.items()]
            )
            deadline = state.bundle.deadline(state.policy.bundle) if state.bundle else None
            self.db.execute("UPDATE enclaves SET state = ?, deadline = ? WHERE e = ?", (pack_state(state), deadline, e))


def _find_key(db: sqlite3.Connection, e: int, event_id: bytes) -> int:
    """The key of an event that is known to be there."""
    for k, fields in db.execute("SELECT k, fields FROM events WHERE id8 = ? AND +e = ?", (_first8(event_id), e)):
        if _decode_fields(fields).id == event_id:
            return int(k)
    raise KeyError(event_id)


class SqliteStore:
    """A Store in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._writer = self._open()
        self._upgrade()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cache_size = -65536")
        return db

    def _upgrade(self) -> None:
        """Bring the schema to this version. A database of a newer program is refused."""
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise Unavailable(f"{self._path} was written by a newer version (schema {version})")
        if version == 0:
            schema = files("enc.node.store").joinpath("schema.sql").read_text()
            self._writer.executescript(f"BEGIN; {schema} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")

    @property
    def _db(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._open()
            db.execute("PRAGMA query_only = ON")
            self._readers.append(db)
        return db

    def close(self) -> None:
        for db in (*self._readers, self._writer):
            db.close()

    # Writing

    def write(self, steps: Sequence[Step], clock: int) -> None:
        def work(db: sqlite3.Connection) -> None:
            batch = _Batch(db)
            for step in steps:
                batch.add(step)
            batch.write()
            db.execute("UPDATE node SET clock = max(clock, ?)", (clock,))

        self._transact(work)

    def _transact(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """All of it, durably, or none."""
        db = self._writer
        try:
            db.execute("BEGIN IMMEDIATE")
            work(db)
            db.execute("COMMIT")
        except BaseException as e:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(e, sqlite3.Error):
                raise Unavailable(f"the store cannot write: {e}") from e
            raise

    def erase(self, enclave: bytes, event_id: bytes) -> None:
        def work(db: sqlite3.Connection) -> None:
            e = self._number(enclave)
            k = None if e is None else _find_key(db, e, event_id)
            db.execute("UPDATE events SET content = NULL, auto_delete = NULL WHERE k = ? OR target = ?", (k, k))

        self._transact(work)

    def purge(self, enclave: bytes) -> None:
        def work(db: sqlite3.Connection) -> None:
            e = self._number(enclave)
            for table in ("events", "tags", "pending", "tree_nodes", "log_nodes", "bundles"):
                db.execute(f"DELETE FROM {table} WHERE e = ?", (e,))  # noqa: S608
            db.execute("UPDATE enclaves SET deadline = NULL WHERE e = ?", (e,))

        self._transact(work)

    def clock(self) -> int:
        return int(self._db.execute("SELECT clock FROM node").fetchone()[0])

    # Enclaves

    def _number(self, enclave: bytes) -> int | None:
        row = self._db.execute("SELECT e FROM enclaves WHERE enclave = ?", (enclave,)).fetchone()
        return row[0] if row else None

    def load(self, enclave: bytes) -> EnclaveState | None:
        row = self._db.execute("SELECT e, manifest, state FROM enclaves WHERE enclave = ?", (enclave,)).fetchone()
        if row is None:
            return None
        e, manifest, state = row
        pending = dict(self._db.execute("SELECT key, value FROM pending WHERE e = ?", (e,)))
        return unpack_state(state, enclave, parse_manifest(manifest), pending)

    def enclaves(self) -> Iterator[bytes]:
        for (enclave,) in self._db.execute("SELECT enclave FROM enclaves ORDER BY enclave"):
            yield enclave

    def overdue(self, clock: int) -> list[bytes]:
        return [row[0] for row in self._db.execute("SELECT enclave FROM enclaves WHERE deadline <= ?", (clock,))]

    # What lies behind a state

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes:
        query = "SELECT record FROM tree_nodes WHERE e = ? AND hash = ?"
        return bytes(self._db.execute(query, (self._number(enclave), node_hash)).fetchone()[0])

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes:
        query = "SELECT hash FROM log_nodes WHERE e = ? AND level = ? AND i = ?"
        return bytes(self._db.execute(query, (self._number(enclave), level, index)).fetchone()[0])

    def target(self, enclave: bytes, event_id: bytes) -> Target | None:
        found = self.event(enclave, event_id)
        return target_of(found.event) if found else None

    # Events

    def event(self, enclave: bytes, event_id: bytes) -> Found | None:
        for event, status, _ in self._select(enclave, "id8 = ?", _first8(event_id)):
            if event.id == event_id:
                return _found(event, status)
        return None

    def committed(self, enclave: bytes, commit_hash: bytes) -> Event | None:
        for event, _, _ in self._select(enclave, "hash8 = ?", _first8(commit_hash)):
            if event.hash == commit_hash:
                return event
        return None

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        e = self._number(enclave) or 0
        low = e << SEQ_BITS | first_seq
        return [event for event, _, _ in self._select(enclave, "k BETWEEN ? AND ? ORDER BY k", low, low + count - 1)]

    def _select(self, enclave: bytes, where: str, *args: Any) -> Iterator[tuple[Event, bytes | None, str]]:
        # The + keeps SQLite from walking all of an enclave's events by an index that begins with e.
        query = f"SELECT {_COLUMNS} FROM events WHERE +e = ? AND {where}"  # noqa: S608 - no part is a peer's
        for k, type_, timestamp, content, fields, status, subject in self._db.execute(
            query, (self._number(enclave), *args)
        ):
            yield _unpack_event(enclave, k, type_, timestamp, content, fields), status, subject

    def find(self, enclave: bytes, filter_: Filter, readable: Readable) -> Iterator[Found]:
        e = self._number(enclave)
        if e is None:
            return
        where, args = _where(e, filter_, self._times(e, filter_.timestamps))
        order = "DESC" if filter_.reverse else "ASC"
        for event, status, subject in self._select(enclave, f"{where} ORDER BY k {order}", *args):
            if status != DELETED and filter_.matches(event) and readable.admits(event, subject):
                yield _found(event, status)

    def _times(self, e: int, times: Range | None) -> Range:
        """The seqs of events with these timestamps: since time never falls, two binary searches."""
        if times is None:
            return Range(0, MAX_SEQ)
        return Range(self._first_at(e, times.low), self._first_at(e, times.high + 1) - 1)

    def _first_at(self, e: int, timestamp: int) -> int:
        """The seq of the first event at or after `timestamp`."""
        ends = (e << SEQ_BITS, e << SEQ_BITS | MAX_SEQ)
        (last,) = self._db.execute("SELECT max(k) FROM events WHERE k BETWEEN ? AND ?", ends).fetchone()
        low, high = 0, (last & MAX_SEQ) + 1 if last is not None else 0
        while low < high:
            middle = (low + high) // 2
            (found,) = self._db.execute(
                "SELECT timestamp FROM events WHERE k = ?", (e << SEQ_BITS | middle,)
            ).fetchone()
            low, high = (middle + 1, high) if found < timestamp else (low, middle)
        return low

    # Bundles and heads

    def _bundle(self, enclave: bytes, where: str, number: int) -> ClosedBundle | None:
        query = f"SELECT i, first_seq, count, events_root, state_hash FROM bundles WHERE e = ? AND {where}"  # noqa: S608
        row = self._db.execute(query, (self._number(enclave), number)).fetchone()
        return ClosedBundle(*row) if row else None

    def bundle(self, enclave: bytes, index: int) -> ClosedBundle | None:
        return self._bundle(enclave, "i = ?", index)

    def bundle_of(self, enclave: bytes, seq: int) -> ClosedBundle | None:
        found = self._bundle(enclave, "first_seq <= ? ORDER BY first_seq DESC LIMIT 1", seq)
        return found if found and seq < found.first_seq + found.count else None

    def head(self, enclave: bytes, size: int | None = None) -> TreeHead | None:
        where, args = ("i = ?", (size - 1,)) if size is not None else ("1 ORDER BY i DESC LIMIT 1", ())
        query = f"SELECT head FROM bundles WHERE e = ? AND {where}"  # noqa: S608
        row = self._db.execute(query, (self._number(enclave), *args)).fetchone()
        return _decode_head(row[0]) if row else None

    # Erasure by time

    def expired(self, clock: int, limit: int) -> list[tuple[bytes, bytes]]:
        query = (
            "SELECT enclave, fields FROM events JOIN enclaves USING (e) "
            "WHERE auto_delete <= ? ORDER BY auto_delete LIMIT ?"
        )
        return [(enclave, _decode_fields(fields).id) for enclave, fields in self._db.execute(query, (clock, limit))]


def _where(e: int, filter_: Filter, times: Range) -> tuple[str, list[Any]]:
    """A condition that finds by index what the filter asks for; what it lets through is matched in full afterwards."""
    seqs = filter_.seqs if isinstance(filter_.seqs, Range) else Range()
    low, high = max(times.low, seqs.low), min(times.high, seqs.high, MAX_SEQ)
    parts = ["k BETWEEN ? AND ?"]
    args: list[Any] = [e << SEQ_BITS | min(low, MAX_SEQ), e << SEQ_BITS | max(high, 0)]
    if low > high:
        parts.append("0")

    def among(column: str, values: Iterable[Any], *before: int) -> None:
        found = list(values)
        parts.append(f"{column} IN ({','.join('?' * len(found))})")
        args.extend([*before, *found])

    if filter_.ids is not None:
        among("id8", map(_first8, filter_.ids))
    if isinstance(filter_.seqs, frozenset):
        among("k", (e << SEQ_BITS | seq for seq in filter_.seqs if seq <= MAX_SEQ))
    if filter_.types is not None:
        among("e = ? AND type", filter_.types, e)
    if filter_.authors is not None:
        among("e = ? AND from8", map(_first8, filter_.authors), e)
    for name, values in filter_.tags:
        parts.append("k IN (SELECT k FROM tags WHERE e = ? AND name = ?")
        args += [e, name]
        if values is not None:
            parts[-1] += f" AND value IN ({','.join('?' * len(values))})"
            args += values
        parts[-1] += ")"
    return " AND ".join(parts), args
