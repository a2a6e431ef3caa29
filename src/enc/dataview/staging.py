"""Rows on their way into the lake: written as Parquet by the task that reads and verifies them, in one pass.

A batch then is a few rows that name these files (FILES), with what is in them at a glance; the driver adds the files to
the tables of `Lake`, each in one commit. Files of a task that died, or of a batch that is done again, are named by
nobody, and `vacuum` removes them.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from enc.core.errors import MisuseError
from enc.dataview.lake import SPECS, Lake
from enc.dataview.schema import EVENTS, NUMBER, QUARANTINE, RAW, TEXT, arrow
from enc.dataview.seen import Glance, summed, together
from enc.dataview.tables import NewFile
from enc.dataview.verify import verify_batch

FILES = StructType(
    [
        StructField("table", TEXT),
        StructField("path", TEXT),
        StructField("size", NUMBER),
        StructField("stats", TEXT),
        StructField("glance", BinaryType()),
    ]
)
"""A file, relative to its table; or, without a table, the glance at all that a task has read."""

_ARROW = arrow(FILES)
_SCHEMAS = {"raw_events": arrow(RAW), "events": arrow(EVENTS), "quarantine": arrow(QUARANTINE)}
_REPEATED = ["enclave", "type", "author", "alg", "sequencer", "enc_v", "origin", "received_at", "code"]
"""Columns in which values come again and again; of the others, looking for repeats is a waste."""
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


class Staged(Struct, frozen=True):
    """What a batch brings: files by table, and what is in them."""

    files: Mapping[str, list[NewFile]]
    glance: Glance


def staged(raw: DataFrame, root: str, *, check: bool = True) -> DataFrame:
    """Rows of FILES, of raw rows that some source has brought."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batches, root, check=check)

    return raw.select(*RAW.fieldNames()).mapInArrow(write, FILES)


def gathered(files: DataFrame) -> Staged:
    """All that a batch brings; this does the work."""
    found: dict[str, list[NewFile]] = {}
    glances: list[Glance] = []
    for row in files.collect():
        if row["table"] is None:
            glances.append(msgspec.msgpack.decode(row["glance"], type=Glance))
        else:
            found.setdefault(row["table"], []).append(NewFile(row["path"], row["size"], row["stats"]))
    return Staged(found, together(glances))


def stage(batches: Iterable[pa.RecordBatch], root: str, *, check: bool) -> Iterator[pa.RecordBatch]:
    """Verify raw rows and write them where they belong. One Arrow batch at a time is held."""
    writers, glances = dict[str, _Writer](), list[Glance]()
    try:
        for raw in batches:
            rows = verify_batch(raw, check=check)
            glances.append(summed(rows))
            for name, part in _parted(raw, rows):
                if part.num_rows:
                    if name not in writers:
                        writers[name] = _Writer(root, name)
                    writers[name].write(part)
    finally:
        files = [writer.close() for writer in writers.values()]
    said = [(name, *file, None) for name, file in zip(writers, files, strict=True)]
    rows_ = [*said, (None, None, None, None, msgspec.msgpack.encode(together(glances)))]
    columns = zip(*rows_, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _parted(raw: pa.RecordBatch, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
    yield "raw_events", pa.Table.from_batches([raw])
    verified = pa.Table.from_batches([rows])
    good = pc.is_null(verified["code"])
    if pc.all(good).as_py():
        yield "events", verified.select(EVENTS.fieldNames())
    else:
        yield "events", verified.filter(good).select(EVENTS.fieldNames())
        yield "quarantine", verified.filter(pc.invert(good)).select(QUARANTINE.fieldNames())


class _Writer:
    """One file of a table."""

    def __init__(self, root: str, table: str) -> None:
        path = Lake(root)[table].path
        self._name = f"part-{secrets.token_hex(16)}.zstd.parquet"
        self._fs, base = filesystem(path)
        self._path, self._rows = f"{base}/{self._name}", 0
        self._stats = {name: _Range() for name in SPECS[table].stats}
        self._file = pq.ParquetWriter(
            self._fs.open_output_stream(self._path),
            _SCHEMAS[table],
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in _REPEATED if name in _SCHEMAS[table].names],
            write_statistics=list(SPECS[table].stats),
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        self._file.write_table(rows)
        self._rows += rows.num_rows
        for name, seen in self._stats.items():
            seen.take(rows[name])

    def close(self) -> tuple[str, int, str]:
        self._file.close()
        self._file.file_handle.close() if self._file.file_handle is not None else None
        size = self._fs.get_file_info(self._path).size
        least = {name: seen.least for name, seen in self._stats.items() if seen.least is not None}
        most = {name: seen.most for name, seen in self._stats.items() if seen.most is not None}
        nulls = {name: seen.nulls for name, seen in self._stats.items()}
        stats = {
            "numRecords": self._rows,
            "minValues": {name: _told(value, up=False) for name, value in least.items()},
            "maxValues": {name: _told(value, up=True) for name, value in most.items()},
            "nullCount": nulls,
        }
        return self._name, size, msgspec.json.encode(stats).decode()


class _Range:
    """The least and greatest value of a column."""

    least: Any = None
    most: Any = None
    nulls = 0

    def take(self, column: pa.ChunkedArray) -> None:
        self.nulls += column.null_count
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self.least = found["min"] if self.least is None else min(self.least, found["min"])
            self.most = found["max"] if self.most is None else max(self.most, found["max"])


def _told(value: Any, *, up: bool) -> Any:
    """As Delta writes it: times in whole milliseconds, so that the greatest is not less than it is."""
    if not isinstance(value, datetime):
        return value
    value = value.astimezone(UTC) + timedelta(microseconds=999 if up else 0)
    return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    """Who writes there: this machine's disk, or whatever Arrow knows by the address."""
    scheme, colon, rest = path.partition(":")
    if not colon or len(scheme) == 1 or "/" in scheme:
        return pafs.LocalFileSystem(), path
    try:
        found, base = pafs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
    except (pa.ArrowException, OSError, ValueError) as e:
        raise MisuseError(f"{path}: not to be written to: {e}") from None
    return found, base
