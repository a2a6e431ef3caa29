"""Many rows by few statements.

Each statement that runs gives the interpreter up, and gets it back only after other threads had it. In a busy node
that costs more than the row, so rows go in many at a time.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

CHUNKS = (64, 16, 4, 1)
"""Rows of one statement: few sizes, so that statements stay prepared."""


@cache
def _statement(into: str, width: int, size: int, then: str) -> str:
    row = f"({','.join('?' * width)})"
    return f"{into} VALUES {','.join([row] * size)} {then}"


def insert(db: sqlite3.Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = "") -> None:
    """`into` is an INSERT up to its VALUES, `then` what follows them."""
    at = 0
    for size in CHUNKS:
        while len(rows) - at >= size:
            values = tuple(chain.from_iterable(rows[at : at + size]))
            db.execute(_statement(into, len(rows[0]), size, then), values)
            at += size
