"""Many rows by few statements.

Each statement that runs gives the interpreter up, and gets it back only after other threads had it. In a busy node
that costs more than the row, so rows go in many at a time.

A statement that breaks a constraint takes the whole transaction back, as whoever writes here does in any case: nobody
may catch the error and go on in it. One that took only itself back would first copy every page that it changes, into a
file of its own once they are many.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

CHUNKS = (64, 16, 4, 1)
"""Rows of one statement: few sizes, so that statements stay prepared."""


@cache
def _statement(into: str, row: str, size: int, then: str) -> str:
    into = into.replace("INSERT INTO", "INSERT OR ROLLBACK INTO", 1)
    return f"{into} VALUES {','.join([row] * size)} {then}"


def bulk_insert(
    db: sqlite3.Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = "", row: str = ""
) -> None:
    """`into` is an INSERT up to its VALUES, `then` what follows them; `row` is one of them, if not only marks."""
    if not rows:
        return
    at, row = 0, row or f"({','.join('?' * len(rows[0]))})"
    for size in CHUNKS:
        while len(rows) - at >= size:
            values = list[Any]()
            for each in rows[at : at + size]:
                values += each
            db.execute(_statement(into, row, size, then), values)
            at += size
