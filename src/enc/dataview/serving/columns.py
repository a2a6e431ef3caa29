"""Columns of a view: eight kinds, each with one form in memory, in the database and on the wire.

| kind | in memory | SQLite | PostgreSQL | JSON and CSV |
|---|---|---|---|---|
| string | str | TEXT | text | as it is |
| integer | int, 64 bits | BIGINT | bigint | a number |
| double | float | FLOAT | double precision | a number; null for NaN and infinity |
| boolean | bool | BOOLEAN | boolean | true, false |
| timestamp | int, microseconds since 1970 | BIGINT | timestamptz | 2026-01-31T12:00:00.000000Z |
| date | str, 2026-01-31 | TEXT | text | as it is |
| binary | bytes | BLOB | bytea | hex |
| json | str | TEXT | text | the value itself; as text in CSV |

Both databases order texts by their UTF-8 bytes.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args
from zlib import crc32

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from enc.core.errors import MisuseError

ColumnKind = Literal["string", "integer", "double", "boolean", "timestamp", "date", "binary", "json"]
KINDS: tuple[str, ...] = get_args(ColumnKind)

MAX_COLUMNS = 256
_VIEW = re.compile(r"[a-z][a-z0-9_]{0,62}")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_PLAIN = datetime(1970, 1, 1)  # the zone is appended by hand, which is faster
_MICROSECOND = timedelta(microseconds=1)


class Column(Struct, frozen=True):
    name: str
    kind: ColumnKind


class ViewSchema(Struct, frozen=True):
    """A view's schema in the database. The key's columns are never null and identify a row."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    description: str = ""

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


def check_schema(schema: ViewSchema) -> None:
    """Check that both databases accept all names, and that the key's columns exist."""
    if not _VIEW.fullmatch(schema.name):
        raise MisuseError(f"view {schema.name!r}: expected a-z, then a-z, 0-9 or _, at most 63 characters")
    names = [column.name for column in schema.columns]
    if not 1 <= len(names) <= MAX_COLUMNS:
        raise MisuseError(f"view {schema.name}: expected 1 to {MAX_COLUMNS} columns")
    for name in names:
        if not _COLUMN.fullmatch(name):
            raise MisuseError(f"view {schema.name}: column {name!r}: expected a name of A-Z, a-z, 0-9 and _")
    if len({name.lower() for name in names}) != len(names):
        raise MisuseError(f"view {schema.name}: two columns have the same name")
    if not schema.key or len(set(schema.key)) != len(schema.key) or set(schema.key) - set(names):
        raise MisuseError(f"view {schema.name}: key: expected columns of the view, each once")
    for column in schema.columns:
        if column.name in schema.key and column.kind in ("json", "double"):
            raise MisuseError(f"view {schema.name}: {column.name}: a {column.kind} cannot be part of a key")


# In the database

_ESCAPE, _NUL = "\ue000", "\x00"


class _PgText(TypeDecorator[str]):
    """PostgreSQL rejects only NUL: it is written as U+E000 and 0, and U+E000 itself is doubled."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (_NUL not in value and _ESCAPE not in value):
            return value
        return value.replace(_ESCAPE, _ESCAPE * 2).replace(_NUL, _ESCAPE + "0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or _ESCAPE not in value:
            return value
        return re.sub(f"{_ESCAPE}([{_ESCAPE}0])", lambda m: _ESCAPE if m[1] == _ESCAPE else _NUL, value)


class _PgTimestamp(TypeDecorator[int]):
    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else micros(value)


_SQLITE: dict[str, TypeEngine[Any]] = {
    "string": sa.Text(),
    "integer": sa.BigInteger(),
    "double": sa.Double(),
    "boolean": sa.Boolean(),
    "timestamp": sa.BigInteger(),
    "date": sa.Text(),
    "binary": sa.LargeBinary(),
    "json": sa.Text(),
}
_TEXT_C = _PgText(collation="C")
_POSTGRESQL = _SQLITE | {"string": _TEXT_C, "date": _TEXT_C, "json": _TEXT_C, "timestamp": _PgTimestamp()}


def sql_type(kind: ColumnKind, dialect: str) -> TypeEngine[Any]:
    return (_POSTGRESQL if dialect == "postgresql" else _SQLITE)[kind]


def sql_table(schema: ViewSchema, dialect: str) -> sa.Table:
    """Return a view's table. The prefix of its name keeps it apart from internal tables."""
    columns = [
        sa.Column(
            column.name,
            sql_type(column.kind, dialect),
            primary_key=column.name in schema.key,
            nullable=column.name not in schema.key,
            autoincrement=False,
        )
        for column in sorted(schema.columns, key=lambda column: _place(schema, column))
    ]
    return sa.Table(table_name(schema.name), sa.MetaData(), *columns)


def table_name(view: str) -> str:
    """Return the table's name. PostgreSQL allows 63 characters: a longer name is cut and gets a
    checksum.
    """
    name = f"view_{view}"
    return name if len(name) <= 63 else f"{name[:54]}_{crc32(view.encode()):08x}"


def _place(schema: ViewSchema, column: Column) -> int:
    """Return the sort position: the primary key's columns come first, in the order of its index."""
    return schema.key.index(column.name) if column.name in schema.key else len(schema.key)


# Times


def micros(moment: datetime) -> int:
    """Return microseconds since 1970. A time without a zone is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def iso(moment: int) -> str:
    """Return the wire form, always with six digits, so that texts sort like their times."""
    return (_EPOCH_PLAIN + timedelta(microseconds=moment)).isoformat(timespec="microseconds") + "Z"
