"""Stages rows into the lake: the task that reads and verifies them writes them as Parquet, in one
pass.

A batch then is a few rows that name these files (FILES), with a summary; the driver adds the files
to the tables of `Lake`, each in one commit. Files of a task that died, or of a repeated batch, are
in no table, and `vacuum` deletes them.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from enc.dataview.lake.lake import Lake
from enc.dataview.lake.parquet import ParquetWriter
from enc.dataview.lake.tables import NewFile
from enc.dataview.rows.batch_summary import BatchSummary, merge_summaries, summarize_batch
from enc.dataview.rows.schema import EVENTS, NUMBER, QUARANTINE, RAW, TEXT, arrow_schema
from enc.dataview.rows.verify import verify_batch

FILES = StructType(
    [
        StructField("table", TEXT),
        StructField("path", TEXT),
        StructField("size", NUMBER),
        StructField("stats", TEXT),
        StructField("summary", BinaryType()),
    ]
)
"""A file, relative to its table; or, without a table, the summary of everything a task has read."""

_ARROW = arrow_schema(FILES)


class StagedBatch(Struct, frozen=True):
    """The content of a batch: files by table, and their summary."""

    files: Mapping[str, list[NewFile]]
    summary: BatchSummary


def stage_rows(raw: DataFrame, root: str, *, check: bool = True) -> DataFrame:
    """Stage raw rows of any source. Returns rows of FILES."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage_batches(batches, root, check=check)

    return raw.select(*RAW.fieldNames()).mapInArrow(write, FILES)


def collect_staged(files: DataFrame) -> StagedBatch:
    """Collect a batch's files and summary; this triggers the work."""
    found: dict[str, list[NewFile]] = {}
    summaries: list[BatchSummary] = []
    for row in files.collect():
        if row["table"] is None:
            summaries.append(msgspec.msgpack.decode(row["summary"], type=BatchSummary))
        else:
            found.setdefault(row["table"], []).append(NewFile(row["path"], row["size"], row["stats"]))
    return StagedBatch(found, merge_summaries(summaries))


def stage_batches(batches: Iterable[pa.RecordBatch], root: str, *, check: bool) -> Iterator[pa.RecordBatch]:
    """Verify raw rows and write them to their tables. One Arrow batch is held at a time."""
    writers, summaries = dict[str, ParquetWriter](), list[BatchSummary]()
    try:
        for raw in batches:
            rows = verify_batch(raw, check=check)
            summaries.append(summarize_batch(rows))
            for name, part in _by_table(raw, rows):
                if part.num_rows:
                    if name not in writers:
                        writers[name] = ParquetWriter(Lake(root)[name])
                    writers[name].write(part)
    finally:
        files = [writer.close() for writer in writers.values()]
    said = [(name, file.path, file.size, file.stats, None) for name, file in zip(writers, files, strict=True)]
    rows_ = [*said, (None, None, None, None, msgspec.msgpack.encode(merge_summaries(summaries)))]
    columns = zip(*rows_, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _by_table(raw: pa.RecordBatch, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
    yield "raw_events", pa.Table.from_batches([raw])
    verified = pa.Table.from_batches([rows])
    good = pc.is_null(verified["code"])
    if pc.all(good).as_py():
        yield "events", verified.select(EVENTS.fieldNames())
    else:
        yield "events", verified.filter(good).select(EVENTS.fieldNames())
        yield "quarantine", verified.filter(pc.invert(good)).select(QUARANTINE.fieldNames())
