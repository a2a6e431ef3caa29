"""Mutations of every position of a JSON file, as a liar or a bad disk might make them. Seeded, so
each run is the same.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

Path = tuple[Any, ...]
_WRONG: tuple[Any, ...] = (None, [], {}, True, -1, 0, 1.5, "", "zz", 2**53 - 1, 2**53, 2**60, 10**30)


def mutated(data: bytes, others: list[bytes], seed: str) -> Iterator[bytes]:
    """Yield all single changes of a file, and replacements by parts of other files."""
    whole, random = json.loads(data), Random(seed)
    for path in [*_places(whole)]:
        value = _at(whole, path)
        for wrong in _variants(value, random):
            yield _with(whole, path, wrong)
        yield _without(whole, path)
    sources = [json.loads(other) for other in others]
    for source in sources:
        for path in _places(whole):
            if (found := _at(source, path, None)) is not None and found != _at(whole, path):
                yield _with(whole, path, found)
    for n in sorted(random.sample(range(len(data)), 8)):
        yield data[:n]
        yield data[:n] + bytes([data[n] ^ (1 << random.randrange(7))]) + data[n + 1 :]


def _variants(value: Any, random: Random) -> Iterator[Any]:
    if isinstance(value, str):
        yield from _texts(value, random)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (value + 1, value - 1, value * 2, float(value), str(value))
    elif isinstance(value, list):
        yield from (value[1:], value[:-1], [*value, *value[-1:]], value[::-1], [*value, None])
    for wrong in _WRONG:
        if wrong != value or type(wrong) is not type(value):
            yield wrong


def _texts(value: str, random: Random) -> Iterator[str]:
    yield from (value + "0", value + "00", value[:-1], value[2:], value.upper(), value[::-1], f" {value}")
    if len(value) >= 42 and all(c in "0123456789abcdef" for c in value):
        for n in (0, len(value) - 1, random.randrange(len(value))):
            yield value[:n] + f"{int(value[n], 16) ^ (1 << random.randrange(4)):x}" + value[n + 1 :]
        yield "0" * len(value)
        yield "f" * len(value)


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(each, (*path, key))


def _at(value: Any, path: Path, *absent: Any) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return absent[0]
    return value


def _with(whole: Any, path: Path, value: Any) -> bytes:
    copy = deepcopy(whole)
    _at(copy, path[:-1])[path[-1]] = value
    return json.dumps(copy, ensure_ascii=len(path) % 2 == 0).encode()


def _without(whole: Any, path: Path) -> bytes:
    copy = deepcopy(whole)
    del _at(copy, path[:-1])[path[-1]]
    return json.dumps(copy).encode()
