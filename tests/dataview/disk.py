"""Searches files for texts, in whatever form a lake or a database stores them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq


def files_with(root: Path, text: str) -> list[str]:
    """Return the files under a directory that hold the text, whether or not anything refers to them."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and _has(path, text))


def _has(path: Path, text: str) -> bool:
    """Return True if a file holds the text. Parquet files are read, because they are compressed."""
    data = path.read_bytes()
    if text.encode() in data:
        return True
    return data.startswith(b"PAR1") and _in_values(pq.read_table(path, partitioning=None).to_pylist(), text)


def _in_values(value: object, text: str) -> bool:
    if isinstance(value, dict):
        return _in_values([*value, *value.values()], text)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return any(_in_values(each, text) for each in value)
    return text in value if isinstance(value, str) else isinstance(value, bytes) and text.encode() in value
