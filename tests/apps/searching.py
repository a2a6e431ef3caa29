"""Searches everything that a node stores and logs for plaintexts and secrets."""

import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.node.running import RunningNode

PART = 16
"""The searched data is cut into parts of this size: a spelling of twice the size fills one,
wherever it is.
"""


def spellings(secret: bytes) -> set[bytes]:
    """Return the spellings of bytes; of base64, the part that does not depend on the offset."""
    shifted = {b64encode(bytes(i) + secret)[4 * (i > 0) : (i + len(secret)) // 3 * 4] for i in range(3)}
    return {secret, secret.hex().encode(), secret.hex().upper().encode(), *(each for each in shifted if len(each) > 8)}


class Search:
    """Searches for many secrets at once, by name, in any spelling."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        forms = [(form, name) for name, secret in secrets.items() for form in spellings(secret)]
        self._short = [(form, name) for form, name in forms if len(form) < 2 * PART - 1]
        long = [(form, name) for form, name in forms if len(form) >= 2 * PART - 1]
        self._parts = {form[i : i + PART]: name for form, name in long for i in range(len(form) - PART + 1)}

    def __call__(self, data: bytes) -> set[str]:
        """Return the names of those that occur."""
        parts = (data[i : i + PART] for i in range(0, len(data), PART))
        hits = {self._parts[part] for part in parts if part in self._parts}
        return hits | {name for form, name in self._short if form in data}


def kept(node: RunningNode) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the node, its logs, and every value in its databases."""
    for path in [*node.data.rglob("*"), node.stderr]:
        if not path.is_file():
            continue
        yield path.name, path.read_bytes()
        if path.suffix == ".db":
            yield from values(path)


def values(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each value whole: in the file it may span several pages."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                yield f"{path.name}: {table}", b"\0".join(map(_raw, row))


def _raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def found(nodes: list[RunningNode], secrets: Mapping[str, bytes]) -> set[str]:
    """Return the names of those that occur anywhere in any spelling, and where."""
    search = Search(secrets)
    return {f"{name} in {where}" for node in nodes for where, data in kept(node) for name in search(data)}
