"""Cursors: where a page ended, by the values of its last row. They need nothing of the server, and never skip a row.

A cursor is no secret and no right: what it holds is checked like any other value of a query.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from enc.core.errors import InvalidQuery
from enc.core.hashing import sha256
from enc.dataview.serving import values
from enc.dataview.serving.columns import Column

MAX_CURSOR = 16 << 10


class Order(Struct, frozen=True):
    """A column to order by. Nulls come first, and last on the way down."""

    column: Column
    down: bool = False
    is_key: bool = False

    def sql(self, table: sa.Table) -> sa.ColumnElement[Any]:
        column = table.c[self.column.name]
        if not column.nullable:
            return column.desc() if self.down else column.asc()
        return column.desc().nulls_last() if self.down else column.asc().nulls_first()


class _Cursor(Struct, array_like=True):
    mark: str
    values: list[Any]


_decoder = msgspec.json.Decoder(_Cursor)


def mark(view: str, order: Sequence[Order], filters: Sequence[Any]) -> str:
    """Tells the cursors of different queries apart."""
    ways = [(each.column.name, each.down) for each in order]
    return sha256(msgspec.json.encode([view, ways, list(filters)]))[:8].hex()


def make(order: Sequence[Order], mark: str, row: sa.Row[Any]) -> str:
    """The cursor of the page that ends with `row`."""
    last = [values.to_cursor(each.column, getattr(row, each.column.name)) for each in order]
    return base64.urlsafe_b64encode(msgspec.json.encode(_Cursor(mark, last))).decode().rstrip("=")


def parse(text: str, order: Sequence[Order], mark: str) -> tuple[Any, ...]:
    """The values of `order` in the last row of the page before; InvalidQuery if it is no cursor of this query."""
    if len(text) > MAX_CURSOR:
        raise InvalidQuery("cursor: not one of ours")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = _decoder.decode(raw)
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidQuery("cursor: not one of ours") from None
    if found.mark != mark:
        raise InvalidQuery("cursor: of another query; its filters and order must be those of the first page")
    try:
        last = [values.from_cursor(each.column, value) for each, value in zip(order, found.values, strict=True)]
    except (ValueError, OverflowError):
        raise InvalidQuery("cursor: not one of ours") from None
    return tuple(last)


def behind(order: Sequence[Order], last: Sequence[Any], table: sa.Table) -> sa.ColumnElement[bool]:
    """The rows that come after one with these values."""
    columns = [table.c[each.column.name] for each in order]
    if len({each.down for each in order}) == 1 and not any(column.nullable for column in columns):
        # One comparison of rows, which an index answers.
        ours = sa.tuple_(*columns)
        theirs = sa.tuple_(*(sa.literal(value, column.type) for value, column in zip(last, columns, strict=True)))
        return ours < theirs if order[0].down else ours > theirs
    ways, same = list[sa.ColumnElement[bool]](), list[sa.ColumnElement[bool]]()
    for each, column, value in zip(order, columns, last, strict=True):
        ways.append(sa.and_(*same, _after(column, value, each.down)))
        same.append(column.is_(None) if value is None else column == value)
    return sa.and_(_not_before(columns[0], last[0], order[0].down), sa.or_(*ways))


def _after(column: sa.Column[Any], value: Any, down: bool) -> sa.ColumnElement[bool]:
    if value is None:
        return sa.false() if down else column.is_not(None)
    if not down:
        return sa.and_(column > value)
    return sa.or_(column < value, column.is_(None)) if column.nullable else sa.and_(column < value)


def _not_before(column: sa.Column[Any], value: Any, down: bool) -> sa.ColumnElement[bool]:
    """Says nothing that the rest does not say, but in a form that an index answers."""
    if value is None or (down and column.nullable):
        return sa.true()
    return sa.and_(column <= value if down else column >= value)
