"""The pipeline as a job: its sources, both streams, the views, upkeep, serving. Besides session.py the only place that
holds a SparkSession.

    source = {"format": "enc", "node": url, "enclaves": ids}
    job = Job(JobSettings(root="lake", sources=(source,), database="serving.db"), spark_session())
    job.drain()         what is there now, and no more
    job.run(stop)       until `stop` is set
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from threading import Event, Lock
from time import monotonic
from typing import Any

from msgspec import Struct
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from enc.core.errors import Unavailable
from enc.dataview.derive import DERIVED, Derive
from enc.dataview.heads import Heads
from enc.dataview.held import Limits
from enc.dataview.ingest import Ingest
from enc.dataview.intake import Source, checkpoints, incoming, register
from enc.dataview.lake import CHECKPOINT_AFTER, Lake
from enc.dataview.pipeline import Setting, app_of
from enc.dataview.progress import Meter, Progress
from enc.dataview.publishing import Publishing
from enc.dataview.serving.columns import micros
from enc.dataview.serving.publish import Publisher
from enc.dataview.session import QUICK, SparkFault, for_streams, spark_says
from enc.dataview.status import State, stream_state
from enc.dataview.tables import Table
from enc.dataview.upkeep import Keeping, Upkeep
from enc.dataview.view_run import Built, Views
from enc.dataview.views import load_views
from enc.dataview.writer import Writer

logger = logging.getLogger("enc.dataview")

RECOUNT_S = 30.0
CHECKPOINTS_S = 10.0
"""How often it is looked whether tables' logs have grown."""
AGAIN_S = 5.0
"""How long a stream rests that stopped because somebody did not answer."""
_PASSING = re.compile(
    r"\benc\.[\w.]+\.(Unreachable|TimedOut|Unavailable|UpstreamUnreachable|InternalError): "
    r"|Python worker failed to connect back"
)

REST = 3
"""Times as long as views took to be made, nobody makes them again: the streams have the machine to themselves."""
MOST_REST_S = 30.0
"""But no longer than this: the first ones take the longest, when Spark has just started."""


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
    limits: Limits = Limits()


def _now() -> datetime:
    return datetime.now(UTC)


class Job:
    """A lake has one writer: whatever here writes holds the lake's lock for as long as it does (see writer.py)."""

    def __init__(
        self,
        settings: JobSettings,
        spark: SparkSession,
        reached: Callable[[str], None] | None = None,
        now: Callable[[], datetime] = _now,
        writer: Writer | None = None,
    ) -> None:
        """`now` says which contents have had their time. `writer`: who holds the lock already."""
        self.settings, self.spark, self._now = settings, spark, now
        self.lake, self.writer = Lake(settings.root), writer or Writer(settings.root)
        self._publisher = Publisher(settings.database, settings.limits) if settings.database else None
        self._publishing = Publishing(self._publisher) if self._publisher else None
        self._meter, limits = Meter(), settings.limits
        more = {"reached": reached} if reached else {}
        self._setting = Setting(lake=self.lake, publishing=self._publishing, meter=self._meter, limits=limits, **more)
        self._heads = Heads(self.lake, limits)
        own = load_views(settings.views) if settings.views else ()
        self.views = Views(self.lake, own, self._publishing, limits)
        self._seqs: tuple[int, dict[str, int]] = (-1, {})
        self._failing: dict[str, tuple[str, ...]] = {}
        """By view, what was said last of why it is not published; by table, of why its log is not written down."""
        self._is_made = False
        self.upkeep = Upkeep(self.lake, settings.keeping, self._publishing)
        self._turns = {"ingest": Lock(), "derive": Lock()}
        """Sources write the same tables, and upkeep rewrites what the streams write: they take turns."""
        self._again: dict[str, Callable[[], StreamingQuery]] = {}
        """By name, what starts a stream from its checkpoint."""
        register(spark)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        with self.writer.holding(what):
            if not self._is_made:
                self.lake.create(self.spark)
                self._is_made = True
            yield

    # Streams

    def ingest(self, **trigger: Any) -> list[StreamingQuery]:
        """A stream for each source, to be run by whoever holds the lock."""
        found = checkpoints(self.settings.sources)
        root, verify = self.lake.root, self.settings.verify
        frames = {name: incoming(self.spark, source, root, verify=verify) for name, source in found.items()}
        return [self._start(name, rows, trigger, self._ingest) for name, rows in frames.items()]

    def _ingest(self, app: str) -> Ingest:
        return Ingest(self._setting, app, self._heads)

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
        checkpoint, turn = self.lake.checkpoint(name), self._turns[name.partition("-")[0]]
        made: list[Callable[[DataFrame, int], None]] = []

        def body(batch: DataFrame, batch_id: int) -> None:
            if not made:
                for setting, value in QUICK.items():  # the query's session is its own
                    batch.sparkSession.conf.set(setting, value)
                made.append(make(app_of(batch.sparkSession, checkpoint, name)))
            with turn:
                made[0](batch, batch_id)

        self._again[f"enc-{name}"] = partial(self._start, name, rows, trigger, make)
        writer = rows.writeStream.queryName(f"enc-{name}").foreachBatch(body)
        with for_streams(self.spark):
            return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()

    # What the commands do

    def drain(self) -> list[Built]:
        """Take what is there now through everything, and stop."""
        with self._writing("drain"):
            self._catch_up()
            queries = self.ingest(availableNow=True)
            self._finish(queries)
            queries.append(self.derive(availableNow=True))
            self._finish(queries[-1:])
            self.upkeep.expire(self.spark, self._now())
            self.upkeep.erase(self.spark)
            built = self.build()
        self._tell(queries, built)
        return built

    def _finish(self, queries: Sequence[StreamingQuery]) -> None:
        """Wait for the end of all; where one fails, the others end as well."""
        try:
            for query in queries:
                with suppress(StreamingQueryException):  # `_check` says it in our words
                    while not query.awaitTermination(CHECKPOINTS_S):  # type: ignore[arg-type]
                        self.checkpoint_logs()
                _check(query)
            self.checkpoint_logs()
        finally:
            for query in queries:
                query.stop()

    def run(self, stop: Event, tell: Callable[[Progress], None] | None = None) -> None:
        """Go on until `stop` is set, or a stream fails for good."""
        seconds, queries = self.settings, list[StreamingQuery]()
        chores = _Chores(self, queries, stop)
        with self._writing("run"):
            self._catch_up()
            self._count()
            try:
                queries += self.ingest(processingTime=f"{seconds.ingest_seconds} seconds")
                queries.append(self.derive(processingTime=f"{seconds.derive_seconds} seconds"))
                # Chores end before the streams do: one that waits for its turn cannot be stopped.
                with ThreadPoolExecutor(1, "enc-chores") as aside:
                    doing = aside.submit(chores.do)
                    while not stop.wait(1.0):
                        for i, query in enumerate(queries):
                            queries[i] = self._going(query, stop)
                        if doing.done():
                            doing.result()
                            doing = aside.submit(chores.do)
                        if tell is not None:
                            tell(self._meter.read(_sources(queries)))
                    doing.result()
            finally:
                for query in queries:
                    query.stop()

    def _going(self, query: StreamingQuery, stop: Event) -> StreamingQuery:
        """The stream; begun again where it was, if somebody whom it needs did not answer."""
        error = query.exception()
        if error is None or not is_passing(said := spark_says(error)):
            _check(query)
            return query
        logger.warning("%s begins again where it was: %s", query.name, said)
        stop.wait(AGAIN_S)
        with self._turns["ingest"], self._turns["derive"]:
            self._count()  # what it had written is not counted when it comes again
        return self._again[query.name]()

    def _count(self) -> None:
        self._meter.start(self._sum("heads"), self._sum("fold"), self._quarantined())

    def _sum(self, table: str) -> int:
        sums = self.lake[table].read(self.spark).groupBy().sum("events").first()
        return int((sums and sums[0]) or 0)

    def _quarantined(self) -> int:
        return self.lake["quarantine"].read(self.spark).count()

    def _tell(self, queries: Sequence[StreamingQuery], built: Sequence[Built]) -> None:
        """Say in the serving database how far the job is."""
        if self._publishing is None:
            return
        now = micros(self._now())
        failing = [f"{each.name} is not published: {failure}" for each in built for failure in each.failures[:1]]
        made = sum(each.changed for each in built)
        views = State(part="views", told_at=now, rows=made, error="; ".join(failing)[:1000] or None)
        names = [query.name.removeprefix("enc-") for query in queries]
        parts = ["ingest", "derive"] if len(names) == 2 else names
        streams = zip(parts, queries, strict=True)
        self._publishing.tell([*(stream_state(part, query.lastProgress, now) for part, query in streams), views])

    def show(self, queries: Sequence[StreamingQuery], stop: Event) -> None:
        """Make the views, and say how far the job is."""
        made = self.build(enough=stop.is_set)
        self._meter.built(sum(each.changed for each in made))
        if not stop.is_set():  # else nobody knows of those that were not begun
            self._tell(queries, made)

    def recount(self) -> None:
        """Events are refused late, too: what the table says."""
        self._meter.refused(self._quarantined())

    def checkpoint_logs(self) -> None:
        """Write down what the tables' logs say, where they have grown, so that batches seldom stop to do it."""
        with self._writing("checkpoint"):
            for name in self.lake.names:
                said: tuple[str, ...] = ()
                try:
                    self.lake[name].checkpoint_log(self.spark, CHECKPOINT_AFTER)
                except SparkFault as e:  # it saves time, and nothing rests on it
                    said = (spark_says(e),)
                if said and said != self._failing.get(name):
                    logger.warning("the log of %s is not written down: %s", name, *said)
                self._failing[name] = said

    def build(self, names: Iterable[str] = (), enough: Callable[[], bool] = lambda: False) -> list[Built]:
        """Make the views that are behind; once it is `enough`, no further one."""
        with self._writing("build"):
            found = self.views.build(self.spark, tuple(names), self._next_seqs(), enough)
        for each in found:
            if each.failures and each.failures != self._failing.get(each.name):
                logger.warning("view %s is not published: %s", each.name, "; ".join(each.failures))
        self._failing |= {each.name: each.failures for each in found}
        return found

    def rebuild(self, name: str) -> Built:
        with self._writing("rebuild"):
            return self.views.rebuild(self.spark, name, self._next_seqs())

    def keep(self, *, vacuum: bool = True) -> None:
        """Upkeep of everything, while the streams wait; then the views of what has expired."""
        tables = [self.views.table(name) for name in self.views.views]
        with self._writing("upkeep"):
            with self._turns["ingest"], self._turns["derive"]:
                there = [each for each in tables if each.exists(self.spark)]
                self.upkeep.run(self.spark, self._now(), there, vacuum=vacuum)
            self.build()

    def _catch_up(self) -> None:
        """Publish what the lake has and the serving database has not: that may be a new one, or be behind."""
        if self._publishing is None:
            return
        for told, names in (("heads", ("events", "heads")), ("fold", DERIVED)):
            progress = self._how_far(told)
            for name in names if progress else ():
                self._publishing.push(self.spark, self.lake[name], progress)

    def _next_seqs(self) -> dict[str, int]:
        """How far the tables are that views are made from."""
        if self._publishing is None:
            return {}
        version = self.lake["fold"].version(self.spark)
        if version != self._seqs[0]:
            self._seqs = version, self._how_far("fold")
        return self._seqs[1]

    def _how_far(self, table: str) -> dict[str, int]:
        """By enclave, what `heads` or `fold` says."""
        rows: list[Any] = self.lake[table].read(self.spark).select("enclave", "next_seq").collect()
        return {row.enclave: row.next_seq for row in rows}

    def tables(self) -> list[tuple[str, str, Table]]:
        """All that may be read: its layer, its name, and where it is."""
        found = [(spec.layer, name, self.lake[name]) for name in self.lake.names if (spec := self.lake[name].spec)]
        return [*found, *((view.layer, name, self.views.table(name)) for name, view in self.views.views.items())]


class _Chores:
    """Checkpoints, views, upkeep and counts of a running job, when due; beside the loop that watches its streams."""

    def __init__(self, job: Job, queries: Sequence[StreamingQuery], stop: Event) -> None:
        """Once `stop` is set, what is not begun is left for the next time."""
        self._job, self._queries, self._stop, seconds = job, queries, stop, job.settings
        self._views, self._upkeep = _Clock(seconds.views_seconds), _Clock(seconds.upkeep_seconds)
        self._vacuum, self._recount = _Clock(seconds.vacuum_seconds), _Clock(RECOUNT_S)
        self._checkpoints = _Clock(CHECKPOINTS_S)

    def do(self) -> None:
        if self._checkpoints.is_due():
            self._job.checkpoint_logs()
        if self._views.is_due():
            began = monotonic()
            self._job.show(self._queries, self._stop)
            self._views.took(monotonic() - began)
        if self._stop.is_set():
            return
        if self._upkeep.is_due():
            self._job.keep(vacuum=self._vacuum.is_due())
        if self._recount.is_due():
            self._job.recount()


class _Clock:
    """Says when something is due: after so many seconds, and then every so many."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, monotonic() + seconds

    def took(self, seconds: float) -> None:
        """What was due is done, and leaves the most of the time to others."""
        self._next = monotonic() + max(self._seconds, min(REST * seconds, MOST_REST_S))

    def is_due(self) -> bool:
        if monotonic() < self._next:
            return False
        self._next = monotonic() + self._seconds
        return True


def _sources(queries: Iterable[StreamingQuery]) -> list[Any]:
    """What Spark says last of the streams' sources."""
    return [source for query in queries if (last := query.lastProgress) for source in last["sources"]]


def is_passing(said: str) -> bool:
    """Whether what a stream ended with may be over by the next time: a node or the serving database did not answer, or
    the machine was so busy that Python did not start within Spark's ten seconds.
    """
    return _PASSING.search(said) is not None


def _check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise Unavailable(f"the stream {query.name} stopped: {spark_says(error)}", retry_after_ms=1000)


@contextmanager
def opened(
    settings: JobSettings, spark: SparkSession, now: Callable[[], datetime] = _now, writer: Writer | None = None
) -> Iterator[Job]:
    """A job that is closed in the end; the session is whoever's made it."""
    job = Job(settings, spark, now=now, writer=writer)
    try:
        yield job
    finally:
        job.close()
