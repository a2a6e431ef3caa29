"""The pipeline without its streams: batches by hand, and tables compared with plain Python."""

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from enc.dataview.fold.known_heads import Heads
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import Lake
from enc.dataview.pipeline.batch_context import PipelineContext
from enc.dataview.pipeline.derive import Derive
from enc.dataview.pipeline.ingest import Ingest
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.rows.raw_rows import RowOrigin, raw_batch
from enc.dataview.rows.schema import EVENTS
from enc.dataview.source.staging import stage_rows
from enc.dataview.views.build_views import Views
from tests.dataview.logs import Log
from tests.dataview.plain_fold import Json, Tables

SILVER = "content_status access slots enclaves heads".split()
GOLD = "tags activity_hourly members profiles timeline".split()
COMPARED = SILVER + GOLD
AT = datetime(2026, 11, 15, tzinfo=UTC)


def rows_of(spark: SparkSession, lines: Sequence[bytes], enc_v: int | None = 2, origin: str = "node:test") -> DataFrame:
    """Return raw rows like a source."""
    return spark.createDataFrame(pa.Table.from_batches([raw_batch(list(lines), RowOrigin(origin, None, enc_v), AT)]))


def rows_of_logs(spark: SparkSession, pieces: Iterable[tuple[Log, slice]]) -> DataFrame:
    batches = [raw_batch(log.wire[part], RowOrigin("node:test", None, log.enc_v), AT) for log, part in pieces]
    return spark.createDataFrame(pa.Table.from_batches(batches))


def _ignore(point: str) -> None: ...


class Flow:
    """One lake, fed batch by batch."""

    def __init__(self, spark: SparkSession, root: Path, limits: DriverLimits | None = None) -> None:
        self.spark, self.lake, self.limits = spark, Lake(str(root)), limits or DriverLimits()
        self.publisher: ChangePublisher | None = None
        self.batch, self.before = 0, 0
        self.views = Views(self.lake, limits=self.limits)
        self.app = "ingest:test"
        self._bodies: tuple[ChangePublisher | None, Ingest, Derive] | None = None

    def _body(self, reached: Callable[[str], None]) -> tuple[Ingest, Derive]:
        """Return both halves: those of this process or, with `reached`, of a new one."""
        if reached is _ignore and self._bodies is not None and self._bodies[0] is self.publisher:
            return self._bodies[1:]
        context = self.context(reached)
        heads = Heads(self.lake, self.limits)
        found = self.publisher, Ingest(context, self.app, heads), Derive(context, "derive:test")
        self._bodies = found if reached is _ignore else None
        return found[1:]

    @classmethod
    def at(cls, spark: SparkSession, empty: Path, root: Path, limits: DriverLimits | None = None) -> "Flow":
        """Create a lake as a copy of an empty one."""
        shutil.copytree(empty, root)
        return cls(spark, root, limits)

    def context(self, reached: Callable[[str], None] = _ignore) -> PipelineContext:
        return PipelineContext(lake=self.lake, publisher=self.publisher, reached=reached, limits=self.limits)

    def feed(self, rows: DataFrame, reached: Callable[[str], None] = _ignore) -> None:
        """Process one batch in both halves; with `reached`, as a new process."""
        self.ingest(rows, reached)
        self.derive(reached)
        self.batch += 1

    def ingest(self, rows: DataFrame, reached: Callable[[str], None] = _ignore) -> None:
        self.before = self.lake["events"].version(self.spark)
        ingest, _ = self._body(reached)
        ingest(stage_rows(rows, self.lake.root), self.batch)

    def derive(self, reached: Callable[[str], None] = _ignore) -> None:
        events = self.lake["events"]
        now = events.version(self.spark)
        new = events.read(self.spark).limit(0) if now == self.before else events.changes(self.spark, self.before, now)
        _, derive = self._body(reached)
        if "_change_type" in new.columns:  # like the stream, which skips changes of stored rows
            new = new.where("_change_type = 'insert'")
        derive(new.select(*EVENTS.fieldNames()), self.batch)

    def rows(self, table: str, order: str = "") -> list[Json]:
        found = self.views.table(table).read(self.spark)
        return [row.asDict(recursive=True) for row in (found.orderBy(*order.split()) if order else found).collect()]

    def check(
        self, logs: Iterable[Log], tables: Iterable[str] = SILVER, without: Collection[str] = frozenset()
    ) -> None:
        """Check that every table holds exactly what plain Python computes from the logs. Views are built first.

        `without`: enclaves whose rows are ignored.
        """
        plain = Tables([log.wire for log in logs])
        names = [name for name in tables if name in GOLD]
        if names:
            assert not [built.failures for built in Views(self.lake).build(self.spark, names) if built.failures]
        for table in tables:
            expected = plain.rows(table)
            names = list(expected[0]) if expected else ["enclave"]
            found = [row for row in self.rows(table) if row.get("enclave") not in without]
            assert _sorted(_plain(row, names) for row in found) == _sorted(expected), table


def _plain(row: Json, names: Sequence[str]) -> Json:
    return {name: _value(name, row[name]) for name in names}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    return sorted(value) if name == "traits" else value


def _sorted(rows: Iterable[Json]) -> list[Json]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])
