"""Rows on their way into the lake: written as Parquet by the task that reads and verifies them, in one pass.

A batch then is a few rows that name these files (FILES), with what is in them at a glance; the driver adds the files to
the tables of `Lake`, each in one commit. Files of a task that died, or of a batch that is done again, are named by
nobody, and `vacuum` removes them.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from enc.dataview.files import Writer
from enc.dataview.lake import Lake
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
    writers, glances = dict[str, Writer](), list[Glance]()
    try:
        for raw in batches:
            rows = verify_batch(raw, check=check)
            glances.append(summed(rows))
            for name, part in _parted(raw, rows):
                if part.num_rows:
                    if name not in writers:
                        writers[name] = Writer(Lake(root)[name])
                    writers[name].write(part)
    finally:
        files = [writer.close() for writer in writers.values()]
    said = [(name, file.path, file.size, file.stats, None) for name, file in zip(writers, files, strict=True)]
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
