"""Inserts many rows with few statements.

Each statement releases the interpreter lock and gets it back only after other threads had it. In a
busy node that costs more than the row, so one statement inserts many rows.

A statement that breaks a constraint rolls back the whole transaction, as every caller does anyway:
callers must not catch the error and continue in the transaction. A statement that rolled back only
itself would first copy every page that it changes, into a file if they are many.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

CHUNKS = (64, 16, 4, 1)
"""Rows per statement. There are few sizes, so that statements stay prepared."""


@cache
def _statement(into: str, row: str, size: int, then: str) -> str:
    into = into.replace("INSERT INTO", "INSERT OR ROLLBACK INTO", 1)
    return f"{into} VALUES {','.join([row] * size)} {then}"


def bulk_insert(
    db: sqlite3.Connection, into: str, rows: Sequence[tuple[Any, ...]], then: str = "", row: str = ""
) -> None:
    """Insert rows. `into` is the INSERT up to VALUES, `then` follows the values; `row` is the SQL
    of one row if it is not only question marks.
    """
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
