"""The table of rights of a version 2 manifest, as sets of rows that a decision intersects.

A row is an entry of the manifest. A set of rows is an integer with a bit for each row, so that a
decision costs a few operations on integers, however many entries match: one commit may ask for a
thousand decisions, and a manifest may have thousands of entries for each of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from enc.core.rules.policy_types import EventKind, Subject
from enc.core.rules.v2.manifest_parts import RuleEntry

Rows = int
"""A set of rows: bit i is entry i."""

MAX_SETS = 256
"""Cached sets of each kind: each takes a bit for an entry of the manifest."""

_Places = Mapping[tuple[str, str, EventKind], Sequence[int]]


class RuleTable:
    """The rows by what they are about. Every set is exact; gates are applied by the caller."""

    def __init__(self, entries: Sequence[RuleEntry]) -> None:
        gives = defaultdict[tuple[str, str, EventKind], list[int]](list)
        denies = defaultdict[tuple[str, str, EventKind], list[int]](list)
        columns, scopes = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        gates = defaultdict[str, list[int]](list)
        for i, entry in enumerate(entries):
            for kind in entry.kinds:
                for op in entry.ops:
                    gives[entry.event, op, kind].append(i)
                for op in entry.denies:
                    denies[entry.event, op, kind].append(i)
            for column in entry.columns:
                columns[column].append(i)
            for state in entry.scope or ():
                scopes[state].append(i)
            if entry.alias is not None:
                gates[entry.alias].append(i)
        self._gives, self._denies = dict(gives), dict(denies)
        self.preserving = rows_at(i for i, entry in enumerate(entries) if entry.preserve)
        """Entries that keep the target's traits."""
        self.reading = rows_at(i for i, entry in enumerate(entries) if "R" in entry.ops or "R" in entry.denies)
        """Entries that give or deny reading."""
        self.about: Callable[[str, Subject], tuple[Rows, Rows]]
        """The entries that give an op on such an event, and those that deny it."""
        self.about = lru_cache(MAX_SETS)(partial(_about, self._gives, self._denies))
        self.of_columns: Callable[[frozenset[str]], Rows]
        """The entries for any of these columns."""
        self.of_columns = lru_cache(MAX_SETS)(partial(_union, _sets(columns)))
        self._scopes = _sets(scopes)
        self.behind: Callable[[frozenset[str]], Rows]
        """The entries behind any of these gates."""
        self.behind = lru_cache(4)(partial(_behind, dict(gates)))

    def in_scope(self, state: str) -> Rows:
        """Return the entries for targets of this State."""
        return self._scopes.get(state, 0)

    def names(self, op: str, type_: str) -> bool:
        """Return whether any entry gives or denies the op on all events of this type."""
        return (type_, op, None) in self._gives or (type_, op, None) in self._denies


def rows_at(positions: Iterable[int]) -> Rows:
    """Return the set of the rows at these positions."""
    found = list(positions)
    if len(found) == 1:
        return 1 << found[0]
    data = bytearray(max(found, default=0) // 8 + 1)
    for i in found:
        data[i >> 3] |= 1 << (i & 7)
    return int.from_bytes(data, "little")


def positions_of(rows: Rows) -> Iterator[int]:
    """Yield the positions of the rows of a set, in ascending order."""
    return (i for i, bit in enumerate(reversed(f"{rows:b}")) if bit == "1")


def first_of(rows: Rows) -> int:
    """Return the position of the first row of a set that is not empty."""
    return (rows & -rows).bit_length() - 1


def _sets(positions: Mapping[str, Sequence[int]]) -> dict[str, Rows]:
    return {name: rows_at(found) for name, found in positions.items()}


def _union(sets: Mapping[str, Rows], names: frozenset[str]) -> Rows:
    found = 0
    for name in names:
        found |= sets.get(name, 0)
    return found


def _behind(gates: Mapping[str, Sequence[int]], closed: frozenset[str]) -> Rows:
    return rows_at(i for alias in closed for i in gates.get(alias, ()))


def _about(gives: _Places, denies: _Places, op: str, subject: Subject) -> tuple[Rows, Rows]:
    places = dict.fromkeys([(subject.type, op, subject.kind), (subject.type, op, None), ("*", op, None)])
    return _found(gives, places), _found(denies, places)


def _found(where: _Places, places: Iterable[tuple[str, str, EventKind]]) -> Rows:
    return rows_at(i for place in places for i in where.get(place, ()))
