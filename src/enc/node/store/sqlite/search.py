"""Searches events by a filter and a reader's rights, page by page.

A search holds no connection between pages, so that a slow consumer blocks neither a reader nor the
write-ahead log.

Work is bounded per page, not only rows: a query that finds little would scan the log in one call.
SQLite counts its instructions, and a query that reaches MAX_WORK is interrupted. What it found until
then is a page. If that is nothing, the next page covers a smaller window of the log, which grows
again while that is cheap. A short window is scanned without an index.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

from msgspec import Struct

from enc.core.log.filter import Filter, Range
from enc.node.store.events import SearchItem
from enc.node.store.sqlite.event_index import EventIndex
from enc.node.store.sqlite.event_rows import COLUMNS, MAX_SEQ, SqlRow, author_of, first8, items, key_of, unpack_event
from enc.node.store.sqlite.search_plan import MAX_WASTE, SearchPlan
from enc.node.store.sqlite.tag_index import tag8
from enc.node.store.store_interface import ReadRights

PAGE_ROWS, PAGE_BYTES = 1024, 4 << 20
"""Maximum size of a page in rows, and in characters of contents."""
STEP = 32
"""Rows after which the size is checked."""

MAX_WORK, WORK_STEP = 100_000, 2_000
"""Most instructions of SQLite for one page, and the number between two looks at them: about 10 ms."""
GROWTH, SHRINKAGE = 2, 16
BATCH = 128
"""Rows whose rights are checked at a time."""

_BY_KEY = f"SELECT {COLUMNS} FROM events WHERE k = ?"  # noqa: S608


class SearchedKind(Struct, frozen=True):
    """A type together with the type that decides its read rights."""

    c: int
    type: str
    subject: str
    live: int
    """How many of its events are not deleted."""


class EventSearch:
    """Call `read` with a connection and then `items` without one, until `done`."""

    def __init__(
        self, db: sqlite3.Connection, ids: EventIndex, enclave: bytes, e: int, filter_: Filter, readable: ReadRights
    ) -> None:
        self._enclave, self._base, self._filter, self._readable = enclave, key_of(e, 0), filter_, readable
        named = filter_.ids is not None or isinstance(filter_.seqs, frozenset)
        self._keys = self._named(db, ids, e) if named else None
        self._last, self._others = -1, False
        # Read the last event before the kinds: events of a kind that appears in between are beyond
        # it.
        self._low, self._high = self._bounds(db)
        self._kinds = {kind.c: kind for kind in self._wanted_kinds(db, e)}
        wanted = self._wanted(e)
        reaches = {readable.scope.of(kind.subject) for kind in self._kinds.values()}
        self._is_exact = reaches <= {"all"} and not (named or wanted.tags or wanted.authors is not None)
        self._queries = [] if named else wanted.queries(db)
        self._walk = wanted.walk()
        self._window = self._max_window = MAX_SEQ
        """How many seqs the next page covers at most, and to how many that may grow."""
        self.done = not self._kinds or not (self._keys or self._queries)

    # Before the first page

    def _named(self, db: sqlite3.Connection, ids: EventIndex, e: int) -> list[int]:
        """Return the keys of the events that the filter names one by one, in order."""
        if self._filter.ids is not None:
            found = [k for event_id in self._filter.ids if (k := ids.find(db, e, event_id)) is not None]
        else:
            seqs = self._filter.seqs if isinstance(self._filter.seqs, frozenset) else ()
            found = [self._base + seq for seq in seqs]
        return sorted(found, reverse=self._filter.reverse)

    def _bounds(self, db: sqlite3.Connection) -> tuple[int, int]:
        """Return the first and the last seq that can match."""
        ends = self._base, self._base + MAX_SEQ
        (last,) = db.execute("SELECT max(k) FROM events WHERE k BETWEEN ? AND ?", ends).fetchone()
        if last is not None:
            self._last = last - self._base
        seqs = self._filter.seqs if isinstance(self._filter.seqs, Range) else Range()
        low, high = seqs.low, min(seqs.high, self._last)
        times = self._filter.timestamps
        if times is not None:
            low, high = max(low, self._first_at(db, times.low)), min(high, self._first_at(db, times.high + 1) - 1)
        return low, high

    def _first_at(self, db: sqlite3.Connection, timestamp: int) -> int:
        """Return the seq of the first event at or after `timestamp`. Timestamps never decrease, so
        this is a binary search.
        """
        low, high = 0, self._last + 1
        while low < high:
            middle = (low + high) // 2
            row = db.execute("SELECT timestamp FROM events WHERE k = ?", (self._base + middle,)).fetchone()
            low, high = (middle + 1, high) if row is not None and row[0] < timestamp else (low, middle)
        return low

    def _wanted_kinds(self, db: sqlite3.Connection, e: int) -> Iterable[SearchedKind]:
        types, scope = self._filter.types, self._readable.scope
        for row in db.execute("SELECT c, type, subject, live FROM kinds WHERE e = ?", (e,)):
            kind = SearchedKind(*row)
            if (types is None or kind.type in types) and scope.of(kind.subject) != "none":
                yield kind
            else:
                self._others = True

    def _wanted(self, e: int) -> SearchPlan:
        filter_, identity = self._filter, self._readable.identity
        own = {c for c, kind in self._kinds.items() if self._readable.scope.of(kind.subject) == "own"}
        kinds = [kind for c, kind in self._kinds.items() if c not in own]
        is_author = len(identity) == 32 and (filter_.authors is None or identity in filter_.authors)
        return SearchPlan(
            e=e,
            low=self._low,
            high=self._high,
            reverse=filter_.reverse,
            kinds=[kind.c for kind in kinds],
            own=sorted(own) if is_author else [],
            me=first8(identity) if is_author else 0,
            authors=None if filter_.authors is None else sorted({first8(author) for author in filter_.authors}),
            tags=[_numbers(name, values) for name, values in filter_.tags],
            rest=self._last + 1 - sum(kind.live for kind in kinds),
            everything=not (own or self._others),
        )

    # Pages

    def read(self, db: sqlite3.Connection) -> list[SqlRow]:
        """Return the next rows: perhaps none, although `done` is false."""
        low, high = self._ends()
        with _WorkLimit(db, is_limited=low < high) as work:
            found, is_all = self._read(db, low, high, work)
        if is_all:
            self._pass(low if self._filter.reverse else high)
            self._window = min(self._window * GROWTH, self._max_window)
        elif found:
            self._pass(found[-1][0] - self._base)
        else:
            self._max_window = max((high - low) // 2, 1)
            self._window = max((high - low) // SHRINKAGE, 1)
        return found

    def _read(self, db: sqlite3.Connection, low: int, high: int, work: "_WorkLimit") -> tuple[list[SqlRow], bool]:
        """Return rows from this window, and whether these are all that it has."""
        most, found, size = min(self._filter.limit + 1, PAGE_ROWS), list[SqlRow](), 0
        try:
            rows = iter(self._rows(db, low, high, most))
            while len(found) < most and size <= PAGE_BYTES:
                more = list(islice(rows, min(STEP, most - len(found))))
                if not more:
                    return found, True
                found += more
                size += sum([len(row[5]) for row in more if row[5] is not None])
        except sqlite3.OperationalError:
            if not work.is_over:
                raise
        return found, False

    def _ends(self) -> tuple[int, int]:
        """Return the first and the last seq of the next page."""
        if self._filter.reverse:
            return max(self._low, self._high - self._window + 1), self._high
        return self._low, min(self._high, self._low + self._window - 1)

    def _rows(self, db: sqlite3.Connection, low: int, high: int, most: int) -> Iterable[SqlRow]:
        if self._keys is not None:
            first, last = self._base + low, self._base + high
            return (row for k in self._keys if first <= k <= last for row in db.execute(_BY_KEY, (k,)))
        if self._max_window < MAX_SEQ and high - low < MAX_WASTE:
            return self._walk.run(db, low, high, most)
        if len(self._queries) == 1:
            return self._queries[0].run(db, low, high, most)
        return merge(*(query.run(db, low, high, most) for query in self._queries), reverse=self._filter.reverse)

    def _pass(self, seq: int) -> None:
        if self._filter.reverse:
            self._high = seq - 1
        else:
            self._low = seq + 1
        self.done = self._low > self._high

    def items(self, rows: list[SqlRow]) -> Iterator[list[SearchItem]]:
        """Yield the rows that match, some at a time. Checks the reader's rights, which may read the
        store in turn.
        """
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            if not self._is_exact:
                before = [rows[start - 1] if start else None, *batch]
                batch = [
                    row
                    for last, row in zip(before, batch, strict=False)
                    if self._admits(row) and (last is None or row[0] != last[0])
                ]
            yield items(batch)

    def _admits(self, row: SqlRow) -> bool:
        """Return whether a row matches. Types, times and ranges of seqs are not checked: the
        queries already select by them.
        """
        kind, filter_ = self._kinds.get(row[1]), self._filter
        if kind is None or (isinstance(filter_.seqs, frozenset) and row[0] - self._base not in filter_.seqs):
            return False
        reach = self._readable.scope.of(kind.subject)
        if filter_.tags or reach == "some":
            event = unpack_event(row)
            return filter_.matches(event) and self._readable.admits(event, kind.subject)
        author = author_of(row[4])
        is_asked = filter_.authors is None or author in filter_.authors
        return is_asked and (reach == "all" or author == self._readable.identity)


class _WorkLimit:
    """Interrupts a connection's queries after MAX_WORK instructions. A context manager."""

    def __init__(self, db: sqlite3.Connection, *, is_limited: bool) -> None:
        self._db, self._is_limited, self._left = db, is_limited, MAX_WORK // WORK_STEP

    @property
    def is_over(self) -> bool:
        return self._left < 0

    def __enter__(self) -> "_WorkLimit":
        if self._is_limited:
            self._db.set_progress_handler(self._count, WORK_STEP)
        return self

    def __exit__(self, *_: object) -> None:
        self._db.set_progress_handler(None, 0)

    def _count(self) -> bool:
        self._left -= 1
        return self._left < 0


def _numbers(name: str, values: frozenset[str] | None) -> list[int]:
    return [tag8(name)] if values is None else sorted({tag8(name, value) for value in values})
