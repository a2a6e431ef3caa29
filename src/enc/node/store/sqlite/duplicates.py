"""Finds which of many commits were accepted before, with one query for a whole batch."""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from enc.core.primitives.types import Commit, Event
from enc.node.store.sqlite.event_rows import COLUMNS, SEQ_BITS, first8, hash_of, unpack_event

CHUNKS = (256, 32, 4, 1)
"""Commits per statement. There are few sizes, so that statements stay prepared."""


def _query(size: int) -> str:
    pairs = ",".join(["(?, ?)"] * size)
    return (
        f"WITH asked (a, b) AS (VALUES {pairs}) "  # noqa: S608 - no part is a peer's
        f"SELECT {COLUMNS} FROM asked CROSS JOIN events ON exp = a AND hash8 = b"
    )


_QUERIES = {size: _query(size) for size in CHUNKS}


def find_duplicates(db: sqlite3.Connection, commits: Sequence[Commit], hidden: Collection[int]) -> dict[bytes, Event]:
    """Return the events that these commits became before, by commit hash, without those of hidden
    enclave numbers.
    """
    by_hash = {commit.hash: commit for commit in commits}
    found = {}
    for chunk in _chunks(list(by_hash.values())):
        pairs = tuple(chain.from_iterable((commit.exp, first8(commit.hash)) for commit in chunk))
        for row in db.execute(_QUERIES[len(chunk)], pairs):
            commit_hash = hash_of(row[4])
            if commit_hash in by_hash and row[0] >> SEQ_BITS not in hidden:
                found[commit_hash] = unpack_event(row)
    return found


def _chunks(commits: list[Commit]) -> Iterator[list[Commit]]:
    at = 0
    while at < len(commits):
        size = next(size for size in CHUNKS if size <= len(commits) - at)
        yield commits[at : at + size]
        at += size
