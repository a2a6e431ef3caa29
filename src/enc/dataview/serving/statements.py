"""SQL statements that change a view's table, and rows in chunks for them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from enc.dataview.serving.columns import ViewSchema

Row = Mapping[str, Any]
CHUNK = 5_000
"""Rows sent to the database at once."""
CHUNK_BYTES = 16 << 20
"""Most bytes of their texts, not counting the last row."""


def chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Split rows into lists bounded in rows and bytes."""
    chunk, size = list[Row](), 0
    for row in rows:
        chunk.append(row)
        size += sum(len(cell) for cell in row.values() if isinstance(cell, str | bytes))
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def insert_into(table: sa.Table, dialect: str) -> Any:
    return (postgresql if dialect == "postgresql" else sqlite).insert(table)


def upsert_rows(table: sa.Table, schema: ViewSchema, dialect: str) -> Any:
    """Return the upsert of the rows' columns. Columns that a view has lost keep their values."""
    names = [column.name for column in schema.columns]
    insert = insert_into(table, dialect).values({name: sa.bindparam(name) for name in names})
    rest = {name: insert.excluded[name] for name in names if name not in schema.key}
    if not rest:
        return insert.on_conflict_do_nothing(index_elements=list(schema.key))
    return insert.on_conflict_do_update(index_elements=list(schema.key), set_=rest)


def delete_rows(table: sa.Table, key: Sequence[str]) -> sa.Delete:
    return sa.delete(table).where(*(table.c[name] == sa.bindparam(f"k_{name}") for name in key))


def key_parameters(row: Row, key: Sequence[str]) -> dict[str, Any]:
    return {f"k_{name}": row[name] for name in key}
