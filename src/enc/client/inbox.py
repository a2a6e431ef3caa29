"""The inbox: what came from nodes and is not handed over yet, and how far everything is. It outlives the process.

Rules:

 1. a batch is on disk before its node is told that it came
 2. a batch counts once, an event once, by its place in its enclave's log
 3. an event waits until every batch before its own is here, or is known to be lost; and so do those after it in the
    same log, which another node may bring once the enclave has moved
 4. one place of a log holds one event (Equivocation); the first node that brought an enclave's events is the only one
    that may (ForeignSequencer), until the enclave is known to have moved; then the node before may bring its own still
 5. what waits is bounded: past it nothing is taken but what others wait for, and the node tries again later

It knows no clock and no socket. One thread at a time may use it.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.client.errors import Equivocation, ForeignSequencer, Forgery
from enc.client.evidence import answer_evidence, two_events
from enc.client.inbox_file import Db, unavailable
from enc.client.push_body import Notice, PushedBatch
from enc.core.encoding import MAX_INT
from enc.core.errors import Unavailable
from enc.core.event import erase, parse_event, wire_event
from enc.core.types import Event

Accepts = Callable[[bytes], bool]
"""Whether events of an enclave are wanted."""
Moved = Callable[[bytes, bytes], bool]
"""Whether an enclave is known to have come to the node with this key; or to have gone on from there."""

Filing = Callable[[bytes, str, Sequence[Event]], None]
"""Told of what a node brought, by its key, with a name for it that is the same each time it comes: before it counts."""

MAX_EARLY = 1000
"""Batches of one queue that may wait for one before them."""
MAX_BYTES = 256 << 20
"""Of events that wait to be handed over. Those that came early may fill half of it, and what others wait for may go
half beyond it, so that it always fits."""
RETRY_MS = 1000


class QueuePosition(Struct, frozen=True):
    """How far one queue is: `next` is the first batch that is not here, `until` the last before those that are."""

    next: int
    until: int | None
    """None: nothing came early, and so nothing is known to be missing."""
    enclaves: tuple[bytes, ...]
    """Those that this node is known by."""


class Inbox:
    """`wants_notices`: without, those are let go; and so is what is of an enclave that is not accepted."""

    def __init__(
        self,
        db: Db,
        *,
        wants_notices: bool,
        accepts: Accepts = lambda _: True,
        moved: Moved = lambda enclave, seq_pub: False,
        left: Moved = lambda enclave, seq_pub: False,
        filing: Filing | None = None,
        max_bytes: int = MAX_BYTES,
        max_early: int = MAX_EARLY,
    ) -> None:
        self.db, self._wants_notices, self._accepts, self._moved = db, wants_notices, accepts, moved
        self._left = left
        self._filing = filing
        self._max_bytes, self._max_early = max_bytes, max_early
        self.bytes: int = self._one("SELECT coalesce(sum(length(event)), 0) FROM enc_events")[0]

    def _one(self, sql: str, *values: object) -> tuple[int, ...]:
        found: tuple[int, ...] = self.db.execute(sql, values).fetchone()
        return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, on disk when this returns; Unavailable where the disk does not take it."""
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
        """Nodes' keys, as they were found, by URL."""
        return dict(self.db.execute("SELECT node, seq_pub FROM enc_nodes"))

    def keep_key(self, node: str, seq_pub: bytes) -> None:
        self.db.execute("INSERT OR IGNORE INTO enc_nodes VALUES (?, ?)", (node, seq_pub))

    # Filing

    def file(self, seq_pub: bytes, batch: PushedBatch) -> bool:
        """Take a batch, whose events were checked. False: it is here already, or was."""
        with self.transaction():
            if self.has(seq_pub, batch.push_seq):
                return False
            next_ = self._next(seq_pub)
            self._check_room(seq_pub, batch.push_seq > next_)
            for enclave, events in batch.events.items():
                if self._accepts(enclave):
                    self._know(enclave, seq_pub)
                    self._keep(enclave, events, seq_pub, batch.push_seq)
            for notice in batch.notices:
                if self._accepts(notice.enclave):
                    self._know(notice.enclave, seq_pub)
                    self._note(notice)
            self._tell(seq_pub, f"{batch.push_seq:016d}", batch.events)
            self.db.execute("INSERT INTO enc_early VALUES (?, ?)", (seq_pub, batch.push_seq))
            self._advance(seq_pub, next_)
        return True

    def _next(self, seq_pub: bytes) -> int:
        found = self.db.execute("SELECT next FROM enc_queues WHERE seq_pub = ?", (seq_pub,)).fetchone()
        return found[0] if found else 1

    def has(self, seq_pub: bytes, push_seq: int) -> bool:
        """The batch is here, or was."""
        if 0 < push_seq < self._next(seq_pub):
            return True
        sql = "SELECT count(*) FROM enc_early WHERE seq_pub = ? AND push_seq = ?"
        return bool(self._one(sql, seq_pub, min(push_seq, MAX_INT))[0])

    def _tell(self, seq_pub: bytes, name: str, events: Mapping[bytes, Sequence[Event]]) -> None:
        """What it raises is answered, and nothing counts."""
        select_batches = [event for enclave, found in events.items() if self._accepts(enclave) for event in found]
        if self._filing is not None and select_batches:
            self._filing(seq_pub, name, select_batches)

    def _check_room(self, seq_pub: bytes, is_early: bool) -> None:
        early, half = self._one("SELECT count(*) FROM enc_early WHERE seq_pub = ?", seq_pub)[0], self._max_bytes // 2
        if self.bytes >= (half if is_early else self._max_bytes + half if early else self._max_bytes):
            raise Unavailable("too much waits to be handed over", retry_after_ms=RETRY_MS)
        if is_early and early >= self._max_early:
            raise Unavailable("too many batches wait for one before them", retry_after_ms=RETRY_MS)

    def _know(self, enclave: bytes, seq_pub: bytes) -> None:
        """Rule 4: the enclave is this node's, as far as is known."""
        sql = "INSERT INTO enc_enclaves (enclave, seq_pub) VALUES (?, ?) ON CONFLICT DO NOTHING"
        if self.db.execute(sql, (enclave, seq_pub)).rowcount:
            return
        known = self.db.execute("SELECT seq_pub FROM enc_enclaves WHERE enclave = ?", (enclave,)).fetchone()[0]
        if known != seq_pub and self._moved(enclave, seq_pub):
            self.db.execute("UPDATE enc_enclaves SET seq_pub = ? WHERE enclave = ?", (seq_pub, enclave))
        elif known != seq_pub and not self._left(enclave, seq_pub):
            message = f"pushed by {seq_pub.hex()}, and the enclave's sequencer is {known.hex()}"
            raise ForeignSequencer(message, answer_evidence("foreign", enclave, known, message, b""))

    def _keep(self, enclave: bytes, events: Sequence[Event], seq_pub: bytes, push_seq: int) -> None:
        sql = "SELECT last, last_id FROM enc_enclaves WHERE enclave = ?"
        last, last_id = self.db.execute(sql, (enclave,)).fetchone()
        for event in events:
            if event.seq > last:
                self._put(event, seq_pub, push_seq)
            elif event.seq == last and event.id != last_id:
                message = f"event {event.seq}: another one was handed over as number {event.seq}"
                shown = msgspec.json.encode(wire_event(event))
                raise Forgery(message, answer_evidence("answer", enclave, seq_pub, message, shown))

    def _put(self, event: Event, seq_pub: bytes, push_seq: int) -> None:
        text = msgspec.json.encode(wire_event(event))
        sql = "INSERT INTO enc_events VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        if self.db.execute(sql, (event.enclave, event.seq, event.id, seq_pub, push_seq, text)).rowcount:
            self.bytes += len(text)
            return
        sql = "SELECT event FROM enc_events WHERE enclave = ? AND seq = ?"
        first = parse_event(self.db.execute(sql, (event.enclave, event.seq)).fetchone()[0])
        if first.id != event.id:
            message = f"two different events are signed as number {event.seq}"
            raise Equivocation(message, two_events(erase(first), erase(event), message))

    def _note(self, notice: Notice) -> None:
        """Of several that wait, the latest counts, with what all of them count."""
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
        """Rule 3: as far as batches are here without a gap."""
        early = self.db.execute("SELECT push_seq FROM enc_early WHERE seq_pub = ? ORDER BY push_seq", (seq_pub,))
        for (push_seq,) in early.fetchall():
            if push_seq != next_:
                break
            next_ += 1
        self.db.execute("DELETE FROM enc_early WHERE seq_pub = ? AND push_seq < ?", (seq_pub, next_))
        self.db.execute("INSERT OR REPLACE INTO enc_queues VALUES (?, ?)", (seq_pub, next_))

    # Gaps

    def place(self, seq_pub: bytes, most: int = 16) -> QueuePosition:
        """How far a node's queue is, and up to `most` enclaves that it is known by: any, as some may be gone.

        One that has moved is still among them while the queue has a gap and events of it, from this node, wait here.
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
        """Where events of an enclave may be missing: after which seq, and before which; None: there is none yet.

        By this node's queue alone: another's, from before or after a move, has numbers of its own.
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
        """Events from elsewhere, checked: what an enclave's `hole` held. They wait for no batch.

        `until`: with these, all of the enclave up to this seq is here, and what came early waits no more either.
        """
        with self.transaction():
            self._check_room(seq_pub, False)
            self._keep(enclave, events, seq_pub, 0)
            if events:
                name = f"{enclave.hex()}-{events[0].seq:016d}-{events[-1].seq:016d}"
                self._tell(seq_pub, name, {enclave: events})
            if until is not None:
                self._release(seq_pub, enclave, until)

    def release(self, seq_pub: bytes, enclave: bytes) -> None:
        """What came early of an enclave goes on without what it waited for. The queue's other enclaves wait still."""
        with self.transaction():
            self._release(seq_pub, enclave, MAX_INT)

    def _release(self, seq_pub: bytes, enclave: bytes, until: int) -> None:
        sql = "UPDATE enc_events SET push_seq = 0 WHERE enclave = ? AND seq_pub = ? AND seq <= ?"
        self.db.execute(sql, (enclave, seq_pub, until))

    def stuck_enclaves(self, seq_pub: bytes) -> tuple[bytes, ...]:
        """Enclaves of which something of a node's queue came early."""
        sql = "SELECT DISTINCT enclave FROM enc_events WHERE seq_pub = ? AND push_seq >= ? ORDER BY enclave"
        return tuple(enclave for (enclave,) in self.db.execute(sql, (seq_pub, self._next(seq_pub))))

    def skip(self, seq_pub: bytes, until: int) -> None:
        """The batches up to this one are lost: go on without them."""
        with self.transaction():
            self._advance(seq_pub, max(self._next(seq_pub), until + 1))

    # Handing over

    def waiting(self, after: bytes) -> bytes | None:
        """The next enclave after this one, by id, that has events here, handed over or early."""
        sql = "SELECT enclave FROM enc_events WHERE enclave > ? ORDER BY enclave LIMIT 1"
        found = self.db.execute(sql, (after,)).fetchone()
        return found[0] if found else None

    def ready(self, enclave: bytes, most: int) -> list[Event]:
        """The next events of an enclave to be handed over, by rising seq."""
        sql = (
            "SELECT event FROM enc_events JOIN enc_queues USING (seq_pub) "
            "WHERE enclave = :enclave AND push_seq < next AND seq < coalesce("
            "CASE WHEN EXISTS (SELECT 1 FROM enc_early) THEN "  # else all that waits would be looked at, for nothing
            "(SELECT min(early.seq) FROM enc_events AS early JOIN enc_queues AS queue USING (seq_pub) "
            "WHERE early.enclave = :enclave AND early.push_seq >= queue.next) END, :most) ORDER BY seq LIMIT :limit"
        )
        found = self.db.execute(sql, {"enclave": enclave, "most": MAX_INT, "limit": most})
        return [parse_event(event) for (event,) in found]

    def moved(self, event: Event) -> None:
        """The event is handed over: part of the handler's own transaction."""
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
