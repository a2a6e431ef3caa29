"""Chooses the index ranges that lead to the events that a search wants.

Events of an enclave fall into kinds: a type together with the type that decides its read rights. A
search wants certain kinds, so that it never scans events that its reader may not read. The possible
queries, each in the log's order:

- walk: nearly everything is wanted, or the range of seqs is short: scan the log, skip the rest
- kinds: the ranges of the wanted kinds, or of authors in them, merged
- tag: the ranges of a tag's values, merged, if those are shorter; kind and author are checked for
  each event

SQL compares authors and tags by eight bytes of a hash: the caller must match the results again.
"""

import sqlite3
from collections.abc import Iterable

from msgspec import Struct
from msgspec.json import encode

from enc.node.store.sqlite.event_rows import COLUMNS, MAX_SEQ, SqlRow, key_of

MAX_WASTE = 1000
"""Maximum number of events that a walk may skip."""
MAX_RANGES = 64
"""Maximum number of ranges that are merged; with more, their keys are sorted."""
MAX_PROBE = 1000
"""How far ranges are counted to find the shorter ones; if both are longer, the tag's range is used.
"""

Args = tuple[int | str, ...]

_SELECT = f"SELECT {COLUMNS} FROM events"  # noqa: S608 - no part of a query is a peer's
_LISTED = "IN (SELECT value FROM json_each(?))"
_TAGGED = "SELECT 1 FROM tags WHERE e = ? AND t8 = ? AND seq BETWEEN ? AND ?"
_OF_KIND = (
    "SELECT 1 FROM events INDEXED BY events_kind WHERE c = ? AND k BETWEEN ? AND ?",
    "SELECT 1 FROM events INDEXED BY events_author WHERE c = ? AND from8 = ? AND k BETWEEN ? AND ?",
)


class RangeQuery(Struct, frozen=True):
    """A query: its own arguments, then the first position, the last, and the maximum number of
    rows.
    """

    sql: str
    args: Args
    base: int = 0
    """Added to a seq to get a position."""

    def run(self, db: sqlite3.Connection, low: int, high: int, most: int) -> Iterable[SqlRow]:
        return db.execute(self.sql, (*self.args, self.base + low, self.base + high, most))


class SearchPlan(Struct, frozen=True, kw_only=True):
    """What a search wants of enclave number `e`, as numbers."""

    e: int
    low: int
    high: int
    """Seqs, both inclusive."""
    reverse: bool
    kinds: list[int]
    """Wanted from any author, or from any of `authors`."""
    own: list[int]
    """Kinds that are wanted only from `me`."""
    me: int
    authors: list[int] | None
    tags: list[list[int]]
    """At least one tag of each list must be present."""
    rest: int
    """Approximate number of events of other kinds than `kinds`, including deleted ones."""
    everything: bool
    """Whether `kinds` are all kinds that there are."""

    def queries(self, db: sqlite3.Connection) -> list[RangeQuery]:
        """Return the queries over the shortest ranges, as far as a look at the indexes shows."""
        if not (self.kinds or self.own) or self.low > self.high:
            return []
        waste = self.high - self.low
        if self.authors is None and not self.tags:
            waste = min(waste, self.rest)
        if waste <= MAX_WASTE:
            return [self.walk()]
        ranges = self._ranges()
        shortest = self._shortest(db, ranges)
        if shortest is not None:
            return self._by_tag(shortest)
        return self._by_kind(ranges) if len(ranges) <= MAX_RANGES else self._sorted()

    # What an event is asked that was not found by it

    def _is_wanted(self) -> tuple[str, Args]:
        """Return the condition on kind and author. The plus signs prevent SQLite from using an
        index.
        """
        sql, args = f"+c {_LISTED}", [_json(self.kinds)]
        if self.authors is not None:
            sql, args = f"{sql} AND +from8 {_LISTED}", [*args, _json(self.authors)]
        if self.own:
            return f"({sql} OR +c {_LISTED} AND +from8 = ?)", (*args, _json(self.own), self.me)
        return sql, tuple(args)

    def _has_tags(self, but: int | None = None) -> tuple[str, Args]:
        sql, args = "", list[int]()
        for i, values in enumerate(self.tags):
            if i != but:
                marks = ",".join("?" * len(values))
                sql += f" AND EXISTS (SELECT 1 FROM tags WHERE e = ? AND t8 IN ({marks}) AND seq = k & {MAX_SEQ})"  # noqa: S608
                args += [self.e, *values]
        return sql, tuple(args)

    def _end(self, place: str = "k") -> str:
        return f" AND {place} BETWEEN ? AND ? ORDER BY {place} {'DESC' if self.reverse else 'ASC'} LIMIT ?"

    # Ways

    def walk(self) -> RangeQuery:
        """Return the query that scans the log, whatever the range."""
        (wanted, args), (tagged, tag_args) = self._is_wanted(), self._has_tags()
        if self.everything and self.authors is None:
            wanted, args = "c > 0", ()
        return RangeQuery(f"{_SELECT} WHERE {wanted}{tagged}{self._end()}", args + tag_args, key_of(self.e, 0))

    def _ranges(self) -> list[tuple[int, ...]]:
        """Return (kind) or (kind, author) for each range."""
        ranges: list[tuple[int, ...]] = [(c, self.me) for c in self.own]
        if self.authors is None:
            return ranges + [(c,) for c in self.kinds]
        return ranges + [(c, author) for c in self.kinds for author in self.authors]

    def _by_kind(self, ranges: list[tuple[int, ...]]) -> list[RangeQuery]:
        tagged, args = self._has_tags()
        queries = [
            f"{_SELECT} INDEXED BY events_kind WHERE c = ?{tagged}{self._end()}",
            f"{_SELECT} INDEXED BY events_author WHERE c = ? AND from8 = ?{tagged}{self._end()}",
        ]
        return [RangeQuery(queries[len(place) - 1], place + args, key_of(self.e, 0)) for place in ranges]

    def _sorted(self) -> list[RangeQuery]:
        """Return at most two queries for the same events. SQLite sorts their keys, then reads the
        rows in order.
        """
        tagged, tag_args = self._has_tags()
        found = list[tuple[str, Args]]()
        if self.authors is None:
            found.append((f"INDEXED BY events_kind WHERE c {_LISTED}", (_json(self.kinds),)))
        else:
            where = f"INDEXED BY events_author WHERE c {_LISTED} AND from8 {_LISTED}"
            found.append((where, (_json(self.kinds), _json(self.authors))))
        if self.own:
            found.append((f"INDEXED BY events_author WHERE c {_LISTED} AND from8 = ?", (_json(self.own), self.me)))
        order = "DESC" if self.reverse else "ASC"
        return [
            RangeQuery(
                f"{_SELECT} WHERE k IN (SELECT k FROM events {where}{tagged}{self._end()}) ORDER BY k {order}",  # noqa: S608
                args + tag_args,
                key_of(self.e, 0),
            )
            for where, args in found
        ]

    def _by_tag(self, which: int) -> list[RangeQuery]:
        (wanted, args), (tagged, tag_args) = self._is_wanted(), self._has_tags(but=which)
        base = key_of(self.e, 0)
        sql = (
            f"SELECT {COLUMNS} FROM tags AS t CROSS JOIN events ON k = {base} + t.seq "  # noqa: S608
            f"WHERE t.e = ? AND t.t8 = ? AND {wanted}{tagged}{self._end('t.seq')}"
        )
        return [RangeQuery(sql, (self.e, t8, *args, *tag_args)) for t8 in self.tags[which]]

    # How long they are

    def _shortest(self, db: sqlite3.Connection, ranges: list[tuple[int, ...]]) -> int | None:
        """Return the tag with the fewest entries; None if the kinds have fewer. Counts no further
        than needed.
        """
        if not self.tags:
            return None
        which, fewest = 0, MAX_PROBE + 1
        for i, values in enumerate(self.tags):
            found = _count(db, [(_TAGGED, (self.e, t8, self.low, self.high)) for t8 in values], fewest)
            if found < fewest:
                which, fewest = i, found
        if len(ranges) > MAX_RANGES:
            return which
        ends = key_of(self.e, self.low), key_of(self.e, self.high)
        kinds = _count(db, [(_OF_KIND[len(place) - 1], place + ends) for place in ranges], fewest)
        return which if fewest <= kinds else None


def _count(db: sqlite3.Connection, queries: list[tuple[str, Args]], most: int) -> int:
    """Return how many entries all of them have, counted up to `most`."""
    found = 0
    for query, args in queries:
        if found < most:
            found += db.execute(f"SELECT count(*) FROM ({query} LIMIT ?)", (*args, most - found)).fetchone()[0]  # noqa: S608
    return found


def _json(numbers: list[int]) -> str:
    return encode(numbers).decode()
