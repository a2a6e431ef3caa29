"""Looking for plaintexts and secrets in everything that a node keeps and logs."""

import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.node.running import RunningNode


def spellings(secret: bytes) -> set[bytes]:
    """The ways in which bytes are written down; of base64 what does not depend on where it begins."""
    shifted = {b64encode(bytes(i) + secret)[4:-4] for i in range(3)}
    return {secret, secret.hex().encode(), secret.hex().upper().encode(), *(each for each in shifted if len(each) > 8)}


def kept(node: RunningNode) -> Iterator[tuple[str, bytes]]:
    """Every file of the node's as it lies on disk, what it has logged, and every value in its databases."""
    for path in [*node.data.rglob("*"), node.stderr]:
        if not path.is_file():
            continue
        yield path.name, path.read_bytes()
        if path.suffix == ".db":
            yield from values(path)


def values(path: Path) -> Iterator[tuple[str, bytes]]:
    """A value may lie on several pages of the file: here each is whole."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608
                yield f"{path.name}: {table}", b"\0".join(map(_raw, row))


def _raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def found(nodes: list[RunningNode], secrets: dict[str, bytes]) -> set[str]:
    """The names of those that stand anywhere, in any spelling, and where."""
    wanted = {name: spellings(secret) for name, secret in secrets.items()}
    hits = set[str]()
    for node in nodes:
        for where, data in kept(node):
            hits |= {f"{name} in {where}" for name, ways in wanted.items() if any(way in data for way in ways)}
    return hits
