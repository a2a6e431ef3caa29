"""The state of a log being replayed: in memory while small, in a temporary file when large.

A log's state is small, but what later events may need grows with the log: every event may be the
target of an Update, and every change adds nodes to the sparse tree. So a replay uses bounded
memory, and the rest is in an unnamed SQLite file.
"""

import sqlite3
from collections.abc import Container, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any

from msgspec import msgpack

from enc.core.log.event import target_of
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import SeenCommits
from enc.core.machine.state import Transition
from enc.core.primitives.types import Event, Target, Withheld
from enc.core.trees import sparse_merkle

MAX_KEPT = 1 << 18
"""Entries of one kind in memory: about 100 MB for all kinds."""


class _File:
    """Key-value tables in a private file that is deleted when it is closed."""

    def __init__(self, *tables: str) -> None:
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("PRAGMA cache_size = -16384")
        self._connection.execute("PRAGMA temp_store = FILE")
        for table in tables:
            self._connection.execute(f"CREATE TABLE {table} (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def put(self, table: str, pairs: Iterable[tuple[bytes, Any]]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", pairs)  # noqa: S608
        self._connection.execute("COMMIT")

    def get(self, table: str, key: bytes) -> Any:
        row = self._connection.execute(f"SELECT value FROM {table} WHERE key = ?", (key,)).fetchone()  # noqa: S608
        return None if row is None else row[0]

    def drop(self, table: str, key: bytes) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE key = ?", (key,))  # noqa: S608

    def values(self, table: str, limit: int = -1) -> Iterator[Any]:
        """Yield values in order; all of them with a limit below 0."""
        found = self._connection.execute(f"SELECT value FROM {table} ORDER BY value LIMIT ?", (limit,))  # noqa: S608
        return (value for (value,) in found)


class SpillingStore(EnclaveMemory):
    """An EnclaveMemory with bounded memory. It drops bundles and log nodes, which a replay never
    reads.
    """

    def __init__(self, most: int = MAX_KEPT) -> None:
        super().__init__()
        self._most = most
        self._file: _File | None = None
        self._leaves: dict[bytes, bytes | None] | None = {}
        """The current state, flat: a replay reads no other. None once it is too large."""

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        """Return a leaf as of the latest event; a replay reads only keys unchanged since `root`."""
        if self._leaves is not None:
            return self._leaves.get(key)
        return sparse_merkle.get(self, root, key)

    def put(self, event: Event | None, transition: Transition) -> None:
        if event is not None:
            self.targets[event.id] = target_of(event)
            if len(self.targets) > self._most:
                rows = [(id_, _packed(target)) for id_, target in _oldest(self.targets, self._most // 2)]
                self._spilled().put("targets", rows)
        if transition.leaves and self._leaves is not None:
            self._leaves.update(transition.leaves)
            if len(self._leaves) > self._most:
                self._leaves = None
        if transition.tree_nodes:
            self.tree_nodes.update(transition.tree_nodes)
            if len(self.tree_nodes) > self._most:
                self._spilled().put("nodes", _oldest(self.tree_nodes, self._most // 2))
        for record in transition.records:
            self.put_record(record)

    def _spilled(self) -> _File:
        self._file = self._file or _File("targets", "nodes")
        return self._file

    def read_node(self, node_hash: bytes) -> bytes:
        found = self.tree_nodes.get(node_hash)
        if found is None and self._file is not None:
            found = self._file.get("nodes", node_hash)
        if found is None:
            raise KeyError(node_hash)
        return found

    def target(self, event_id: bytes) -> Target | None:
        found = self.targets.get(event_id)
        if found is None and self._file is not None:
            packed = self._file.get("targets", event_id)
            return None if packed is None else _unpacked(packed)
        return found


class SpilledCommits(SeenCommits):
    """A SeenCommits with a bound on contents that are missing and not yet explained.

    Its answers are bounded, too: they have the first `MAX_REPORTED` contents of each kind.
    """

    MAX_REPORTED = 10_000

    def __init__(self, most: int = MAX_KEPT) -> None:
        super().__init__()
        self._most, self._file = most, None

    _file: _File | None

    def add_unexplained(self, event: Event) -> None:
        super().add_unexplained(event)
        if len(self._unexplained) > self._most:
            self._spilled().put("gone", _oldest(self._unexplained, self._most // 2))
        if len(self._stated) > self._most:
            rows = [(id_, _packed_statement(*each)) for id_, each in _oldest(self._stated, self._most // 2)]
            self._spilled().put("stated", rows)

    def _spilled(self) -> _File:
        self._file = self._file or _File("gone", "stated")
        return self._file

    def explain(self, event_id: bytes) -> None:
        super().explain(event_id)
        if self._file is not None:
            self._file.drop("gone", event_id)
            self._file.drop("stated", event_id)

    def all_unexplained(self, nodes: Container[bytes]) -> list[int]:
        spilled = () if self._file is None else self._file.values("gone", self.MAX_REPORTED)
        foreign = (seq for seq, statement in self._statements() if statement.node not in nodes)
        return sorted([*self._unexplained.values(), *spilled, *islice(foreign, self.MAX_REPORTED)])

    def withheld(self, nodes: Container[bytes]) -> list[tuple[int, Withheld]]:
        found = (each for each in self._statements() if each[1].node in nodes)
        return list(islice(found, self.MAX_REPORTED))

    def _statements(self) -> Iterator[tuple[int, Withheld]]:
        """Yield the seqs with statements in order."""
        here = sorted(self._stated.values(), key=_seq_of)
        spilled = () if self._file is None else map(_unpacked_statement, self._file.values("stated"))
        return merge(here, spilled, key=_seq_of)


def _seq_of(stated: tuple[int, Withheld]) -> int:
    return stated[0]


def _packed_statement(seq: int, statement: Withheld) -> bytes:
    """Return bytes that sort by seq."""
    return seq.to_bytes(8, "big") + msgpack.encode(statement)


def _unpacked_statement(packed: bytes) -> tuple[int, Withheld]:
    return int.from_bytes(packed[:8], "big"), msgpack.decode(packed[8:], type=Withheld)


def _oldest(kept: dict[bytes, Any], count: int) -> list[tuple[bytes, Any]]:
    """Remove and return the oldest entries."""
    found = list(islice(kept.items(), count))
    for key, _ in found:
        del kept[key]
    return found


def _packed(target: Target) -> bytes:
    return (b"\x01" if target.auto_delete else b"\x00") + target.from_ + target.type.encode()


def _unpacked(packed: bytes) -> Target:
    return Target(packed[33:].decode(), packed[1:33], packed[0] == 1)
