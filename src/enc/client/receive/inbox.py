"""The inbox: events received from nodes and not delivered yet, and the position in each queue, on disk.

Rules:

 1. a batch is on disk before its node gets an answer
 2. a batch counts once, and an event once, by its seq in its enclave
 3. an event waits until every batch before its own has arrived or is known to be lost; and so do the
    later events of the same log, which another node may bring after the enclave has moved
 4. one seq of a log has one event (Equivocation); only the first node that brought an enclave's
    events may bring them (ForeignSequencer), until the enclave is known to have moved; then the
    former node may still bring its own
 5. waiting events are bounded: beyond the limit only batches that others wait for are accepted, and
    the node retries later

It uses no clock and no socket. Only one thread at a time may use it.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.client.enclave.push_body import Notice, PushedBatch
from enc.client.errors import Equivocation, ForeignSequencer, Forgery
from enc.client.evidence.evidence import answer_evidence, two_events
from enc.client.receive.inbox_file import Db, unavailable
from enc.core.errors import Unavailable
from enc.core.log.event import erase, parse_event, wire_event
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import Event

Accepts = Callable[[bytes], bool]
"""Whether to accept events of an enclave."""
NodeCheck = Callable[[bytes, bytes], bool]
"""Whether an enclave is known to have moved to the node with this key; or away from it."""

Filing = Callable[[bytes, str, Sequence[Event]], None]
"""Called before a delivery counts, with the node's key, a name that is stable on repeats, and
events.
"""

MAX_EARLY = 1000
"""Most batches of one queue that may wait for an earlier one."""
MAX_BYTES = 256 << 20
"""Most bytes of events that wait for delivery.

Early ones may fill half of it, and batches that others wait for may exceed it by half, so that they
always fit.
"""
RETRY_MS = 1000


class QueuePosition(Struct, frozen=True):
    """Position of one queue: `next` is the first missing batch, `until` the last before early ones."""

    next: int
    until: int | None
    """None: nothing arrived early, so nothing is known to be missing."""
    enclaves: tuple[bytes, ...]
    """The enclaves known to be on this node."""


class PushInbox:
    """`wants_notices`: else notices are dropped. Events of enclaves not accepted are dropped too."""

    def __init__(
        self,
        db: Db,
        *,
        wants_notices: bool,
        accepts: Accepts = lambda _: True,
        is_new_node: NodeCheck = lambda enclave, seq_pub: False,
        is_former_node: NodeCheck = lambda enclave, seq_pub: False,
        filing: Filing | None = None,
        max_bytes: int = MAX_BYTES,
        max_early: int = MAX_EARLY,
    ) -> None:
        self.db, self._wants_notices, self._accepts, self._is_new_node = db, wants_notices, accepts, is_new_node
        self._is_former_node = is_former_node
        self._filing = filing
        self._max_bytes, self._max_early = max_bytes, max_early
        self.bytes: int = self._one("SELECT coalesce(sum(length(event)), 0) FROM enc_events")[0]

    def _one(self, sql: str, *values: object) -> tuple[int, ...]:
        found: tuple[int, ...] = self.db.execute(sql, values).fetchone()
        return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes to disk or none; raises Unavailable if the disk fails."""
        before = self.bytes
        try:
            self.db.execute("BEGIN IMMEDIATE")
            yield
            self.db.execute("COMMIT")
        except BaseException as e:
            self.bytes = before
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if isinstance(e, sqlite3.Error):
                raise unavailable(e) from e
            raise

    # Nodes

    def keys(self) -> dict[str, bytes]:
        """Return the stored keys of nodes, by URL."""
        return dict(self.db.execute("SELECT node, seq_pub FROM enc_nodes"))

    def keep_key(self, node: str, seq_pub: bytes) -> None:
        self.db.execute("INSERT OR IGNORE INTO enc_nodes VALUES (?, ?)", (node, seq_pub))

    def sequencer(self, enclave: bytes) -> bytes | None:
        """Return the key of the node that delivers an enclave's events; None before the first."""
        found = self.db.execute("SELECT seq_pub FROM enc_enclaves WHERE enclave = ?", (enclave,)).fetchone()
        return found[0] if found else None

    def sequencers(self, most: int) -> dict[bytes, bytes]:
        """Return these keys for up to `most` enclaves, at random."""
        return dict(self.db.execute("SELECT enclave, seq_pub FROM enc_enclaves ORDER BY random() LIMIT ?", (most,)))

    # Filing

    def file(self, seq_pub: bytes, batch: PushedBatch) -> bool:
        """Store a batch of verified events. Returns False if it arrived before."""
        with self.transaction():
            if self.has(seq_pub, batch.push_seq):
                return False
            next_ = self._next(seq_pub)
            self._check_room(seq_pub, batch.push_seq > next_)
            for enclave, events in batch.events.items():
                if self._accepts(enclave):
                    self._check_sequencer(enclave, seq_pub)
                    self._store_events(enclave, events, seq_pub, batch.push_seq)
            for notice in batch.notices:
                if self._accepts(notice.enclave):
                    self._check_sequencer(notice.enclave, seq_pub)
                    self._store_notice(notice)
            self._call_filing(seq_pub, f"{batch.push_seq:016d}", batch.events)
            self.db.execute("INSERT INTO enc_early VALUES (?, ?)", (seq_pub, batch.push_seq))
            self._advance(seq_pub, next_)
        return True

    def _next(self, seq_pub: bytes) -> int:
        found = self.db.execute("SELECT next FROM enc_queues WHERE seq_pub = ?", (seq_pub,)).fetchone()
        return found[0] if found else 1

    def has(self, seq_pub: bytes, push_seq: int) -> bool:
        """Whether the batch has arrived before."""
        if 0 < push_seq < self._next(seq_pub):
            return True
        sql = "SELECT count(*) FROM enc_early WHERE seq_pub = ? AND push_seq = ?"
        return bool(self._one(sql, seq_pub, min(push_seq, MAX_INT))[0])

    def _call_filing(self, seq_pub: bytes, name: str, events: Mapping[bytes, Sequence[Event]]) -> None:
        """Call `filing`; what it raises is answered to the node, and nothing is stored."""
        select_batches = [event for enclave, found in events.items() if self._accepts(enclave) for event in found]
        if self._filing is not None and select_batches:
            self._filing(seq_pub, name, select_batches)

    def _check_room(self, seq_pub: bytes, is_early: bool) -> None:
        early, half = self._one("SELECT count(*) FROM enc_early WHERE seq_pub = ?", seq_pub)[0], self._max_bytes // 2
        if self.bytes >= (half if is_early else self._max_bytes + half if early else self._max_bytes):
            raise Unavailable("too many events wait for delivery", retry_after_ms=RETRY_MS)
        if is_early and early >= self._max_early:
            raise Unavailable("too many batches wait for an earlier one", retry_after_ms=RETRY_MS)

    def _check_sequencer(self, enclave: bytes, seq_pub: bytes) -> None:
        """Apply rule 4: the node must be the enclave's, as far as known."""
        sql = "INSERT INTO enc_enclaves (enclave, seq_pub) VALUES (?, ?) ON CONFLICT DO NOTHING"
        if self.db.execute(sql, (enclave, seq_pub)).rowcount:
            return
        known = self.db.execute("SELECT seq_pub FROM enc_enclaves WHERE enclave = ?", (enclave,)).fetchone()[0]
        if known != seq_pub and self._is_new_node(enclave, seq_pub):
            self.db.execute("UPDATE enc_enclaves SET seq_pub = ? WHERE enclave = ?", (seq_pub, enclave))
        elif known != seq_pub and not self._is_former_node(enclave, seq_pub):
            message = f"pushed by {seq_pub.hex()}, but the enclave's sequencer is {known.hex()}"
            raise ForeignSequencer(message, answer_evidence("foreign", enclave, known, message, b""))

    def _store_events(self, enclave: bytes, events: Sequence[Event], seq_pub: bytes, push_seq: int) -> None:
        sql = "SELECT last, last_id FROM enc_enclaves WHERE enclave = ?"
        last, last_id = self.db.execute(sql, (enclave,)).fetchone()
        for event in events:
            if event.seq > last:
                self._store_event(event, seq_pub, push_seq)
            elif event.seq == last and event.id != last_id:
                message = f"event {event.seq}: another event was delivered as event {event.seq}"
                shown = msgspec.json.encode(wire_event(event))
                raise Forgery(message, answer_evidence("answer", enclave, seq_pub, message, shown))

    def _store_event(self, event: Event, seq_pub: bytes, push_seq: int) -> None:
        text = msgspec.json.encode(wire_event(event))
        sql = "INSERT INTO enc_events VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        if self.db.execute(sql, (event.enclave, event.seq, event.id, seq_pub, push_seq, text)).rowcount:
            self.bytes += len(text)
            return
        sql = "SELECT event FROM enc_events WHERE enclave = ? AND seq = ?"
        first = parse_event(self.db.execute(sql, (event.enclave, event.seq)).fetchone()[0])
        if first.id != event.id:
            message = f"two different events are signed as event {event.seq}"
            raise Equivocation(message, two_events(erase(first), erase(event), message))

    def _store_notice(self, notice: Notice) -> None:
        """Store a notice; merge it with a waiting one: the latest event, the counts of both."""
        sql = "SELECT noticed FROM enc_enclaves WHERE enclave = ?"
        if not self._wants_notices or notice.seq <= self._one(sql, notice.enclave)[0]:
            return
        sql = "SELECT notice FROM enc_notices WHERE enclave = ?"
        found = self.db.execute(sql, (notice.enclave,)).fetchone()
        if found is not None:
            older, newer = sorted((msgspec.msgpack.decode(found[0], type=Notice), notice), key=lambda each: each.seq)
            notice = replace(newer, type_seq={**older.type_seq, **newer.type_seq})
        row = (notice.enclave, notice.seq, msgspec.msgpack.encode(notice))
        self.db.execute("INSERT OR REPLACE INTO enc_notices VALUES (?, ?, ?)", row)

    def _advance(self, seq_pub: bytes, next_: int) -> None:
        """Apply rule 3: advance to the first missing batch."""
        early = self.db.execute("SELECT push_seq FROM enc_early WHERE seq_pub = ? ORDER BY push_seq", (seq_pub,))
        for (push_seq,) in early.fetchall():
            if push_seq != next_:
                break
            next_ += 1
        self.db.execute("DELETE FROM enc_early WHERE seq_pub = ? AND push_seq < ?", (seq_pub, next_))
        self.db.execute("INSERT OR REPLACE INTO enc_queues VALUES (?, ?)", (seq_pub, next_))

    # Gaps

    def position(self, seq_pub: bytes, most: int = 16) -> QueuePosition:
        """Return the position of a node's queue, and up to `most` of its enclaves, at random, as
        some may be gone.

        A moved enclave is included while the queue has a gap and events of it from this node wait
        here.
        """
        first = self._one("SELECT min(push_seq) FROM enc_early WHERE seq_pub = ?", seq_pub)[0]
        sql = (
            "SELECT enclave FROM (SELECT enclave FROM enc_enclaves WHERE seq_pub = :key "
            "UNION SELECT enclave FROM enc_events WHERE :first AND seq_pub = :key) ORDER BY random() LIMIT :most"
        )
        asked = {"key": seq_pub, "first": first, "most": most}
        enclaves = tuple(enclave for (enclave,) in self.db.execute(sql, asked))
        return QueuePosition(self._next(seq_pub), None if first is None else first - 1, enclaves)

    def missing_range(self, enclave: bytes, seq_pub: bytes) -> tuple[int, int | None]:
        """Return where an enclave's events may be missing: after which seq, before which (None:
        open end).

        Considers this node's queue only: other nodes' queues, before or after a move, have other
        numbers.
        """
        sql = (
            "SELECT max(iif(push_seq < :next, seq, NULL)), min(iif(push_seq >= :next, seq, NULL)) "
            "FROM enc_events WHERE enclave = :enclave AND seq_pub = :key"
        )
        asked = {"next": self._next(seq_pub), "enclave": enclave, "key": seq_pub}
        waiting, early = self.db.execute(sql, asked).fetchone()
        if waiting is not None:
            return waiting, early
        return self._one("SELECT last FROM enc_enclaves WHERE enclave = ?", enclave)[0], early

    def fill(self, seq_pub: bytes, enclave: bytes, events: Sequence[Event], until: int | None = None) -> None:
        """Store verified events from another source for a `missing_range`. They wait for no batch.

        `until`: all events of the enclave up to this seq are here now, so early ones need not wait
        any more.
        """
        with self.transaction():
            self._check_room(seq_pub, False)
            self._store_events(enclave, events, seq_pub, 0)
            if events:
                name = f"{enclave.hex()}-{events[0].seq:016d}-{events[-1].seq:016d}"
                self._call_filing(seq_pub, name, {enclave: events})
            if until is not None:
                self._release(seq_pub, enclave, until)

    def release(self, seq_pub: bytes, enclave: bytes) -> None:
        """Release one enclave's early events without the missing ones.

        Other enclaves still wait.
        """
        with self.transaction():
            self._release(seq_pub, enclave, MAX_INT)

    def _release(self, seq_pub: bytes, enclave: bytes, until: int) -> None:
        sql = "UPDATE enc_events SET push_seq = 0 WHERE enclave = ? AND seq_pub = ? AND seq <= ?"
        self.db.execute(sql, (enclave, seq_pub, until))

    def stuck_enclaves(self, seq_pub: bytes) -> tuple[bytes, ...]:
        """Return the enclaves with early events in a node's queue."""
        sql = "SELECT DISTINCT enclave FROM enc_events WHERE seq_pub = ? AND push_seq >= ? ORDER BY enclave"
        return tuple(enclave for (enclave,) in self.db.execute(sql, (seq_pub, self._next(seq_pub))))

    def skip(self, seq_pub: bytes, until: int) -> None:
        """Continue without the batches up to this one: they are lost."""
        with self.transaction():
            self._advance(seq_pub, max(self._next(seq_pub), until + 1))

    # Delivery

    def waiting(self, after: bytes) -> bytes | None:
        """Return the next enclave by id after this one that has events here, deliverable or early."""
        sql = "SELECT enclave FROM enc_events WHERE enclave > ? ORDER BY enclave LIMIT 1"
        found = self.db.execute(sql, (after,)).fetchone()
        return found[0] if found else None

    def ready(self, enclave: bytes, most: int) -> list[Event]:
        """Return the next deliverable events of an enclave, in ascending order of seq."""
        sql = (
            "SELECT event FROM enc_events JOIN enc_queues USING (seq_pub) "
            "WHERE enclave = :enclave AND push_seq < next AND seq < coalesce("
            "CASE WHEN EXISTS (SELECT 1 FROM enc_early) THEN "  # else all that waits would be looked at, for nothing
            "(SELECT min(early.seq) FROM enc_events AS early JOIN enc_queues AS queue USING (seq_pub) "
            "WHERE early.enclave = :enclave AND early.push_seq >= queue.next) END, :most) ORDER BY seq LIMIT :limit"
        )
        found = self.db.execute(sql, {"enclave": enclave, "most": MAX_INT, "limit": most})
        return [parse_event(event) for (event,) in found]

    def mark_delivered(self, event: Event) -> None:
        """Remove a delivered event, in the handler's own transaction."""
        sql = "DELETE FROM enc_events WHERE enclave = ? AND seq = ? RETURNING length(event)"
        (size,) = self._one(sql, event.enclave, event.seq)
        self.bytes -= size
        sql = "UPDATE enc_enclaves SET last = ?, last_id = ? WHERE enclave = ?"
        self.db.execute(sql, (event.seq, event.id, event.enclave))

    def notices(self) -> list[Notice]:
        rows = self.db.execute("SELECT notice FROM enc_notices LIMIT 100").fetchall()
        return [msgspec.msgpack.decode(notice, type=Notice) for (notice,) in rows]

    def mark_noticed(self, notice: Notice) -> None:
        with self.transaction():
            sql = "DELETE FROM enc_notices WHERE enclave = ? AND seq = ?"
            self.db.execute(sql, (notice.enclave, notice.seq))
            sql = "UPDATE enc_enclaves SET noticed = ? WHERE enclave = ?"
            self.db.execute(sql, (notice.seq, notice.enclave))
