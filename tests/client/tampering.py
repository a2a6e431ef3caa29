"""Changes every value of a JSON file in turn."""

import json
from collections.abc import Callable, Iterator
from typing import Any


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths of all strings and numbers in the JSON."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    elif value is not None:
        yield path


def changed(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1
    if len(value) >= 64:
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return value + "x"


def tampered(data: bytes, path: tuple[Any, ...], change: Callable[[Any], Any] = changed) -> bytes:
    whole = json.loads(data)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = change(inner[path[-1]])
    return json.dumps(whole).encode()
