"""The log of one enclave, as it was found: its events, and what says how many there must be."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby

from msgspec import MsgspecError

from enc.core.errors import EncError
from enc.core.log.event import check_event
from enc.core.machine.state import ClosedBundle
from enc.core.primitives.hashing import content_hash
from enc.core.primitives.types import VERSIONS, Event, TreeHead
from enc.node.salvage.found_rows import FoundRows
from enc.node.store.sqlite.event_rows import MAX_SEQ, key_of, unpack_event
from enc.node.store.sqlite.snapshot import read_position
from enc.node.store.sqlite.store import decode_head
from enc.node.store.store_interface import Charge

MAX_MISSING = 1000
"""Ranges of missing events that are listed."""


class FoundLog:
    """The log with one number. `enclave` is empty if neither its id nor any of its events was found."""

    def __init__(self, rows: FoundRows, e: int) -> None:
        self._rows, self.e = rows, e
        self._ends = key_of(e, 0), key_of(e, MAX_SEQ)
        self.position = self._position()
        """The last seq and the least next timestamp, as the stored state says."""
        self.enclave = self._enclave()

    def _position(self) -> tuple[int, int] | None:
        found = []
        for (state,) in self._rows.rows("SELECT state FROM states WHERE e = ?", self.e):
            try:
                found.append(read_position(state))
            except MsgspecError:
                continue
        return max(found, default=None)

    def _enclave(self) -> bytes:
        for _, events in self._found():
            for event in events:
                if _is_signed(event):
                    return event.enclave
        found = self._rows.rows("SELECT enclave FROM enclaves WHERE e = ? AND purged >= 0", self.e)
        return bytes(found[0][0]) if found else b""

    @property
    def count(self) -> int:
        """How many rows of events were found."""
        query = "SELECT count(DISTINCT k) FROM events WHERE k BETWEEN ? AND ?"
        return int(self._rows.rows(query, *self._ends)[0][0])

    @property
    def expected(self) -> int:
        """How many events the log has at least, by everything that tells."""
        (last,) = self._rows.rows("SELECT max(k) FROM events WHERE k BETWEEN ? AND ?", *self._ends)[0]
        (closed,) = self._rows.rows("SELECT max(first_seq + count) FROM bundles WHERE e = ?", self.e)[0]
        by_kind = "SELECT sum(n) FROM (SELECT max(total) AS n FROM kinds WHERE e = ? GROUP BY c)"
        (total,) = self._rows.rows(by_kind, self.e)[0]
        by_state = self.position[0] if self.position else -1
        by_event = -1 if last is None else last & MAX_SEQ
        return max(by_state + 1, by_event + 1, closed or 0, total or 0)

    def events(self, end: int = MAX_SEQ) -> Iterator[Event]:
        """Yield the events before `end`, up to the first that cannot be read."""
        for expected, (seq, events) in enumerate(self._found()):
            own = [event for event in events if event.enclave == self.enclave]
            if seq != expected or seq >= end or not own:
                return
            yield _best(own)

    def missing(self) -> list[tuple[int, int]]:
        """Return the first and the last seq of each range of events that cannot be read."""
        found, at = list[tuple[int, int]](), 0
        for seq, events in self._found():
            if events and seq > at:
                found.append((at, seq - 1))
            at = seq + 1 if events else at
        if at < self.expected:
            found.append((at, self.expected - 1))
        return found[:MAX_MISSING]

    def _found(self) -> Iterator[tuple[int, list[Event]]]:
        """Yield each seq of which rows were found, with the events in them that can be read."""
        query = "SELECT k, page, cell FROM events WHERE k BETWEEN ? AND ? ORDER BY k"
        for k, places in groupby(self._rows.db.execute(query, self._ends), lambda row: int(row[0])):
            read = (self._event(k & MAX_SEQ, page, cell) for _, page, cell in places)
            yield k & MAX_SEQ, [event for event in read if event is not None]

    def _event(self, seq: int, page: int, cell: int) -> Event | None:
        row = self._rows.event(page, cell)
        if row is None:
            return None
        updated_by, digest, head, content, *rest = row[8:]
        withheld = rest[0] if rest else None  # the column is missing in rows of before an upgrade
        try:
            event = unpack_event((0, 0, updated_by, None if content is not None else digest, head, content, withheld))
        except (EncError, ValueError):
            return None
        is_own = event.seq == seq and (content is None or content_hash(content) == digest == event.content_hash)
        return event if is_own else None

    def heads(self, index: int) -> list[TreeHead]:
        """Return the stored heads of a bundle that can be decoded."""
        found = list[TreeHead]()
        for (packed,) in self._rows.rows("SELECT head FROM bundles WHERE e = ? AND i = ?", self.e, index):
            try:
                head = decode_head(packed)
            except MsgspecError:
                continue
            found += [] if head is None else [head]
        return found

    def has_closed(self, bundle: ClosedBundle) -> bool:
        """Return whether the store says that this bundle was closed."""
        query = "SELECT 1 FROM bundles WHERE e = ? AND i = ? AND first_seq = ? AND count = ? AND events_root = ?"
        args = self.e, bundle.index, bundle.first_seq, bundle.count, bundle.events_root
        return bool(self._rows.rows(query, *args))

    def charges(self) -> list[Charge]:
        """Return rows that may say who is charged for events; some are of another table."""
        query = "SELECT first_seq, last_seq, identity FROM charges WHERE e = ? ORDER BY first_seq"
        return [Charge(*row) for row in self._rows.rows(query, self.e)]


def _best(events: list[Event]) -> Event:
    """Return the event among several with one seq: one with valid signatures, and of these one whose
    content is erased, so that it stays erased.
    """
    if len(events) == 1:
        return events[0]
    return min(events, key=lambda event: (not _is_signed(event), event.content is not None))


def _is_signed(event: Event) -> bool:
    for version in VERSIONS:
        with suppress(EncError):
            check_event(event, version)
            return True
    return False
