"""Checks the rows of a SQLite store: each column has the value that the log implies, and no row is
superfluous.

enc.node.fsck checks what the store answers. It replays the log, passes each page of it to
`RowCheck`, and calls `check_whole` for what belongs to no single enclave. Each difference is
reported with its seq, or None.

A column is compared with what the store itself would write for the event (enc.node.store.sqlite.event_rows and
tags). So missing rows are found by lookup, superfluous ones by counting. PRAGMA integrity_check
covers the indexes.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

from msgspec import Struct

from enc.core.log.event import signed_statement
from enc.core.machine.state import EnclaveState
from enc.core.primitives.hashing import content_hash
from enc.core.primitives.types import Event
from enc.core.trees.sparse_merkle import is_node
from enc.core.trees.state_key import DELETED
from enc.node.store.sqlite.event_rows import MAX_SEQ, SqlRow, first8, id_of, key_of, pack_event, tags_of
from enc.node.store.sqlite.purge import DONE
from enc.node.store.sqlite.push.check import check_push
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.sqlite.tag_index import auto_delete, tag_rows

StoreFinding = tuple[int | None, str]

WRONG = "not what the log implies"
MAX_DAMAGE = 10
"""Lines of integrity_check that are reported."""
_TABLES = (
    "kinds",
    "tags",
    "pending",
    "tree_nodes",
    "log_nodes",
    "bundles",
    "endpoints",
    "outbox",
    "records",
    "charges",
    "sizes",
)
"""Tables whose rows contain their enclave's number, and of which a purge leaves nothing."""


class CheckedEvent(Struct, frozen=True):
    """One event of a page, and what the check knows about it."""

    event: Event
    subject: str
    """Type that decides the rights R, P and N, according to the log."""
    status: bytes | None
    """As stored: None for active, 00 for deleted, else the id of the latest Update."""
    target: Event | None
    """The event that an Update or Delete refers to."""
    is_erasable: bool
    """According to its enclave's rules."""


@contextmanager
def open_row_check(store: SqliteStore, enclave: bytes) -> Iterator["RowCheck"]:
    """Yield the check of the rows of an existing enclave."""
    with store.database.readers.lend() as db, closing(sqlite3.connect("", isolation_level=None)) as scratch:
        yield RowCheck(db, scratch, enclave)


class RowCheck:
    """Checks the rows of one enclave. Pass pages in order, then call `finish`."""

    def __init__(self, db: sqlite3.Connection, scratch: sqlite3.Connection, enclave: bytes) -> None:
        self._db, self._scratch = db, scratch
        query = (
            "SELECT e, manifest, terminated_at, purged, deadline FROM enclaves LEFT JOIN states USING (e) "
            "WHERE enclave = ?"
        )
        found = db.execute(query, (enclave,)).fetchone()
        self._e, self._manifest, self._terminated_at, self._purged, self._deadline = found
        kinds = db.execute("SELECT type, subject, c, live, total FROM kinds WHERE e = ?", (self._e,))
        self._kinds = {(type_, subject): (c, live, total) for type_, subject, c, live, total in kinds}
        self._live: Counter[tuple[str, str]] = Counter()
        self._total: Counter[tuple[str, str]] = Counter()
        self._ended: int | None = None
        self._tags = 0
        self._aside = dict[int, str | None]()
        """Contents of the page that are kept aside, by key; None: destroyed."""
        # The tree nodes' hashes are in a temporary database: an event may have made many.
        scratch.execute("CREATE TABLE made (hash BLOB PRIMARY KEY) WITHOUT ROWID")

    # A page

    def add_tree_nodes(self, hashes: Iterable[bytes]) -> None:
        """Add tree nodes that the replay has made."""
        self._scratch.executemany("INSERT OR IGNORE INTO made VALUES (?)", ((each,) for each in hashes))

    def check_page(self, lines: Sequence[CheckedEvent]) -> Iterator[StoreFinding]:
        ends = tuple(key_of(self._e, line.event.seq) for line in (lines[0], lines[-1]))
        rows = self._db.execute("SELECT * FROM events WHERE k BETWEEN ? AND ? ORDER BY k", ends)
        columns = [column[0] for column in rows.description]
        self._aside = dict(self._db.execute("SELECT k, content FROM withheld_contents WHERE k BETWEEN ? AND ?", ends))
        for row, line in zip(rows, lines, strict=True):
            seq = line.event.seq
            if (line.event.type, line.subject) not in self._kinds:
                yield seq, "kinds: the event's row is missing"
                return
            for column, stored, derived in zip(columns, row, self._row(line), strict=True):
                if stored != derived:
                    yield seq, f"events.{column}: {WRONG}"
            yield from self._check_tags(line)
            yield from self._check_withheld(line.event)
            if seq == 0 and self._manifest != line.event.content:
                yield seq, f"enclaves.manifest: {WRONG}"
            if line.event.type == "Terminate":
                self._ended = line.event.timestamp

    def _row(self, line: CheckedEvent) -> SqlRow:
        """Return the row that table `events` must contain."""
        event, target, kind = line.event, line.target, (line.event.type, line.subject)
        c, is_deleted = self._kinds[kind][0], line.status == DELETED
        self._live[kind] += not is_deleted
        self._total[kind] += 1
        when = None
        is_there = event.content is not None or self._aside.get(key_of(self._e, event.seq)) is not None
        if is_there and line.is_erasable:
            when = auto_delete(event.tags, target.tags if target else ())
        above = key_of(self._e, target.seq) if target and event.type == "Update" else None
        k, *fields = pack_event(key_of(self._e, event.seq), -c if is_deleted else c, event, when, above)
        fields[7] = None if is_deleted else line.status
        return (k, *fields)

    def _check_withheld(self, event: Event) -> Iterator[StoreFinding]:
        """Check a statement, and the content that is kept aside."""
        if event.withheld is not None and signed_statement(event) is None:
            yield event.seq, "events.withheld: the statement's signature is invalid"
        content = self._aside.get(key_of(self._e, event.seq))
        if content is not None and content_hash(content) != event.content_hash:
            yield event.seq, "withheld_contents: not the content that was signed"

    def _check_tags(self, line: CheckedEvent) -> Iterator[StoreFinding]:
        """Check the rows in `tags`. A deleted event has none, so that no search finds it."""
        rows = set() if line.status == DELETED else tag_rows(key_of(self._e, line.event.seq), line.event.tags)
        self._tags += len(rows)
        for row in rows:
            if self._db.execute("SELECT 1 FROM tags WHERE e = ? AND t8 = ? AND seq = ?", row).fetchone() is None:
                yield line.event.seq, "tags: a row is missing"

    # The end

    def finish(self, state: EnclaveState, records: int) -> Iterator[StoreFinding]:
        """Check counts, and columns stored with the state. `records`: number of a registry's
        records found by the replay.
        """
        if self._terminated_at != self._ended:
            yield state.seq, f"enclaves.terminated_at: {WRONG}"
        if self._deadline != (state.bundle.deadline(state.policy.bundle) if state.bundle else None):
            yield state.seq, f"states.deadline: {WRONG}"
        if [self._size()] != [size for (size,) in self._db.execute("SELECT bytes FROM sizes WHERE e = ?", (self._e,))]:
            yield None, "sizes: not the size of the enclave's events and tree nodes"
        for kind, (_, *stored) in self._kinds.items():
            if kind not in self._live or stored != [self._live[kind], self._total[kind]]:
                yield None, f"kinds: {'/'.join(kind)}: {WRONG}"
        size = state.log.size
        counts = {
            "tags": self._tags,
            "log_nodes": 2 * size - size.bit_count(),
            "bundles": size,
            "records": records,
        }
        yield from self._beyond(state.seq)
        if self._count("tree_nodes") != self._scratch.execute("SELECT count(*) FROM made").fetchone()[0]:
            yield from self._check_early_nodes()
        for table, count in counts.items():
            if self._count(table) != count:
                yield self._stray_tag() if table == "tags" else None, f"{table}: there are too many rows"

    def _check_early_nodes(self) -> Iterator[StoreFinding]:
        """Check the nodes that the log does not need: they were stored early, for a commit that was
        rejected, or before the node died.
        """
        for node_hash, record in self._db.execute("SELECT hash, record FROM tree_nodes WHERE e = ?", (self._e,)):
            is_made = self._scratch.execute("SELECT 1 FROM made WHERE hash = ?", (node_hash,)).fetchone()
            if not is_made and not is_node(node_hash, record):
                yield None, f"tree_nodes: {node_hash.hex()}: not a node of a tree"

    def _beyond(self, last_seq: int) -> Iterator[StoreFinding]:
        """Report events after the first gap, where pages end."""
        ends = key_of(self._e, last_seq + 1), key_of(self._e, MAX_SEQ)
        for (k,) in self._db.execute("SELECT k FROM events WHERE k BETWEEN ? AND ? LIMIT 1", ends):
            yield k & MAX_SEQ, "events: a row beyond the end of the log"

    def _stray_tag(self) -> int | None:
        """Return the seq of an event with a row in `tags` that does not belong to it."""
        query = "SELECT t8, seq, c, head FROM tags AS t LEFT JOIN events ON k = ? + seq WHERE t.e = ?"
        for t8, seq, c, head in self._db.execute(query, (key_of(self._e, 0), self._e)):
            own = tag_rows(key_of(self._e, seq), tags_of(head)) if c is not None and c > 0 else set()
            if (self._e, t8, seq) not in own:
                return int(seq)
        return None

    def check_tombstone(self) -> Iterator[StoreFinding]:
        """Check a purged enclave: rows may be left only while the purge has not ended."""
        if self._terminated_at is None:
            yield None, "purged, but enclaves.terminated_at is missing"
        if self._deadline is not None:
            yield None, "purged, but states.deadline is left"
        if self._purged == DONE:
            for table in _TABLES:
                if self._count(table):
                    yield None, f"purged, but rows of {table} are left"
            for _ in self._beyond(-1):
                yield None, "purged, but rows of events are left"

    def _size(self) -> int:
        """Return the bytes of the enclave's events, with contents kept aside, and of its tree nodes."""
        nodes = "SELECT coalesce(sum(length(hash) + length(record)), 0) FROM tree_nodes WHERE e = ?"
        events = (
            "SELECT coalesce(sum(length(head) + coalesce(length(CAST(content AS BLOB)), 0)), 0) FROM events "
            "WHERE k BETWEEN ? AND ?"
        )
        aside = "SELECT coalesce(sum(length(CAST(content AS BLOB))), 0) FROM withheld_contents WHERE k BETWEEN ? AND ?"
        ends = key_of(self._e, 0), key_of(self._e, MAX_SEQ)
        parts = (nodes, (self._e,)), (events, ends), (aside, ends)
        return sum(int(self._db.execute(query, args).fetchone()[0]) for query, args in parts)

    def _count(self, table: str) -> int:
        return int(self._db.execute(f"SELECT count(*) FROM {table} WHERE e = ?", (self._e,)).fetchone()[0])  # noqa: S608


# The whole store


def check_integrity(store: SqliteStore) -> Iterator[str]:
    """Yield what SQLite itself finds wrong: damaged pages, and indexes that disagree with their
    tables.
    """
    with store.database.readers.lend() as db:
        yield from damage_of(db)


def damage_of(db: sqlite3.Connection) -> list[str]:
    try:
        found = [line for (line,) in db.execute(f"PRAGMA integrity_check({MAX_DAMAGE})")]
    except sqlite3.DatabaseError as e:
        found = [str(e)]
    return [] if found == ["ok"] else [f"integrity_check: {line}" for line in found]


def check_whole(store: SqliteStore) -> Iterator[str]:
    """Yield rows that belong to no enclave, and index entries that point to a wrong event."""
    with store.database.readers.lend() as db:
        for table in (*_TABLES, "states"):
            if db.execute(f"SELECT 1 FROM {table} WHERE e NOT IN (SELECT e FROM enclaves) LIMIT 1").fetchone():  # noqa: S608
                yield f"{table}: a row without an enclave"
        if db.execute("SELECT 1 FROM events WHERE k >> 40 NOT IN (SELECT e FROM enclaves) LIMIT 1").fetchone():
            yield "events: a row without an enclave"
        if db.execute(_STRAY_CONTENTS).fetchone():
            yield "withheld_contents: a row without a withheld event"
        if any(head is None or first8(id_of(head)) != id8 for id8, head in db.execute(_PLACES)):
            yield "ids: a row without an event"
        for event_id, head, purged in db.execute(_RECENT_PLACES):
            if not purged if head is None else id_of(head) != event_id:
                yield "recent_ids: a row without an event"
                break
        yield from check_push(db)
        if db.execute(_UNPURGED).fetchone():
            yield "restrictions: an enclave that was purged by order is not purged"


_UNPURGED = (
    "SELECT 1 FROM restrictions WHERE kind = 'purge' "
    "AND target NOT IN (SELECT lower(hex(enclave)) FROM enclaves WHERE purged > 0)"
)
_STRAY_CONTENTS = "SELECT 1 FROM withheld_contents LEFT JOIN events USING (k) WHERE withheld IS NULL LIMIT 1"
_PLACES = "SELECT id8, head FROM ids LEFT JOIN events USING (k)"
# A purge leaves the most recent ids to be deleted later.
_RECENT_PLACES = (
    "SELECT id, head, purged FROM recent_ids LEFT JOIN events USING (k) "
    "LEFT JOIN enclaves ON enclaves.e = recent_ids.k >> 40"
)


def identities(store: SqliteStore) -> Iterator[bytes]:
    """Yield all identities that have a row in `usage`."""
    with store.database.readers.lend() as db:
        for (identity,) in db.execute("SELECT identity FROM usage"):
            yield identity
