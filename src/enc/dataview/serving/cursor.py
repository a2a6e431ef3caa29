"""Cursors mark where a page ended, by the values of its last row. They are stateless and never skip
a row.

A cursor grants no rights and is not a secret: its content is checked like any other value of a query.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from enc.core.errors import InvalidQuery
from enc.core.primitives.hashing import sha256
from enc.dataview.serving import values
from enc.dataview.serving.columns import Column

MAX_CURSOR = 16 << 10


class Order(Struct, frozen=True):
    """A column to order by. Nulls come first in ascending order, and last in descending order."""

    column: Column
    descending: bool = False
    is_key: bool = False

    def sql(self, table: sa.Table) -> sa.ColumnElement[Any]:
        column = table.c[self.column.name]
        if not column.nullable:
            return column.desc() if self.descending else column.asc()
        return column.desc().nulls_last() if self.descending else column.asc().nulls_first()


class _CursorContent(Struct, array_like=True):
    fingerprint: str
    values: list[Any]


_decoder = msgspec.json.Decoder(_CursorContent)


def fingerprint(view: str, order: Sequence[Order], filters: Sequence[Any]) -> str:
    """Return an id that distinguishes the cursors of different queries."""
    ways = [(each.column.name, each.descending) for each in order]
    return sha256(msgspec.json.encode([view, ways, list(filters)]))[:8].hex()


def make(order: Sequence[Order], fingerprint: str, row: sa.Row[Any]) -> str:
    """Return the cursor of the page that ends with `row`."""
    last = [values.to_cursor(each.column, getattr(row, each.column.name)) for each in order]
    return base64.urlsafe_b64encode(msgspec.json.encode(_CursorContent(fingerprint, last))).decode().rstrip("=")


def parse(text: str, order: Sequence[Order], fingerprint: str) -> tuple[Any, ...]:
    """Return the values of `order` in the last row of the page before.

    InvalidQuery if the cursor belongs to another query or is malformed.
    """
    if len(text) > MAX_CURSOR:
        raise InvalidQuery("cursor: malformed; pass `next` of the page before")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        found = _decoder.decode(raw)
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidQuery("cursor: malformed; pass `next` of the page before") from None
    if found.fingerprint != fingerprint:
        raise InvalidQuery("cursor: belongs to another query; filters and order must be those of the first page")
    try:
        last = [values.from_cursor(each.column, value) for each, value in zip(order, found.values, strict=True)]
    except (ValueError, OverflowError):
        raise InvalidQuery("cursor: malformed; pass `next` of the page before") from None
    return tuple(last)


def rows_after(order: Sequence[Order], last: Sequence[Any], table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition for rows that follow a row with these values."""
    columns = [table.c[each.column.name] for each in order]
    if len({each.descending for each in order}) == 1 and not any(column.nullable for column in columns):
        # A single row comparison, which an index can answer.
        ours = sa.tuple_(*columns)
        theirs = sa.tuple_(*(sa.literal(value, column.type) for value, column in zip(last, columns, strict=True)))
        return ours < theirs if order[0].descending else ours > theirs
    ways, same = list[sa.ColumnElement[bool]](), list[sa.ColumnElement[bool]]()
    for each, column, value in zip(order, columns, last, strict=True):
        ways.append(sa.and_(*same, _after(column, value, each.descending)))
        same.append(column.is_(None) if value is None else column == value)
    return sa.and_(_not_before(columns[0], last[0], order[0].descending), sa.or_(*ways))


def _after(column: sa.Column[Any], value: Any, descending: bool) -> sa.ColumnElement[bool]:
    if value is None:
        return sa.false() if descending else column.is_not(None)
    if not descending:
        return sa.and_(column > value)
    return sa.or_(column < value, column.is_(None)) if column.nullable else sa.and_(column < value)


def _not_before(column: sa.Column[Any], value: Any, descending: bool) -> sa.ColumnElement[bool]:
    """Return a redundant condition in a form that an index can answer."""
    if value is None or (descending and column.nullable):
        return sa.true()
    return sa.and_(column <= value if descending else column >= value)
