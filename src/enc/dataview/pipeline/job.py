"""The pipeline as a job: its sources, both streams, views, upkeep and publishing.

Apart from session.py, this is the only module that holds a SparkSession.

    source = {"format": "enc", "node": url, "enclaves": ids}
    job = Job(JobSettings(root="lake", sources=(source,), database="serving.db"), spark_session())
    job.drain()         process everything that is available now, then return
    job.run(stop)       run until `stop` is set
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, RLock
from typing import Any

from msgspec import Struct
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from enc.dataview.fold.known_heads import Heads
from enc.dataview.lake.claim import WriterClaim
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import CHECKPOINT_AFTER, Lake
from enc.dataview.lake.lock import LakeLock, local_directory
from enc.dataview.lake.session import SPARK_ERRORS, spark_message
from enc.dataview.lake.tables import Table
from enc.dataview.pipeline.batch_context import PipelineContext
from enc.dataview.pipeline.derive import DERIVED, Derive
from enc.dataview.pipeline.ingest import Ingest
from enc.dataview.pipeline.periodic_tasks import CHECKPOINTS_S, Intervals, Maintenance
from enc.dataview.pipeline.progress import Meter, PipelineProgress
from enc.dataview.pipeline.sources import StreamOptions, open_stream, register, sources_by_checkpoint
from enc.dataview.pipeline.streams import Streams, raise_if_failed, source_progress
from enc.dataview.pipeline.upkeep import LakeRetention, Upkeep
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.publish.status import PartStatus, stream_state
from enc.dataview.serving.columns import micros
from enc.dataview.source.landing import remove_ingested
from enc.dataview.source.receive import ReceiverPaths
from enc.dataview.views.build_views import BuildResult, Views
from enc.dataview.views.catalog import load_views
from enc.dataview.views.orphans import ADVICE, DropResult

logger = logging.getLogger("enc.dataview")


class JobSettings(Struct, frozen=True, kw_only=True):
    """Settings of a pipeline, independent of the machine that runs it."""

    root: str
    sources: tuple[StreamOptions, ...] = ()
    database: str | None = None
    views: str | None = None
    verify: bool = True
    ingest_seconds: float = 1.0
    derive_seconds: float = 5.0
    views_seconds: float = 10.0
    upkeep_seconds: float = 900.0
    vacuum_seconds: float = 86_400.0
    """Vacuuming lists every file of every table, so it runs less often than the rest of upkeep."""
    retention: LakeRetention = LakeRetention()
    limits: DriverLimits = DriverLimits()


CLAIMING = 4
"""Tables that are claimed at once."""


def _now() -> datetime:
    return datetime.now(UTC)


class Job:
    """The pipeline over one lake. Every method that writes holds the lake's lock while it runs
    (lock.py).
    """

    def __init__(
        self,
        settings: JobSettings,
        spark: SparkSession,
        reached: Callable[[str], None] | None = None,
        now: Callable[[], datetime] = _now,
        lock: LakeLock | None = None,
    ) -> None:
        """`now` decides which contents have expired. `lock` is a lock that the caller holds
        already.
        """
        self.settings, self.spark, self._now = settings, spark, now
        self.lake, self.lock = Lake(settings.root, WriterClaim()), lock or LakeLock(settings.root)
        self._active, self._guard = 0, RLock()
        self._serving_writer = ServingWriter(settings.database, settings.limits) if settings.database else None
        self._publisher = ChangePublisher(self._serving_writer) if self._serving_writer else None
        self._meter, limits = Meter(), settings.limits
        more = {"reached": reached} if reached else {}
        self._context = PipelineContext(
            lake=self.lake, publisher=self._publisher, meter=self._meter, limits=limits, **more
        )
        self._heads = Heads(self.lake, limits)
        own = load_views(settings.views) if settings.views else ()
        self.views = Views(self.lake, own, self._publisher, limits)
        self._cached_next_seqs: tuple[int, dict[str, int]] = (-1, {})
        self._reported: dict[str, tuple[str, ...]] = {}
        """By view, the failures logged last; by table, the last error of a log checkpoint."""
        self._is_lake_created = False
        self._orphans: list[str] | None = None
        self.upkeep = Upkeep(self.lake, settings.retention, self._publisher)
        self._streams = Streams(spark, self.lake)
        register(spark)

    def close(self) -> None:
        if self._serving_writer is not None:
            self._serving_writer.close()

    @contextmanager
    def _locked(self, what: str) -> Iterator[None]:
        with self.lock.locked(what):
            with self._guard:
                self._begin(what) if not self._active else None
                self._active += 1
            try:
                yield
            finally:
                with self._guard:
                    self._active -= 1

    def _begin(self, what: str) -> None:
        """Create the lake; claim its tables if an earlier writer may still be writing (claim.py)."""
        if not self._is_lake_created:
            self.lake.create(self.spark)
            self._is_lake_created = True
        if not self.lock.was_released:
            self.lake.claim.begin(f"enc dataview {what}")
            with ThreadPoolExecutor(CLAIMING) as pool:
                tables = [table for _, _, table in self.tables() if table.exists(self.spark)]
                list(pool.map(lambda table: table.claim(self.spark), tables))
            self.lock.claimed()

    # Streams

    def ingest(self, **trigger: Any) -> list[StreamingQuery]:
        """Start a stream for each source. The caller must hold the lock."""
        found = sources_by_checkpoint(self.settings.sources)
        root, verify = self.lake.root, self.settings.verify
        frames = {name: open_stream(self.spark, source, root, verify=verify) for name, source in found.items()}
        return [self._streams.start(name, rows, trigger, self._ingest) for name, rows in frames.items()]

    def _ingest(self, app: str) -> Ingest:
        return Ingest(self._context, app, self._heads)

    def derive(self, **trigger: Any) -> StreamingQuery:
        stream = self.spark.readStream.format("delta").option("skipChangeCommits", "true")
        events = stream.option("maxFilesPerTrigger", 200).load(self.lake["events"].path)
        return self._streams.start("derive", events, trigger, lambda app: Derive(self._context, app))

    # Commands

    def drain(self) -> list[BuildResult]:
        """Process everything that is available now, then return the results of the views."""
        with self._locked("drain"):
            self._publish_backlog()
            queries = self.ingest(availableNow=True)
            self._await_all(queries)
            queries.append(self.derive(availableNow=True))
            self._await_all(queries[-1:])
            self.upkeep.settle(self.spark)
            self.upkeep.expire(self.spark, self._now())
            self.upkeep.erase(self.spark)
            built = self.build()
        self._publish_status(queries, built)
        return built

    def _await_all(self, queries: Sequence[StreamingQuery]) -> None:
        """Wait for all streams to end; if one fails, stop the others."""
        try:
            for query in queries:
                with suppress(StreamingQueryException):  # `raise_if_failed` reports it
                    while not query.awaitTermination(CHECKPOINTS_S):  # type: ignore[arg-type]
                        self.checkpoint_logs()
                raise_if_failed(query)
            self.checkpoint_logs()
        finally:
            for query in queries:
                query.stop()

    def run(self, stop: Event, on_progress: Callable[[PipelineProgress], None] | None = None) -> None:
        """Run until `stop` is set, or a stream fails permanently."""
        seconds, queries = self.settings, list[StreamingQuery]()
        intervals = Intervals(views=seconds.views_seconds, upkeep=seconds.upkeep_seconds, vacuum=seconds.vacuum_seconds)
        maintenance = Maintenance(self, intervals, queries, stop)
        with self._locked("run"):
            self._publish_backlog()
            self._reset_meter()
            try:
                queries += self.ingest(processingTime=f"{seconds.ingest_seconds} seconds")
                queries.append(self.derive(processingTime=f"{seconds.derive_seconds} seconds"))
                # Maintenance ends before the streams do: a stream that waits for its turn cannot be
                # stopped.
                with ThreadPoolExecutor(1, "enc-maintenance") as pool:
                    doing = pool.submit(maintenance.run_due)
                    while not stop.wait(1.0):
                        for i, query in enumerate(queries):
                            queries[i] = self._streams.restart_if_transient(query, stop, self._reset_meter)
                        if doing.done():
                            doing.result()
                            doing = pool.submit(maintenance.run_due)
                        if on_progress is not None:
                            on_progress(self._meter.read(source_progress(queries)))
                    doing.result()
            finally:
                for query in queries:
                    query.stop()

    def _reset_meter(self) -> None:
        """Count from the tables, so that events of a repeated batch are not counted twice."""
        self._meter.start(self._sum_events("heads"), self._sum_events("fold"), self._count_quarantined())

    def _sum_events(self, table: str) -> int:
        sums = self.lake[table].read(self.spark).groupBy().sum("events").first()
        return int((sums and sums[0]) or 0)

    def _count_quarantined(self) -> int:
        return self.lake["quarantine"].read(self.spark).count()

    def _publish_status(self, queries: Sequence[StreamingQuery], built: Sequence[BuildResult]) -> None:
        """Publish the status of the streams and views to the serving database."""
        if self._publisher is None:
            return
        now = micros(self._now())
        failing = [f"{each.name} is not published: {failure}" for each in built for failure in each.failures[:1]]
        failing += [f"{name}: {ADVICE.format(name=name)}" for name in self._orphans or ()]
        made = sum(each.changed for each in built)
        views = PartStatus(part="views", told_at=now, rows=made, error="; ".join(failing)[:1000] or None)
        names = [query.name.removeprefix("enc-") for query in queries]
        parts = ["ingest", "derive"] if len(names) == 2 else names
        streams = zip(parts, queries, strict=True)
        self._publisher.publish_status(
            [*(stream_state(part, query.lastProgress, now) for part, query in streams), views]
        )

    def refresh_views(self, queries: Sequence[StreamingQuery], stop: Event) -> None:
        """Build the views and publish the job's status."""
        made = self.build(should_stop=stop.is_set)
        self._meter.built(sum(each.changed for each in made))
        if not stop.is_set():  # otherwise the views that were not started would be missing
            self._publish_status(queries, made)

    def recount(self) -> None:
        """Recount quarantined rows in the table: events may be rejected late."""
        self._meter.refused(self._count_quarantined())

    def checkpoint_logs(self) -> None:
        """Checkpoint the tables' logs that have grown, so that batches rarely have to."""
        with self._locked("checkpoint"):
            for name in self.lake.names:
                said: tuple[str, ...] = ()
                try:
                    self.lake[name].checkpoint_log(self.spark, CHECKPOINT_AFTER)
                except SPARK_ERRORS as e:  # an optimization: nothing depends on it
                    said = (spark_message(e),)
                if said and said != self._reported.get(name):
                    logger.warning("cannot checkpoint the log of %s: %s", name, *said)
                self._reported[name] = said

    def build(self, names: Iterable[str] = (), should_stop: Callable[[], bool] = lambda: False) -> list[BuildResult]:
        """Build the views that are out of date, until `should_stop` returns True."""
        with self._locked("build"):
            self._report_orphans()
            found = self.views.build(self.spark, tuple(names), self._next_seqs(), should_stop)
        for each in found:
            if each.failures and each.failures != self._reported.get(each.name):
                logger.warning("view %s is not published: %s", each.name, "; ".join(each.failures))
        self._reported |= {each.name: each.failures for each in found}
        return found

    def _report_orphans(self) -> None:
        """Log which views have lost their file, once: files are read when a job begins."""
        if self._orphans is None:
            self._orphans = self.views.orphans.names(self.spark)
            for name in self._orphans:
                logger.warning("view %s: %s", name, ADVICE.format(name=name))

    def drop(self, name: str) -> DropResult:
        """Remove a view whose file is gone."""
        with self._locked("drop"):
            return self.views.orphans.drop(self.spark, name, self._publisher)

    def rebuild(self, name: str) -> BuildResult:
        with self._locked("rebuild"):
            return self.views.rebuild(self.spark, name, self._next_seqs())

    def run_upkeep(self, *, vacuum: bool = True) -> None:
        """Run upkeep on all tables. The streams wait meanwhile, except while the views are built, which
        must lose erased contents before old files are removed.
        """
        tables = [self.views.table(name) for name in self.views.views]
        with self._locked("upkeep"):
            with self._streams.paused():
                self.upkeep.remove_rows(self.spark, self._now())
            self.build()
            with self._streams.paused():
                there = [each for each in tables if each.exists(self.spark)]
                self.upkeep.clean_files(self.spark, there, vacuum=vacuum)
                if vacuum:
                    self._remove_ingested_files()

    def _remove_ingested_files(self) -> None:
        """Remove the files of the lake's own landing zone that are ingested."""
        if local_directory(self.settings.root) is not None:
            zone = ReceiverPaths(self.lake.root)
            [checkpoint] = sources_by_checkpoint([zone.source])
            remove_ingested(zone.landing, Path(self.lake.checkpoint(checkpoint)))

    def _publish_backlog(self) -> None:
        """Publish the lake's changes that the serving database, which may be new or behind, does
        not have.
        """
        if self._publisher is None:
            return
        for table, names in (("heads", ("events", "heads")), ("fold", DERIVED)):
            progress = self._read_next_seqs(table)
            for name in names if progress else ():
                self._publisher.push(self.spark, self.lake[name], progress)

    def _next_seqs(self) -> dict[str, int]:
        """By enclave, the progress of the tables that views are built from."""
        if self._publisher is None:
            return {}
        version = self.lake["fold"].version(self.spark)
        if version != self._cached_next_seqs[0]:
            self._cached_next_seqs = version, self._read_next_seqs("fold")
        return self._cached_next_seqs[1]

    def _read_next_seqs(self, table: str) -> dict[str, int]:
        """Return the next seq of each enclave from `heads` or `fold`."""
        rows: list[Any] = self.lake[table].read(self.spark).select("enclave", "next_seq").collect()
        return {row.enclave: row.next_seq for row in rows}

    def tables(self) -> list[tuple[str, str, Table]]:
        """Return every table and view: its layer, its name and its table."""
        found = [(spec.layer, name, self.lake[name]) for name in self.lake.names if (spec := self.lake[name].spec)]
        return [*found, *((view.layer, name, self.views.table(name)) for name, view in self.views.views.items())]


@contextmanager
def open_job(
    settings: JobSettings, spark: SparkSession, now: Callable[[], datetime] = _now, lock: LakeLock | None = None
) -> Iterator[Job]:
    """Open a job and close it at the end. The caller owns the Spark session."""
    job = Job(settings, spark, now=now, lock=lock)
    try:
        yield job
    finally:
        job.close()
