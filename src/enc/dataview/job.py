"""The pipeline as a job: its sources, both streams, the views, upkeep, serving. Besides session.py the only place that
holds a SparkSession.

    source = {"format": "enc", "node": url, "enclaves": ids}
    job = Job(JobSettings(root="lake", sources=(source,), database="serving.db"), spark_session())
    job.drain()         what is there now, and no more
    job.run(stop)       until `stop` is set
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from threading import Event, Lock
from time import monotonic
from typing import Any

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.archive_source import ArchiveSource
from enc.dataview.derive import Derive
from enc.dataview.ingest import Ingest
from enc.dataview.lake import Lake
from enc.dataview.landing import landed
from enc.dataview.pipeline import Setting, app_of
from enc.dataview.publishing import Publishing
from enc.dataview.serving.publish import Publisher
from enc.dataview.source import EncSource
from enc.dataview.staging import staged
from enc.dataview.tables import Table
from enc.dataview.upkeep import Keeping, Upkeep
from enc.dataview.view_run import Built, Views
from enc.dataview.views import load_views

logger = logging.getLogger("enc.dataview")

Source = Mapping[str, str]
"""`format`: enc, enc_archive or landing (with `path`); the rest are its options."""


class JobSettings(Struct, frozen=True, kw_only=True):
    """What a pipeline is, beside the machine that it runs on."""

    root: str
    sources: tuple[Source, ...] = ()
    database: str | None = None
    views: str | None = None
    verify: bool = True
    ingest_seconds: float = 1.0
    derive_seconds: float = 5.0
    views_seconds: float = 10.0
    upkeep_seconds: float = 900.0
    vacuum_seconds: float = 86_400.0
    """Old files are looked for less often than the rest of upkeep is done: that lists every file of every table."""
    keeping: Keeping = Keeping()


class Progress(Struct, frozen=True):
    """How far a running job is."""

    events: int
    quarantined: int
    rate: float
    """Events a second, of the last batch."""
    derived_batch: int
    built: int


def _now() -> datetime:
    return datetime.now(UTC)


class Job:
    def __init__(
        self,
        settings: JobSettings,
        spark: SparkSession,
        reached: Callable[[str], None] | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        """`now` says which contents have had their time."""
        self.settings, self.spark, self._now = settings, spark, now
        self.lake = Lake(settings.root).create(spark)
        self._publisher = Publisher(settings.database) if settings.database else None
        self._publishing = Publishing(self._publisher) if self._publisher else None
        more = {"reached": reached} if reached else {}
        self._setting = Setting(lake=self.lake, publishing=self._publishing, **more)
        self.views = Views(self.lake, load_views(settings.views) if settings.views else (), self._publishing)
        self._seqs: tuple[int, dict[str, int]] = (-1, {})
        self.upkeep = Upkeep(self.lake, settings.keeping, self._publishing)
        self._turns = {"ingest": Lock(), "derive": Lock()}
        """Upkeep rewrites what the streams write: they take turns."""
        for source in (EncSource, ArchiveSource):
            spark.dataSource.register(source)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    # Streams

    def _incoming(self) -> DataFrame:
        """All sources as one stream, so that one writer sees everything."""
        if not self.settings.sources:
            raise MisuseError("sources: name at least one: a node's enclaves, archives, or a landing zone")
        return reduce(DataFrame.unionByName, (self._source(source) for source in self.settings.sources))

    def _source(self, source: Source) -> DataFrame:
        options = {name: text for name, text in source.items() if name != "format"}
        check = self.settings.verify
        if source["format"] == "landing":
            return staged(landed(self.spark, options["path"]), self.lake.root, check=check)
        options = {**options, "verify": "full" if check else "form", "stage": self.lake.root}
        return self.spark.readStream.format(source["format"]).options(**options).load()

    def ingest(self, **trigger: Any) -> StreamingQuery:
        return self._start("ingest", self._incoming(), trigger, lambda app: Ingest(self._setting, app))

    def derive(self, **trigger: Any) -> StreamingQuery:
        stream = self.spark.readStream.format("delta").option("skipChangeCommits", "true")
        events = stream.option("maxFilesPerTrigger", 200).load(self.lake["events"].path)
        return self._start("derive", events, trigger, lambda app: Derive(self._setting, app))

    def _start(
        self,
        name: str,
        rows: DataFrame,
        trigger: dict[str, Any],
        make: Callable[[str], Callable[[DataFrame, int], None]],
    ) -> StreamingQuery:
        checkpoint, turn = self.lake.checkpoint(name), self._turns[name]
        made: list[Callable[[DataFrame, int], None]] = []

        def body(batch: DataFrame, batch_id: int) -> None:
            if not made:
                made.append(make(app_of(batch.sparkSession, checkpoint, name)))
            with turn:
                made[0](batch, batch_id)

        writer = rows.writeStream.queryName(f"enc-{name}").foreachBatch(body)
        return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()

    # What the commands do

    def drain(self) -> list[Built]:
        """Take what is there now through everything, and stop."""
        _finished(self.ingest(availableNow=True))
        _finished(self.derive(availableNow=True))
        self.upkeep.expire(self.spark, self._now())
        self.upkeep.erase(self.spark)
        return self.build()

    def run(self, stop: Event, tell: Callable[[Progress], None] | None = None) -> None:
        """Go on until `stop` is set, or a stream fails."""
        seconds = self.settings
        queries = [
            self.ingest(processingTime=f"{seconds.ingest_seconds} seconds"),
            self.derive(processingTime=f"{seconds.derive_seconds} seconds"),
        ]
        views, upkeep = _Clock(seconds.views_seconds), _Clock(seconds.upkeep_seconds)
        vacuum = _Clock(seconds.vacuum_seconds)
        built, meter = 0, _Meter(self)
        try:
            while not stop.wait(1.0):
                for query in queries:
                    _check(query)
                if views.is_due():
                    built += sum(each.changed for each in self.build())
                if upkeep.is_due():
                    self.keep(vacuum=vacuum.is_due())
                if tell is not None:
                    tell(meter.read(queries[0], queries[1], built))
        finally:
            for query in queries:
                query.stop()

    def build(self, names: Iterable[str] = ()) -> list[Built]:
        found = self.views.build(self.spark, tuple(names), self._next_seqs())
        for each in found:
            for failure in each.failures:
                logger.warning("view %s fails a test and is not published: %s", each.name, failure)
        return found

    def rebuild(self, name: str) -> Built:
        return self.views.rebuild(self.spark, name, self._next_seqs())

    def keep(self, *, vacuum: bool = True) -> None:
        """Upkeep of everything, while the streams wait; then the views of what has expired."""
        tables = [self.views.table(name) for name in self.views.views]
        with self._turns["ingest"], self._turns["derive"]:
            there = [each for each in tables if each.exists(self.spark)]
            self.upkeep.run(self.spark, self._now(), there, vacuum=vacuum)
        self.build()

    def _next_seqs(self) -> dict[str, int]:
        """How far the tables are that views are made from."""
        if self._publishing is None:
            return {}
        fold = self.lake["fold"]
        version = fold.version(self.spark)
        if version != self._seqs[0]:
            rows: list[Any] = fold.read(self.spark).select("enclave", "next_seq").collect()
            self._seqs = version, {row.enclave: row.next_seq for row in rows}
        return self._seqs[1]

    def tables(self) -> list[tuple[str, str, Table]]:
        """All that may be read: its layer, its name, and where it is."""
        found = [(spec.layer, name, self.lake[name]) for name in self.lake.names if (spec := self.lake[name].spec)]
        return [*found, *((view.layer, name, self.views.table(name)) for name, view in self.views.views.items())]


class _Meter:
    """How far a job is, without asking the tables more than now and then."""

    def __init__(self, job: Job) -> None:
        self._job, self._due = job, _Clock(30.0)
        self._events, self._bad, self._batch = self._sum(), 0, -1

    def _sum(self) -> int:
        sums = self._job.lake["heads"].read(self._job.spark).groupBy().sum("events").first()
        return int((sums and sums[0]) or 0)

    def read(self, ingest: StreamingQuery, derive: StreamingQuery, built: int) -> Progress:
        last, derived = ingest.lastProgress, derive.lastProgress
        if last and last["batchId"] != self._batch:
            self._batch = last["batchId"]
            self._events += int(last["numInputRows"])
        if self._due.is_due():
            self._events = self._sum()
            self._bad = self._job.lake["quarantine"].read(self._job.spark).count()
        rate = float(last["processedRowsPerSecond"] or 0) if last else 0.0
        return Progress(self._events, self._bad, rate, int(derived["batchId"]) if derived else -1, built)


class _Clock:
    """Says when something is due: at once, and then every so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, monotonic() + seconds

    def is_due(self) -> bool:
        if monotonic() < self._next:
            return False
        self._next = monotonic() + self._seconds
        return True


def _finished(query: StreamingQuery) -> None:
    query.awaitTermination()
    _check(query)


def _check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise Unavailable(f"the stream {query.name} stopped: {str(error)[:500]}", retry_after_ms=1000)


@contextmanager
def opened(settings: JobSettings, spark: SparkSession, now: Callable[[], datetime] = _now) -> Iterator[Job]:
    """A job that is closed in the end; the session is whoever's made it."""
    job = Job(settings, spark, now=now)
    try:
        yield job
    finally:
        job.close()
