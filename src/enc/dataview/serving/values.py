"""Conversion of wire values: from text in a query, from JSON in a cursor, and to JSON and CSV."""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from msgspec import Raw

from enc.core.errors import InvalidFilter
from enc.dataview.serving.columns import Column, ColumnKind, iso, micros

MAX_VALUE = 4096
"""Most characters of one value in a query."""
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DOUBLE = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_HEX = re.compile(r"([0-9a-f]{2})*", re.ASCII)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_INT_64 = 1 << 63
_MAX_MS = 253_402_300_800_000
"""The year 10,000, in Unix milliseconds."""


def parse(column: Column, text: str) -> Any:
    """Parse text into the database form of this column; InvalidFilter if it is not valid."""
    if len(text) > MAX_VALUE:
        raise InvalidFilter(f"{column.name}: a value has at most {MAX_VALUE} characters")
    value = _parsed(column.kind, text)
    if value is None:
        raise InvalidFilter(f"{column.name}: expected {_EXPECTED[column.kind]}")
    return value


_EXPECTED: dict[ColumnKind, str] = {
    "string": "a text",
    "integer": "an integer of 64 bits",
    "double": "a number",
    "boolean": "true or false",
    "timestamp": "a time as 2026-01-31T12:00:00Z, or in Unix milliseconds",
    "date": "a date as 2026-01-31",
    "binary": "lower-case hex",
    "json": "a text",
}


def _parsed(kind: ColumnKind, text: str) -> Any:
    if kind == "integer":
        return integer(text)
    if kind == "double":
        return _finite(float(text)) if len(text) <= 64 and _DOUBLE.fullmatch(text) else None
    if kind == "boolean":
        return _BOOLEANS.get(text)
    if kind == "timestamp":
        return _moment(text)
    if kind == "date":
        return _day(text)
    if kind == "binary":
        return bytes.fromhex(text) if _HEX.fullmatch(text) else None
    return text


def integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or not -_INT_64 <= int(text) < _INT_64:
        return None
    return int(text)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _moment(text: str) -> int | None:
    """Parse a time. Without a zone it is UTC. An unescaped "+" in a URL arrives as a space."""
    number = integer(text)
    if number is not None:
        return number * 1000 if 0 <= number < _MAX_MS else None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return micros(moment.astimezone(UTC) if moment.tzinfo else moment)
    except (ValueError, OverflowError):
        return None


def _day(text: str) -> str | None:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


# Cursors


_TYPES: dict[ColumnKind, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "double": (float, int),
    "boolean": (bool,),
    "timestamp": (int,),
    "date": (str,),
    "binary": (str,),
}


def to_cursor(column: Column, value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def from_cursor(column: Column, value: Any) -> Any:
    """Return the value of a cursor; ValueError if it cannot be in this column."""
    if value is None:
        return None
    is_fit = isinstance(value, _TYPES[column.kind]) and isinstance(value, bool) == (column.kind == "boolean")
    if not is_fit:
        raise ValueError
    if isinstance(value, int) and not -_INT_64 <= value < _INT_64:
        raise ValueError
    if column.kind == "timestamp":
        iso(value)
    return bytes.fromhex(value) if column.kind == "binary" else value


# Answers


JSON: dict[ColumnKind, Callable[[Any], Any]] = {
    "timestamp": iso,
    "binary": bytes.hex,
    "json": lambda text: Raw(text.encode()),
    "double": _finite,
}
"""How a non-null value is written in JSON; other kinds are written as they are in memory."""


def to_csv(kind: ColumnKind, value: Any) -> Any:
    if value is None:
        return ""
    if kind == "boolean":
        return "true" if value else "false"
    return value if kind in ("json", *_AS_THEY_ARE) else JSON[kind](value)


_AS_THEY_ARE = ("string", "integer", "date")
