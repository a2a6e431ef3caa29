"""What a batch of rows has of each enclave. On executors, an Arrow batch at a time; put together by the driver."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import DataFrame

_COLUMNS = ("enclave", "seq", "id", "timestamp", "sequencer", "type", "code")


class Seen(Struct):
    """Of one enclave. `runs` are half-open ranges of seq, by where they begin; `rows` of them there were."""

    enclave: str
    rows: int
    runs: list[tuple[int, int]]
    head: tuple[str, int]
    """The id and the time, in microseconds, of the last one."""
    by: list[tuple[int, str]]
    """Sequencers, each with the least seq that it signed."""
    moves: bool = False
    """There is a Migrate."""

    @property
    def first(self) -> int:
        return self.runs[0][0]

    @property
    def next_seq(self) -> int:
        return self.runs[-1][1]

    @property
    def is_doubled(self) -> bool:
        """A seq comes twice."""
        return self.rows != sum(end - start for start, end in self.runs)

    @property
    def signers(self) -> list[str]:
        return [key for _, key in sorted(self.by)]


class Glance(Struct):
    """All of a batch: its enclaves, and how many rows were refused."""

    seen: dict[str, Seen]
    refused: int = 0
    bytes: int = 0
    """Of the other rows, with the columns that were looked at."""


def glance(rows: DataFrame) -> Glance:
    """One job over rows of VERIFIED or EVENTS, which computes them where nothing has yet."""
    has_code = "code" in rows.columns
    columns = [name for name in _COLUMNS if has_code or name != "code"]
    found = rows.select(*columns).mapInArrow(_look, "said binary").collect()
    return together(msgspec.msgpack.decode(row.said, type=Glance) for row in found)


def glance_at(rows: pa.Table) -> Glance:
    """The same of rows that the driver has."""
    return together(summed(batch) for batch in rows.to_batches())


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = together(summed(batch) for batch in batches)
    yield pa.RecordBatch.from_pydict({"said": [msgspec.msgpack.encode(found)]})


def summed(batch: pa.RecordBatch) -> Glance:
    table = pa.Table.from_batches([batch])
    count = table.num_rows
    if "code" in table.column_names:
        table = table.filter(pc.is_null(table["code"]))
    found = Glance({}, count - table.num_rows, table.nbytes if table.num_rows else 0)
    table = table.sort_by([("enclave", "ascending"), ("seq", "ascending")])
    start = 0
    for enclave, group in groupby(table["enclave"].to_pylist()):
        size = sum(1 for _ in group)
        found.seen[enclave] = _sum(enclave, table.slice(start, size))
        start += size
    return found


def _sum(enclave: str, rows: pa.Table) -> Seen:
    """Of rows by rising seq."""
    last = rows.num_rows - 1
    at = rows["timestamp"][last].cast(pa.timestamp("us", "UTC")).value
    signers = rows.group_by("sequencer").aggregate([("seq", "min")])
    return Seen(
        enclave=enclave,
        rows=rows.num_rows,
        runs=_runs((seq, seq + 1) for seq in rows["seq"].to_pylist()),
        head=(rows["id"][last].as_py(), at),
        by=list(zip(signers["seq_min"].to_pylist(), signers["sequencer"].to_pylist(), strict=True)),
        moves=bool(pc.any(pc.equal(rows["type"], "Migrate")).as_py()),
    )


def _runs(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges by where they begin, with those that meet made one."""
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def together(parts: Iterable[Glance]) -> Glance:
    every: dict[str, list[Seen]] = {}
    refused, size = 0, 0
    for part in parts:
        refused, size = refused + part.refused, size + part.bytes
        for enclave, seen in part.seen.items():
            every.setdefault(enclave, []).append(seen)
    return Glance({enclave: _joined(seen) for enclave, seen in every.items()}, refused, size)


def _joined(parts: list[Seen]) -> Seen:
    if len(parts) == 1:
        return parts[0]
    first: dict[str, int] = {}
    for seq, key in sorted(place for part in parts for place in part.by):
        first.setdefault(key, seq)
    return Seen(
        enclave=parts[0].enclave,
        rows=sum(part.rows for part in parts),
        runs=_runs(sorted(run for part in parts for run in part.runs)),
        head=max(parts, key=lambda part: part.next_seq).head,
        by=[(seq, key) for key, seq in first.items()],
        moves=any(part.moves for part in parts),
    )
