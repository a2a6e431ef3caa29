"""Parquet files of a table, written and read without Spark, by the task or the driver that holds
the rows.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from enc.core.errors import MisuseError
from enc.dataview.lake.tables import NewFile, Table
from enc.dataview.rows.schema import arrow_schema

_REPEATED = ["enclave", "type", "author", "alg", "sequencer", "enc_v", "origin", "received_at", "code", "status"]
"""Columns with repeated values; for the others, dictionary encoding is a waste."""
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def write_file(table: Table, rows: pa.Table) -> NewFile:
    """Write rows with the table's columns to one file that is not in the table's log yet."""
    writer = ParquetWriter(table)
    writer.write(rows)
    return writer.close()


def read_files(table: Table, files: Sequence[NewFile]) -> pa.Table:
    """Return the rows of these files."""
    place, base = filesystem(table.path)
    found = [pq.read_table(f"{base}/{file.path}", filesystem=place) for file in files]
    return pa.concat_tables(each.cast(arrow_schema(table.spec.schema)) for each in found)


class ParquetWriter:
    """Writes one file of a table, part by part."""

    def __init__(self, table: Table) -> None:
        schema = arrow_schema(table.spec.schema)
        self._name = f"part-{secrets.token_hex(16)}.zstd.parquet"
        self._fs, base = filesystem(table.path)
        self._path, self._rows = f"{base}/{self._name}", 0
        self._stats = {name: _ColumnStats() for name in table.spec.stats}
        self._file = pq.ParquetWriter(
            self._fs.open_output_stream(self._path),
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in _REPEATED if name in schema.names],
            write_statistics=list(table.spec.stats),
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        self._file.write_table(rows)
        self._rows += rows.num_rows
        for name, seen in self._stats.items():
            seen.update(rows[name])

    def close(self) -> NewFile:
        self._file.close()
        self._file.file_handle.close() if self._file.file_handle is not None else None
        size = self._fs.get_file_info(self._path).size
        least = {name: seen.least for name, seen in self._stats.items() if seen.least is not None}
        most = {name: seen.most for name, seen in self._stats.items() if seen.most is not None}
        nulls = {name: seen.nulls for name, seen in self._stats.items()}
        stats = {
            "numRecords": self._rows,
            "minValues": {name: _stats_value(value, up=False) for name, value in least.items()},
            "maxValues": {name: _stats_value(value, up=True) for name, value in most.items()},
            "nullCount": nulls,
        }
        return NewFile(self._name, size, msgspec.json.encode(stats).decode())


class _ColumnStats:
    """The minimum and maximum of a column."""

    least: Any = None
    most: Any = None
    nulls = 0

    def update(self, column: pa.ChunkedArray) -> None:
        self.nulls += column.null_count
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self.least = found["min"] if self.least is None else min(self.least, found["min"])
            self.most = found["max"] if self.most is None else max(self.most, found["max"])


def _stats_value(value: Any, *, up: bool) -> Any:
    """Return a value in the form of Delta's statistics.

    Times are in whole milliseconds; `up` rounds up, so that the maximum is not too small.
    """
    if not isinstance(value, datetime):
        return value
    value = value.astimezone(UTC) + timedelta(microseconds=999 if up else 0)
    return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system and path of an address: the local disk, or any file system Arrow
    supports.
    """
    scheme, colon, rest = path.partition(":")
    if not colon or len(scheme) == 1 or "/" in scheme:
        return pafs.LocalFileSystem(), path
    try:
        found, base = pafs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
    except (pa.ArrowException, OSError, ValueError) as e:
        raise MisuseError(f"{path}: cannot be written to: {e}") from None
    return found, base
