"""Output of commands: JSON for programs; for people, tables on a terminal and plain lines elsewhere."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from enc.core.primitives.types import Withheld

Wire = Mapping[str, Any]
OutputRow = tuple[Wire, Sequence[str]]
"""One item: an object for programs, cells for people."""

TABLE = 1000
"""Rows of one table. A long answer is printed in several tables, so that its start shows early."""

GAP, MIN_LAST = 1, 16
"""Cells between two columns; least width of the last column, which is folded."""


class Output:
    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @cached_property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal and the output is not JSON."""
        may_be = sys.stdout.isatty() or "FORCE_COLOR" in os.environ  # else spare the import of rich
        return may_be and not self.as_json and bool(_console().is_terminal)

    def emit(self, wire: Wire, text: str) -> None:
        """Print an object for programs, or a text for people."""
        _print(_json(wire) if self.as_json else text)

    def note(self, text: str) -> None:
        """Print a remark for people on stderr; nothing with --json."""
        if not self.as_json:
            typer.echo(visible(text).encode(errors="backslashreplace"), err=True)

    def rows(self, columns: Sequence[str], rows: Iterable[OutputRow], *, cut: bool = False) -> None:
        """Print items: a line of JSON each, a table, or a line of tab-separated cells each.

        With `cut`, each row of the table is one line, and its last cell is cut at the line's end.
        """
        if not self.is_terminal:
            self.stream(rows)
            return
        for part in _parts(rows):
            _table(columns, part, cut)

    def stream(self, rows: Iterable[OutputRow]) -> None:
        """Print each item as soon as it arrives."""
        gap = "  " if self.is_terminal else "\t"
        for wire, cells in rows:
            _print(_json(wire) if self.as_json else gap.join(map(visible, cells)))


def _parts(rows: Iterable[OutputRow]) -> Iterator[list[OutputRow]]:
    rest = iter(rows)
    while part := list(islice(rest, TABLE)):
        yield part


def _table(columns: Sequence[str], rows: list[OutputRow], cut: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    if not cut and _is_narrow([columns, *(cells for _, cells in rows)]):
        for _, cells in rows:
            _print(fields(**dict(zip(columns, cells, strict=True))) + "\n")
        return
    table = Table(box=None, header_style="bold", pad_edge=False, expand=cut)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], no_wrap=cut, ratio=1 if cut else None)
    for _, cells in rows:
        table.add_row(*(Text(visible(cell)) for cell in cells))
    _console().print(table)


def _is_narrow(lines: Sequence[Sequence[str]]) -> bool:
    """Return whether the terminal is too narrow for all columns.

    Each row is then printed as several lines, so that no cell is lost.
    """
    widths = [max(len(visible(line[i])) + GAP for line in lines) for i in range(len(lines[0]))]
    return sum(widths[:-1]) + min(widths[-1], MIN_LAST) > int(_console().width)


def _console() -> Any:
    from rich.console import Console

    return Console(file=sys.stdout)


def _print(text: str) -> None:
    # Bytes: the output is UTF-8, whatever the terminal is set to.
    typer.echo(text.encode(errors="backslashreplace"))


def _json(wire: Wire) -> str:
    return json.dumps(wire, separators=(",", ":"))


def visible(text: str) -> str:
    """Return the text on one line, with control characters escaped, so that it cannot control a terminal."""
    return text if text.isprintable() else "\u200d".join(map(_escaped, _JOINER.split(text)))


_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_JOINER = re.compile(f"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])")
"""The zero-width joiner between two emoji. It is invisible elsewhere, and is escaped there."""


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def fields(**values: object) -> str:
    """Format names and values, one pair per line."""
    width = max(map(len, values))
    return "\n".join(f"{name:<{width}}  {visible(_plain(value))}" for name, value in values.items())


def _plain(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def format_time(ms: int) -> str:
    """Format Unix milliseconds as local time."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def withheld_text(reason: str, ts: int) -> str:
    """Return the words for a content that a node withholds, by its verified statement."""
    return f"withheld by the node since {format_time(ts)}: {reason}"


def wire_statement(statement: "Withheld | None") -> dict[str, Any] | None:
    """Return a node's statement about a withheld content as JSON; None without one."""
    from enc.core.log.withheld import wire_withheld

    return None if statement is None else wire_withheld(statement)


def short(id_: bytes) -> str:
    return f"{id_.hex()[:8]}…"
