"""A query: parses filters, order, limit and cursor from a URL's parameters and turns them into SQL.

Only bound values, and names of the view's own columns, reach SQL.

    ?author=ab…&timestamp.ge=2026-01-01&order=-timestamp&limit=50&select=id,content&cursor=…

A filter is COLUMN=VALUE or COLUMN.OP=VALUE; all must hold. A column with the name of a parameter is
filtered as COLUMN.eq=VALUE.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args

import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import InvalidFilter, InvalidQuery
from enc.dataview.serving import cursor, values
from enc.dataview.serving.columns import Column, ColumnKind, ViewSchema

Op = Literal["eq", "ne", "lt", "le", "gt", "ge", "in", "null", "prefix", "contains"]
OPS: tuple[str, ...] = get_args(Op)
ORDERINGS = ("eq", "ne", "lt", "le", "gt", "ge")
_EQUAL: tuple[Op, ...] = ("eq", "ne", "in", "null")
_ORDERED: tuple[Op, ...] = (*_EQUAL, "lt", "le", "gt", "ge")
ALLOWED: dict[ColumnKind, tuple[Op, ...]] = {
    "string": (*_ORDERED, "prefix", "contains"),
    "integer": _ORDERED,
    "double": _ORDERED,
    "boolean": _EQUAL,
    "timestamp": _ORDERED,
    "date": (*_ORDERED, "prefix"),
    "binary": _EQUAL,
    "json": ("null", "contains"),
}

PARAMETERS = ("select", "order", "limit", "cursor", "format", "verify")
DEFAULT_LIMIT, MAX_LIMIT = 100, 10_000
MAX_FILTERS, MAX_IN, MAX_ORDER = 32, 256, 8


class ColumnFilter(Struct, frozen=True):
    column: Column
    op: Op
    value: Any


class Query(Struct, frozen=True, kw_only=True):
    view: ViewSchema
    select: tuple[Column, ...]
    filters: tuple[ColumnFilter, ...]
    order: tuple[cursor.Order, ...]
    """Ends with the key, so that the order is total."""
    limit: int
    after: tuple[Any, ...] | None = None
    """The values of `order` in the last row of the page before."""

    @property
    def fingerprint(self) -> str:
        """The id that all pages of one query share."""
        return cursor.fingerprint(self.view.name, self.order, [(f.column.name, f.op, f.value) for f in self.filters])

    def enclaves(self) -> list[str] | None:
        """Return the enclaves that the filters name; None if they name none."""
        for found in self.filters:
            if found.column.name == "enclave" and found.op in ("eq", "in"):
                return [found.value] if found.op == "eq" else list(found.value)
        return None


def parse(view: ViewSchema, parameters: Iterable[tuple[str, str]]) -> Query:
    """Parse a query. InvalidQuery or InvalidFilter names what is wrong."""
    plain, rest = _split_parameters(parameters)
    filters = tuple(_filter(view, name, text) for name, text in rest.items())
    query = Query(
        view=view,
        select=_select(view, plain.get("select")),
        filters=filters,
        order=_order(view, plain.get("order", "")),
        limit=_limit(plain.get("limit")),
    )
    if "cursor" not in plain:
        return query
    return replace(query, after=cursor.parse(plain["cursor"], query.order, query.fingerprint))


def _split_parameters(parameters: Iterable[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    plain, rest = dict[str, str](), dict[str, str]()
    for name, text in parameters:
        where = plain if name in PARAMETERS else rest
        if name in where:
            raise InvalidQuery(f"{_escaped(name)}: given twice; for one of several values: COLUMN.in=A,B")
        where[name] = text
    if len(rest) > MAX_FILTERS:
        raise InvalidQuery(f"a query has at most {MAX_FILTERS} filters")
    return plain, rest


def _escaped(name: str) -> str:
    """Return untrusted text for an error message: short, and without control characters."""
    return ascii(name[:64])[1:-1]


def _column(view: ViewSchema, name: str, error: type[InvalidQuery] | type[InvalidFilter]) -> Column:
    column = view.column(name)
    if column is None:
        known = ", ".join(column.name for column in view.columns)
        raise error(f"{view.name} has no column {_escaped(name)}; it has {known}")
    return column


def _filter(view: ViewSchema, name: str, text: str) -> ColumnFilter:
    name, dot, op = name.partition(".")
    column = _column(view, name, InvalidFilter)
    op = op if dot else "eq"
    if op not in OPS or op not in ALLOWED[column.kind]:
        raise InvalidFilter(f"{name}: expected one of {', '.join(ALLOWED[column.kind])}, not {_escaped(op)}")
    return ColumnFilter(column, op, _value(column, op, text))


def _value(column: Column, op: str, text: str) -> Any:
    if op == "null":
        if text not in ("true", "false", "1", "0"):
            raise InvalidFilter(f"{column.name}.null: expected true or false")
        return text in ("true", "1")
    if op == "in":
        parts = text.split(",")
        if len(parts) > MAX_IN:
            raise InvalidFilter(f"{column.name}.in: at most {MAX_IN} values")
        return tuple(values.parse(column, part) for part in parts)
    if op in ("prefix", "contains"):
        return values.parse(Column(column.name, "string"), text)
    return values.parse(column, text)


def _select(view: ViewSchema, text: str | None) -> tuple[Column, ...]:
    if text is None:
        return view.columns
    names = text.split(",")
    if len(set(names)) != len(names):
        raise InvalidQuery("select: a column is named twice")
    return tuple(_column(view, name, InvalidQuery) for name in names[: len(view.columns) + 1])


def _order(view: ViewSchema, text: str) -> tuple[cursor.Order, ...]:
    """Parse the order: columns, `-` for descending; then the key, in the direction of the last
    column.
    """
    names = text.split(",") if text else []
    if len(names) > MAX_ORDER:
        raise InvalidQuery(f"order: at most {MAX_ORDER} columns")
    order = [cursor.Order(_column(view, name.removeprefix("-"), InvalidQuery), name.startswith("-")) for name in names]
    given = [each.column.name for each in order]
    if len(set(given)) != len(given):
        raise InvalidQuery("order: a column is named twice")
    for each in order:
        if each.column.kind == "json":
            raise InvalidQuery(f"order: {each.column.name} is JSON, which has no order")
    descending = bool(order) and order[-1].descending
    rest = (column for name in view.key if name not in given and (column := view.column(name)))
    return (*order, *(cursor.Order(column, descending, is_key=True) for column in rest))


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    number = values.integer(text)
    if number is None or not 1 <= number <= MAX_LIMIT:
        raise InvalidQuery(f"limit: expected 1 to {MAX_LIMIT}")
    return number


# To SQL


def statement(query: Query, table: sa.Table, dialect: str, also: Sequence[str] = ()) -> sa.Select[Any]:
    """Return the SQL statement, with one extra row that shows whether there is another page.

    Columns: those selected, those of the order, and `also`; each once.
    """
    names = [*(c.name for c in query.select), *(o.column.name for o in query.order), *also]
    found = sa.select(*(table.c[name] for name in dict.fromkeys(names)))
    found = found.where(*(_condition(each, table.c[each.column.name], dialect) for each in query.filters))
    if query.after is not None:
        found = found.where(cursor.rows_after(query.order, query.after, table))
    return found.order_by(*(each.sql(table) for each in query.order)).limit(query.limit + 1)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {name: getattr(operator, name) for name in ORDERINGS}


def _condition(found: ColumnFilter, column: sa.ColumnElement[Any], dialect: str) -> sa.ColumnElement[bool]:
    value = found.value
    if found.op == "null":
        return column.is_(None) if value else column.is_not(None)
    if found.op == "in":
        return column.in_(value)
    if found.op == "contains":  # LIKE ignores case in one of the databases
        place = sa.func.strpos if dialect == "postgresql" else sa.func.instr
        return place(column, sa.literal(value, column.type)) > 0
    if found.op == "prefix":
        end = _end(value)
        return column >= value if end is None else sa.and_(column >= value, column < end)
    return _COMPARE[found.op](column, value)  # type: ignore[no-any-return]


def _end(prefix: str) -> str | None:
    """Return the first text after all texts that start with `prefix`; None if there is none."""
    kept = prefix.rstrip(chr(0x10FFFF))
    if not kept:
        return None
    last = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if last == 0xD800 else last)
