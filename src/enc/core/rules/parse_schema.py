"""Parses a schema; an error names the path of the fault (docs/protocol.md, section 12.7)."""

from collections.abc import Callable
from typing import Any, cast

from enc.core.rules.content_schema import TYPES, Number, Schema, key_text, kind_of
from enc.core.rules.manifest_common import quoted, refuse


def parse_schema(given: Any, path: str) -> Schema:
    """Return the schema that a value from `strict_json` describes; raise InvalidCommit, which names
    the place, for any other value."""
    if not isinstance(given, dict):
        refuse(path, "expected an object: a schema")
    fields = dict[str, Any]()
    for keyword, value in given.items():
        if keyword not in _KEYWORDS:
            refuse(f"{path}.{key_text(keyword)}", f"unknown keyword; expected one of {', '.join(_KEYWORDS)}")
        field, read = _KEYWORDS[keyword]
        found = read(value, f"{path}.{keyword}")
        fields[field] = found & fields[field] if field == "allowed" and field in fields else found
    fields.pop("", None)
    return Schema(**fields)


def _types(value: Any, path: str) -> frozenset[str]:
    named = value if isinstance(value, list) else [value]
    if not named or any(each not in TYPES for each in named):
        refuse(path, f"expected one or several of {', '.join(TYPES)}, not {quoted(value)}")
    return frozenset(named)


def _enum(value: Any, path: str) -> frozenset[tuple[str, Any]]:
    if not isinstance(value, list) or not value:
        refuse(path, "expected a list of values")
    return frozenset(_scalar(each, path) for each in value)


def _scalar(value: Any, path: str) -> tuple[str, Any]:
    """Return a value and its kind, so that 1 and true differ, and 1 and 1.0 do not."""
    if isinstance(value, dict | list):
        refuse(path, "expected strings, numbers, booleans or null")
    return kind_of(value), value


def _number(value: Any, path: str) -> Number:
    if kind_of(value) != "number":
        refuse(path, f"expected a number, not {quoted(value)}")
    return cast(Number, value)


def _size(value: Any, path: str) -> int:
    if type(value) is not int or value < 0:
        refuse(path, f"expected a whole number from 0, not {quoted(value)}")
    return value


def _properties(value: Any, path: str) -> dict[str, Schema]:
    if not isinstance(value, dict):
        refuse(path, "expected an object: a schema for each key")
    return {name: parse_schema(schema, f"{path}.{key_text(name)}") for name, schema in value.items()}


def _required(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
        refuse(path, "expected a list of keys")
    return tuple(dict.fromkeys(value))


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        refuse(path, "expected true or false")
    return value


def _comment(value: Any, path: str) -> None:
    if not isinstance(value, str):
        refuse(path, "expected a text")


_KEYWORDS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "type": ("type", _types),
    "enum": ("allowed", _enum),
    "const": ("allowed", lambda value, path: frozenset([_scalar(value, path)])),
    "minimum": ("minimum", _number),
    "maximum": ("maximum", _number),
    "exclusiveMinimum": ("exclusive_minimum", _number),
    "exclusiveMaximum": ("exclusive_maximum", _number),
    "minLength": ("min_length", _size),
    "maxLength": ("max_length", _size),
    "minItems": ("min_items", _size),
    "maxItems": ("max_items", _size),
    "items": ("items", parse_schema),
    "properties": ("properties", _properties),
    "required": ("required", _required),
    "additionalProperties": ("additional_properties", _flag),
    "title": ("", _comment),
    "description": ("", _comment),
}
"""By keyword: the field of Schema, and how the keyword's value is read."""
