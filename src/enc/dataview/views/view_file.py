"""The file format of a view: SQL under a header of comments. Pure; no Spark.

-- name: posts_per_author            (default: the file's name)
-- description: Posts by author.
-- key: author
-- refresh: by author from timeline  (see Refresh)
-- where: content IS NOT NULL        (rows of the source that concern the view)
-- reads: timeline                   (default: every known name that the SQL uses)
-- test: not_null(author)
-- test: unique(author)
SELECT author, count(*) AS posts FROM timeline GROUP BY author
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from enc.core.errors import MisuseError

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
MAX_FILE = 1 << 20
APPENDED = ("events", "raw_events", "tags", "quarantine")
"""Append-only tables: an incremental view can follow these."""
RETAINED = ("raw_events", "quarantine")
"""Those of which retention may have removed old rows, so that a view may hold more than they do."""

_HEADER = re.compile(r"--\s*([a-z]+)\s*:\s*(.*?)\s*")
_CHECK = re.compile(r"(not_null|unique|accepted)\(\s*([^()]*?)\s*\)")
_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELDS = (
    "name",
    "description",
    "key",
    "refresh",
    "where",
    "add",
    "least",
    "greatest",
    "reads",
    "test",
    "type",
    "schema",
)
_REFRESH = re.compile(r"(full)|(incremental|append)(?: from (\w+))?|by (.+) from (\w+)")
_BY = re.compile(r"(\w+)(?: as (\w+))?")


class Check(Struct, frozen=True):
    """A test of a view's rows.

    It is `not_null` or `unique` over columns, or `accepted`: a column and its allowed values.
    """

    kind: Literal["not_null", "unique", "accepted"]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(self.words)})"


RefreshKind = Literal["full", "incremental", "append", "by"]


class Refresh(Struct, frozen=True):
    """How a view follows its inputs.

    full             recomputed from everything when an input has changed
    incremental      the SQL sees only the new rows of `source`; the result is merged by key
    append           the same, but the result is appended: its keys are new
    by               the groups of rows that changed in `source` are recomputed
    """

    kind: RefreshKind = "full"
    source: str = ""
    by: tuple[tuple[str, str], ...] = ()
    """The columns that identify a group: their name in the source, and in the view."""


class View(Struct, frozen=True, kw_only=True):
    """A view: `sql`, or a `function` of DataFrames whose parameters name the tables it reads."""

    name: str
    key: tuple[str, ...]
    description: str = ""
    layer: Literal["silver", "gold", "views"] = "views"
    refresh: Refresh = Refresh()
    where: str = ""
    """Only rows of the source that satisfy this condition concern the view."""
    add: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    tests: tuple[Check, ...] = ()
    sql: str | None = None
    function: Callable[..., Any] | None = None
    basis: str = ""
    """What the function's rows depend on besides the tables."""

    @property
    def combined(self) -> tuple[str, ...]:
        """Columns that are combined with the existing row's value."""
        return (*self.add, *self.least, *self.greatest)

    @property
    def definition(self) -> str:
        """The definition of the view's rows, without comments."""
        lines = [line for line in (self.sql or "").splitlines() if not line.lstrip().startswith("--")]
        more: list[object] = [self.basis] if self.basis else []
        more += [self.add, self.least, self.greatest] if self.combined else []
        return repr((self.key, self.refresh.kind, self.refresh.source, self.refresh.by, self.where, lines, *more))

    def inputs(self, known: Iterable[str]) -> tuple[str, ...]:
        """Return the tables and views that it reads, among the known ones."""
        if self.reads is not None:
            return self.reads
        words = sql_words(self.sql or "")
        return tuple(name for name in known if name in words and name != self.name)


def sql_words(sql: str) -> set[str]:
    """Return the words of SQL text in lower case (Spark ignores case), except in comments and
    strings.
    """
    return set(_WORD.findall(_NOISE.sub(" ", sql).lower()))


def parse_view(text: str, stem: str, layer: Literal["silver", "gold", "views"] = "views") -> View:
    """Parse the view in the file `stem`.sql. MisuseError names the line and what is wrong with it."""
    said = view_header(text, stem)
    one = {name: values[-1] for name, values in said.items()}
    view = View(
        name=one.get("name", stem),
        key=split_list(one.get("key", "")),
        description=one.get("description", ""),
        layer=layer,
        refresh=parse_refresh(one.get("refresh", "full"), stem),
        where=one.get("where", ""),
        add=split_list(one.get("add", "")),
        least=split_list(one.get("least", "")),
        greatest=split_list(one.get("greatest", "")),
        reads=split_list(one["reads"]) if "reads" in one else None,
        tests=tuple(parse_check(test, stem) for test in said.get("test", ())),
        sql=text,
    )
    check_view(view)
    return view


def view_header(text: str, stem: str) -> Mapping[str, list[str]]:
    """Return the values of a header by name; only a `test` may be given several times."""
    said: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("--"):
            break
        found = _HEADER.fullmatch(line.strip())
        if found is None:
            continue
        name, value = found.groups()
        if name not in _FIELDS:
            raise MisuseError(f"{stem}.sql, line {number}: {name}: expected one of {', '.join(_FIELDS)}")
        if name in said and name != "test":
            raise MisuseError(f"{stem}.sql, line {number}: {name}: given twice")
        said.setdefault(name, []).append(value)
    return said


def split_list(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_refresh(text: str, where: str) -> Refresh:
    found = _REFRESH.fullmatch(" ".join(text.split()))
    if found is None:
        expected = "full, incremental from a table, append from a table, or by columns from a table"
        raise MisuseError(f"{where}: refresh: {text[:60]}: expected {expected}")
    _, kind, table, columns, source = found.groups()
    if kind is not None:
        return Refresh("append" if kind == "append" else "incremental", table or "events")
    return Refresh("by", source, tuple(_by(column, where) for column in split_list(columns))) if columns else Refresh()


def _by(column: str, where: str) -> tuple[str, str]:
    found = _BY.fullmatch(column)
    if found is None:
        raise MisuseError(f"{where}: refresh: by {column[:60]}: expected a column, or: column as the view's column")
    return found[1], found[2] or found[1]


def parse_check(text: str, where: str) -> Check:
    found = _CHECK.fullmatch(text)
    named = split_list(found[2]) if found else ()
    if found is None or not named or (found[1] == "accepted" and len(named) < 2):
        expected = "not_null(column), unique(column, …) or accepted(column, value, …)"
        raise MisuseError(f"{where}: test: {text[:60]}: expected {expected}")
    return Check(found[1], named)  # type: ignore[arg-type]


def check_view(view: View) -> None:
    if not NAME.fullmatch(view.name):
        raise MisuseError(
            f"{view.name[:60]!r}: a view's name has lower-case letters, digits and _, at most 63 characters"
        )
    if not view.key:
        raise MisuseError(f"view {view.name}: key: missing; name the columns that identify a row")
    _check_refresh(view)


def _check_refresh(view: View) -> None:
    refresh, combined = view.refresh, view.combined
    if combined and refresh.kind != "incremental":
        raise MisuseError(f"view {view.name}: add, least, greatest: only for incremental views")
    if len({*combined, *view.key}) != len(combined) + len(view.key):
        raise MisuseError(f"view {view.name}: key, add, least, greatest: a column is named twice")
    if refresh.kind == "full":
        if view.where:
            raise MisuseError(f"view {view.name}: where: not for full views; put the condition into the SQL")
        return
    if refresh.kind != "by" and refresh.source not in APPENDED:
        raise MisuseError(f"view {view.name}: refresh: {refresh.kind} needs one of {', '.join(APPENDED)} as its source")
    other = [name for _, name in refresh.by if name not in view.key]
    if other:
        raise MisuseError(f"view {view.name}: refresh: by {', '.join(other)}: expected columns of its key")
    if refresh.source not in (sql_words(view.sql or "") if view.reads is None else view.reads):
        raise MisuseError(f"view {view.name}: refresh: from {refresh.source}, which the view does not read")


def sort_by_dependency(views: Iterable[View], tables: Iterable[str]) -> list[View]:
    """Sort views so that each follows the views it reads. MisuseError on duplicate names or cycles."""
    tables, by_name = tuple(tables), dict[str, View]()
    for view in views:
        if view.name in tables or view.name in by_name:
            raise MisuseError(f"view {view.name}: a table or view of this name exists already")
        by_name[view.name] = view
    known = (*tables, *by_name)
    found: dict[str, View] = {}

    def visit(view: View, path: tuple[str, ...]) -> None:
        if view.name in path:
            raise MisuseError(f"views read each other in a cycle: {' -> '.join((*path, view.name))}")
        source = (view.refresh.source,) if view.refresh.source else ()
        for name in (*view.inputs(known), *source):
            if name not in known:
                raise MisuseError(f"view {view.name}: reads: no such table or view: {name[:60]}")
            if name in by_name and name not in found:
                visit(by_name[name], (*path, view.name))
        found[view.name] = view

    for view in by_name.values():
        if view.name not in found:
            visit(view, ())
    return list(found.values())
