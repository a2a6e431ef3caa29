"""A schema, and the check of a content by it (docs/protocol.md, section 12.7).

Schemas are a small part of JSON Schema without references, patterns and combinations: the time of a
check grows only with the content's length, whatever the schema is.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from enc.core.primitives.encoding import MAX_INT
from enc.core.rules.manifest_common import quoted

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
MAX_VIOLATIONS = 8
"""Violations of one content that are listed. Without a limit, `required` could cost more than the
content is long."""

Number = int | float
Path = tuple[Any, str | int] | None
"""A place in a content: the place around it, and the key or index in that."""

_NAMES: dict[type, str] = {str: "string", list: "array", dict: "object"}


class Schema(Struct, frozen=True, kw_only=True):
    """One schema; every field is one keyword. None: no such keyword."""

    type: frozenset[str] = frozenset(TYPES)
    allowed: frozenset[tuple[str, Any]] | None = None
    """By `enum` or `const`."""
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    items: "Schema | None" = None
    properties: "Mapping[str, Schema]" = {}
    required: tuple[str, ...] = ()
    additional_properties: bool = True

    def violations(self, value: Any) -> tuple[str, ...]:
        """Return why a value from `strict_json` does not satisfy the schema; empty if it does."""
        found = _violations(self, value, None)
        return tuple(f"{_spelled(path)}{why}" for path, why in islice(found, MAX_VIOLATIONS))


def kind_of(value: Any) -> str:
    """Return a value's type; `number` for each number."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return _NAMES.get(type(value), "number")


def is_integer(value: Number) -> bool:
    """Return whether a number is an integer that every JSON reader holds exactly."""
    return abs(value) <= MAX_INT and value == int(value)


def _violations(schema: Schema, value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    kind = kind_of(value)
    if kind not in schema.type and not (kind == "number" and "integer" in schema.type and is_integer(value)):
        yield path, f"expected {' or '.join(name for name in TYPES if name in schema.type)}, not {quoted(value)}"
        return
    if schema.allowed is not None and (kind in ("array", "object") or (kind, value) not in schema.allowed):
        yield path, f"{quoted(value)} is not one of the allowed values"
    if kind == "number":
        yield from _bounds(schema, value, path)
    elif kind == "string":
        yield from _sizes(len(value), schema.min_length, schema.max_length, "characters", path)
    elif kind == "array":
        yield from _sizes(len(value), schema.min_items, schema.max_items, "items", path)
        if schema.items is not None:
            for i, item in enumerate(value):
                yield from _violations(schema.items, item, (path, i))
    elif kind == "object":
        yield from _object(schema, value, path)


def _bounds(schema: Schema, value: Number, path: Path) -> Iterator[tuple[Path, str]]:
    if schema.minimum is not None and value < schema.minimum:
        yield path, f"expected at least {schema.minimum}, not {value}"
    if schema.maximum is not None and value > schema.maximum:
        yield path, f"expected at most {schema.maximum}, not {value}"
    if schema.exclusive_minimum is not None and value <= schema.exclusive_minimum:
        yield path, f"expected more than {schema.exclusive_minimum}, not {value}"
    if schema.exclusive_maximum is not None and value >= schema.exclusive_maximum:
        yield path, f"expected less than {schema.exclusive_maximum}, not {value}"


def _sizes(size: int, least: int | None, most: int | None, unit: str, path: Path) -> Iterator[tuple[Path, str]]:
    if least is not None and size < least:
        yield path, f"expected at least {least} {unit}, not {size}"
    if most is not None and size > most:
        yield path, f"expected at most {most} {unit}, not {size}"


def _object(schema: Schema, value: dict[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    for name in schema.required:
        if name not in value:
            yield (path, name), "missing"
    for name, item in value.items():
        if name in schema.properties:
            yield from _violations(schema.properties[name], item, (path, name))
        elif not schema.additional_properties:
            yield (path, name), "unknown key"


def _spelled(path: Path) -> str:
    """Return a place as people write it, followed by a colon."""
    steps = list[str]()
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{key_text(step)}")
    return f"{''.join(reversed(steps)).removeprefix('.')}: " if steps else ""


def key_text(name: str) -> str:
    return name if name.isidentifier() and len(name) <= 64 else quoted(name)
