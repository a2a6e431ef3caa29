"""Collects the rows of many steps, so that each table is written once and each count changes once."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.msgpack import Encoder

from enc.core.errors import MisuseError
from enc.core.log.event import is_erasable
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event, KeyRecord, Tags
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import Effects
from enc.node.store.sqlite.bulk_insert import bulk_insert
from enc.node.store.sqlite.enclave_numbers import EnclaveNumbers
from enc.node.store.sqlite.event_index import EventIndex
from enc.node.store.sqlite.event_rows import (
    HEAD,
    PLAIN,
    PLAIN_HEAD,
    PLAIN_ROW,
    SqlRow,
    key_of,
    pack_event,
    pack_plain,
    tags_of,
)
from enc.node.store.sqlite.push.outbox import AudienceNumbers, OutboxRows
from enc.node.store.sqlite.registry_records import put_records
from enc.node.store.sqlite.snapshot import pack_state
from enc.node.store.sqlite.tag_index import auto_delete, tag_rows
from enc.node.store.steps import Step

MAX_KINDS = 65_536
"""Number of kinds whose row numbers a writer caches."""

INSERT_NODES = "INSERT OR IGNORE INTO tree_nodes"
ERASE = "UPDATE events SET content = NULL, auto_delete = NULL, withheld = NULL"
"""A trigger deletes the content that is kept aside, too."""

_encode = Encoder().encode


def add_usage(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add to what identities have used. A row: the identity, enclaves, events, bytes."""
    bulk_insert(
        db,
        "INSERT INTO usage",
        rows,
        "ON CONFLICT DO UPDATE SET enclaves = enclaves + excluded.enclaves, "
        "events = events + excluded.events, bytes = bytes + excluded.bytes",
    )


class WriterCache:
    """Row numbers that a batch caches for the next ones. It contains only committed rows."""

    def __init__(self, numbers: EnclaveNumbers, ids: EventIndex) -> None:
        self.numbers, self.ids = numbers, ids
        self.kinds: dict[tuple[int, str, str], int] = {}
        self.audiences = AudienceNumbers()


class Batch:
    """Collects steps and writes them. Call the function that `write` returns after the commit."""

    def __init__(self, db: sqlite3.Connection, cache: WriterCache) -> None:
        self._db, self._cache = db, cache
        self._numbers: dict[bytes, int] = {}
        self._kinds: dict[tuple[int, str, str], int] = {}
        self._created = 0
        self._plain: list[SqlRow] = []
        self._events: list[SqlRow] = []
        self._keys: dict[tuple[int, bytes], tuple[int, Tags]] = {}
        self._tags: list[tuple[int, int, int]] = []
        self._updated: list[tuple[bytes, int]] = []
        self._erased: list[tuple[int]] = []
        self._deleted: list[int] = []
        self._tree: list[tuple[int, bytes, bytes]] = []
        self._log: list[tuple[int, int, int, bytes]] = []
        self._bundles: list[tuple[Any, ...]] = []
        self._states: dict[int, EnclaveState] = {}
        self._leaves: dict[int, dict[bytes, bytes | None]] = {}
        self._flushed: set[int] = set()
        self._terminated: list[tuple[int, int]] = []
        self._records: list[tuple[int, KeyRecord]] = []
        self._live: Counter[int] = Counter()
        self._used: dict[bytes, list[int]] = {}
        self._outbox = OutboxRows()
        self._types: dict[tuple[int, str], tuple[int, list[int]]] = {}
        """For counted types: how many events there were before the batch, and their kinds."""

    def add(self, step: Step) -> None:
        transition = step.transition
        state = transition.state
        e = self._numbers.get(state.enclave)
        if e is None:
            e = self._number(state.enclave, step)
        if step.event is not None:
            self._add_event(e, step.event, step)
        if transition.leaves:
            self._leaves.setdefault(e, {}).update(transition.leaves)
        if transition.records:
            self._records += [(e, record) for record in transition.records]
        if transition.flushed:
            self._flushed.add(e)
            self._tree += [(e, node, record) for node, record in transition.tree_nodes.items()]
        if transition.closed:
            self._log += [(e, level, i, node) for (level, i), node in transition.log_nodes.items()]
            self._bundles += [
                (e, b.index, b.first_seq, b.count, b.events_root, b.state_hash, _encode(head))
                for b, head in zip(transition.closed, step.heads, strict=True)
            ]
        self._states[e] = state

    def _add_event(self, e: int, event: Event, step: Step) -> None:
        k = key_of(e, event.seq)
        c = self._kind(e, event.type, step.subject)
        if event.tags or event.alg != "schnorr" or event.content is None:
            row = self._pack(e, k, c, event, step.transition.state.policy.predefined)
            self._events.append(row)
            head = row[HEAD]
        else:
            row = pack_plain(k, c, event)
            self._plain.append(row)
            head = row[PLAIN_HEAD]
        self._keys[e, event.id] = k, event.tags
        self._live[c] += 1
        if step.recipients:
            self._outbox.add(e, event, head, step.recipients, self._count)
        self._charge(event)
        self._add_effects(e, event, step.effects)

    def _pack(self, e: int, k: int, c: int, event: Event, predefined: frozenset[str]) -> SqlRow:
        """Return the row of an event that may have tags, and collect what its tags change
        elsewhere.
        """
        self._tags += tag_rows(k, event.tags)
        target, when = None, None
        target_tags: Tags = ()
        if event.type in ("Update", "Delete"):
            target, target_tags = self._find(e, revised_id(event))
            if event.type == "Delete":
                self._deleted.append(target)
        if event.content is not None and is_erasable(event, predefined):
            when = auto_delete(event.tags, target_tags)
        return pack_event(k, c, event, when, target if event.type == "Update" else None)

    def _add_effects(self, e: int, event: Event, effects: Effects) -> None:
        if effects.supersedes:
            self._updated += [(event.id, self._find(e, old)[0]) for old in effects.supersedes]
        if effects.erases:
            self._erased += [(self._find(e, gone)[0],) for gone in effects.erases]
        if effects.lifecycle == "terminated":
            self._terminated.append((event.timestamp, e))
        if effects.endpoints or effects.lifecycle == "terminated":
            self._outbox.change(e, effects)

    def _charge(self, event: Event) -> None:
        used = self._used.get(event.from_)
        if used is None:
            used = self._used[event.from_] = [0, 0, 0]
        content = event.content or ""
        used[0] += event.type == "Manifest"
        used[1] += 1
        used[2] += len(content) if content.isascii() else len(content.encode())

    # Numbers

    def _number(self, enclave: bytes, step: Step) -> int:
        """Return the enclave's number; a new enclave gets the next one."""
        e = self._cache.numbers.get(enclave)
        if e is None:
            row = self._db.execute("SELECT e FROM enclaves WHERE enclave = ?", (enclave,)).fetchone()
            e = row[0] if row else self._create(enclave, step)
        self._numbers[enclave] = e
        return e

    def _create(self, enclave: bytes, step: Step) -> int:
        if step.event is None or step.event.content is None:
            raise MisuseError("an enclave must start with its Manifest")
        self._created += 1
        query = "INSERT INTO enclaves (enclave, manifest) VALUES (?, ?)"
        return self._db.execute(query, (enclave, step.event.content)).lastrowid or 0

    def _kind(self, e: int, type_: str, subject: str) -> int:
        key = (e, type_, subject)
        c = self._cache.kinds.get(key) or self._kinds.get(key)
        if c is None:
            row = self._db.execute("SELECT c FROM kinds WHERE e = ? AND type = ? AND subject = ?", key).fetchone()
            c = row[0] if row else self._new_kind(key)
            self._kinds[key] = c
        return c

    def _new_kind(self, key: tuple[int, str, str]) -> int:
        self._types.pop(key[:2], None)
        query = "INSERT INTO kinds (e, type, subject, live, total) VALUES (?, ?, ?, 0, 0)"
        return self._db.execute(query, key).lastrowid or 0

    def _count(self, e: int, type_: str) -> int:
        """Return how many events of a type the enclave has had so far."""
        found = self._types.get((e, type_))
        if found is None:
            rows = self._db.execute("SELECT c, total FROM kinds WHERE e = ? AND type = ?", (e, type_)).fetchall()
            found = self._types[e, type_] = sum(total for _, total in rows), [c for c, _ in rows]
        before, kinds = found
        return before + sum(self._live[c] for c in kinds)

    def _find(self, e: int, event_id: bytes) -> tuple[int, Tags]:
        """Return the key and the tags of an event that must exist."""
        found = self._keys.get((e, event_id))
        if found is not None:
            return found
        k = self._cache.ids.find(self._db, e, event_id)
        row = self._db.execute("SELECT k, head FROM events WHERE k = ?", (k,)).fetchone()
        if row is None:
            raise MisuseError("an event refers to a missing event")
        return row[0], tags_of(row[1])

    # Writing

    def write(self) -> Callable[[], None]:
        db, after_commit = self._db, list[Callable[[], None]]()
        bulk_insert(db, f"INSERT INTO events ({PLAIN})", self._plain, row=PLAIN_ROW)
        bulk_insert(db, "INSERT INTO events", self._events)
        bulk_insert(db, "INSERT INTO tags", self._tags)
        bulk_insert(db, INSERT_NODES, self._tree)
        bulk_insert(db, "INSERT INTO log_nodes", self._log)
        bulk_insert(db, "INSERT INTO bundles", self._bundles)
        for statement, rows in (
            ("UPDATE events SET updated_by = ? WHERE k = ?", self._updated),
            (f"{ERASE} WHERE k = ?", self._erased),
            ("UPDATE enclaves SET terminated_at = ? WHERE e = ?", self._terminated),
        ):
            if rows:
                db.executemany(statement, rows)
        put_records(db, self._records)
        self._write_counts()
        for k in self._deleted:
            self._delete(k)
        self._write_states()
        after_commit.append(self._outbox.write(db, self._cache.audiences))
        if self._keys:
            after_commit.append(self._cache.ids.add(db, [(id_, k) for (_, id_), (k, _) in self._keys.items()]))
        return lambda: self._after_commit(after_commit)

    def _after_commit(self, others: list[Callable[[], None]]) -> None:
        kinds = self._cache.kinds
        if len(kinds) + len(self._kinds) > MAX_KINDS:
            kinds.clear()
        kinds.update(self._kinds)
        for other in others:
            other()

    def _write_counts(self) -> None:
        counts = [(n, n, c) for c, n in self._live.items()]
        self._db.executemany("UPDATE kinds SET live = live + ?, total = total + ? WHERE c = ?", counts)
        add_usage(self._db, [(bytearray(identity), *used) for identity, used in self._used.items()])
        if self._created:
            self._db.execute("UPDATE node SET enclaves = enclaves + ?", (self._created,))

    def _delete(self, k: int) -> None:
        """Remove a deleted event from everything that searches use."""
        c, head = self._db.execute("SELECT c, head FROM events WHERE k = ?", (k,)).fetchone()
        self._db.execute("UPDATE kinds SET live = live - 1 WHERE c = ?", (c,))
        self._db.execute("UPDATE events SET c = -c, updated_by = NULL WHERE k = ?", (k,))
        self._db.executemany("DELETE FROM tags WHERE e = ? AND t8 = ? AND seq = ?", tag_rows(k, tags_of(head)))

    def _write_states(self) -> None:
        pending = list[tuple[int, bytes, bytes | None]]()
        states = list[tuple[int, bytes, int | None]]()
        for e, state in self._states.items():
            leaves = self._leaves.get(e, {})
            if e in self._flushed:
                self._db.execute("DELETE FROM pending WHERE e = ?", (e,))
                leaves = dict(state.pending)
            pending += [(e, key, value) for key, value in leaves.items()]
            deadline = state.bundle.deadline(state.policy.bundle) if state.bundle else None
            states.append((e, pack_state(state), deadline))
        bulk_insert(self._db, "INSERT OR REPLACE INTO pending", pending)
        bulk_insert(
            self._db,
            "INSERT INTO states",
            states,
            "ON CONFLICT DO UPDATE SET state = excluded.state, deadline = excluded.deadline",
        )
