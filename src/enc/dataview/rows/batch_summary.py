"""Summaries of a batch by enclave, computed on executors per Arrow batch and merged by the driver."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import DataFrame

_COLUMNS = ("enclave", "seq", "id", "timestamp", "sequencer", "type", "withheld", "code")


class EnclaveSummary(Struct):
    """One enclave's rows in a batch. `ranges` are half-open ranges of seq in order; `rows` counts
    the rows.
    """

    enclave: str
    rows: int
    ranges: list[tuple[int, int]]
    head: tuple[str, int]
    """The id and the time, in microseconds, of the last event."""
    first_signed: list[tuple[int, str]]
    """Each sequencer with the lowest seq that it signed."""
    has_migrate: bool = False
    """True if there is a Migrate."""
    withheld_by: list[str] = []
    """The keys that withhold contents."""

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def next_seq(self) -> int:
        return self.ranges[-1][1]

    @property
    def has_duplicates(self) -> bool:
        """True if a seq occurs twice."""
        return self.rows != sum(end - start for start, end in self.ranges)

    @property
    def signers(self) -> list[str]:
        return [key for _, key in sorted(self.first_signed)]


class BatchSummary(Struct):
    """Summary of a whole batch: its enclaves, and how many rows were rejected."""

    enclaves: dict[str, EnclaveSummary]
    refused: int = 0
    bytes: int = 0
    """Bytes of the accepted rows, in the summarized columns."""


def summarize(rows: DataFrame) -> BatchSummary:
    """Summarize rows of VERIFIED or EVENTS in one job."""
    has_code = "code" in rows.columns
    columns = [name for name in _COLUMNS if has_code or name != "code"]
    found = rows.select(*columns).mapInArrow(_look, "said binary").collect()
    return merge_summaries(msgspec.msgpack.decode(row.said, type=BatchSummary) for row in found)


def summarize_table(rows: pa.Table) -> BatchSummary:
    """Summarize rows that the driver holds."""
    return merge_summaries(summarize_batch(batch) for batch in rows.to_batches())


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = merge_summaries(summarize_batch(batch) for batch in batches)
    yield pa.RecordBatch.from_pydict({"said": [msgspec.msgpack.encode(found)]})


def summarize_batch(batch: pa.RecordBatch) -> BatchSummary:
    table = pa.Table.from_batches([batch])
    count = table.num_rows
    if "code" in table.column_names:
        table = table.filter(pc.is_null(table["code"]))
    found = BatchSummary({}, count - table.num_rows, table.nbytes if table.num_rows else 0)
    table = table.sort_by([("enclave", "ascending"), ("seq", "ascending")])
    start = 0
    for enclave, group in groupby(table["enclave"].to_pylist()):
        size = sum(1 for _ in group)
        found.enclaves[enclave] = _sum(enclave, table.slice(start, size))
        start += size
    return found


def _sum(enclave: str, rows: pa.Table) -> EnclaveSummary:
    """Summarize rows that are sorted by seq."""
    last = rows.num_rows - 1
    at = rows["timestamp"][last].cast(pa.timestamp("us", "UTC")).value
    signers = rows.group_by("sequencer").aggregate([("seq", "min")])
    return EnclaveSummary(
        enclave=enclave,
        rows=rows.num_rows,
        ranges=_runs((seq, seq + 1) for seq in rows["seq"].to_pylist()),
        head=(rows["id"][last].as_py(), at),
        first_signed=list(zip(signers["seq_min"].to_pylist(), signers["sequencer"].to_pylist(), strict=True)),
        has_migrate=bool(pc.any(pc.equal(rows["type"], "Migrate")).as_py()),
        withheld_by=pc.struct_field(rows["withheld"], "node").drop_null().unique().to_pylist(),
    )


def _runs(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge sorted ranges that touch or overlap."""
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def merge_summaries(parts: Iterable[BatchSummary]) -> BatchSummary:
    every: dict[str, list[EnclaveSummary]] = {}
    refused, size = 0, 0
    for part in parts:
        refused, size = refused + part.refused, size + part.bytes
        for enclave, seen in part.enclaves.items():
            every.setdefault(enclave, []).append(seen)
    return BatchSummary({enclave: _joined(seen) for enclave, seen in every.items()}, refused, size)


def _joined(parts: list[EnclaveSummary]) -> EnclaveSummary:
    if len(parts) == 1:
        return parts[0]
    first: dict[str, int] = {}
    for seq, key in sorted(place for part in parts for place in part.first_signed):
        first.setdefault(key, seq)
    return EnclaveSummary(
        enclave=parts[0].enclave,
        rows=sum(part.rows for part in parts),
        ranges=_runs(sorted(run for part in parts for run in part.ranges)),
        head=max(parts, key=lambda part: part.next_seq).head,
        first_signed=[(seq, key) for key, seq in first.items()],
        has_migrate=any(part.has_migrate for part in parts),
        withheld_by=list({key for part in parts for key in part.withheld_by}),
    )
