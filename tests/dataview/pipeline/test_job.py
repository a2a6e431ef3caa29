"""The job: streams over archives, from files to the serving database."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from enc.client.errors import Unreachable
from enc.core.errors import MisuseError, Unavailable
from enc.dataview.lake.driver_rows import driver_frame
from enc.dataview.lake.lock import LakeLock
from enc.dataview.lake.tables import Table, Txn
from enc.dataview.pipeline.derive import DERIVED
from enc.dataview.pipeline.job import Job, JobSettings, open_job
from enc.dataview.pipeline.progress import PipelineProgress
from enc.dataview.pipeline.streams import is_transient
from enc.dataview.pipeline.upkeep import LakeRetention
from enc.dataview.publish.status import PIPELINE
from enc.dataview.rows.schema import QUARANTINE
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.views.build_views import BuildResult, Views
from enc.dataview.views.catalog import built_in
from enc.dataview.views.view_file import View
from tests.core.world import START
from tests.dataview.flow import SILVER, Flow
from tests.dataview.random_logs import random_log

POSTS = "-- key: author\nSELECT author, count(*) AS posts FROM timeline GROUP BY author"


POOL = "spark.scheduler.pool"


def share_of(spark: SparkSession) -> str | None:
    """Return the scheduler pool of the current thread."""
    return spark.sparkContext.getLocalProperty(POOL)


def time_of_creation() -> datetime:
    """Return the time at the beginning of the logs: no content has expired yet."""
    return datetime.fromtimestamp(START / 1000, UTC)


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("Python worker failed to connect back. SQLSTATE: XXKST", True),
        ("Python worker exited unexpectedly (crashed)", False),
        ("PythonException: enc.client.errors.Unreachable: http://127.0.0.1:1: does not answer", True),
        ("PythonException: enc.core.errors.Unavailable: the database is locked", True),
        ("PythonException: enc.core.errors.InvalidArchive: Unavailable: said by somebody", False),
    ],
)
def test_what_may_be_over_by_the_next_time(said: str, passes: bool) -> None:
    assert is_transient(f"[STREAM_FAILED] Query [id = 0, runId = 0] terminated with exception: {said}") == passes


def test_drained_then_running_then_kept(
    spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = set[str]()
    monkeypatch.setattr(Table, "checkpoint_log", lambda table, spark, after: grown.add(table.name))
    few = tuple(view for view in built_in() if view.name in ("members", "timeline"))
    monkeypatch.setattr("enc.dataview.views.catalog.built_in", lambda: few)
    logs = [random_log(seed, 20, kind).log() for seed, kind in ((21, "club"), (22, "v1"))]
    archives, views, place = tmp_path / "archives", tmp_path / "views", str(tmp_path / "serving.db")
    archives.mkdir()
    views.mkdir()
    (views / "posts.sql").write_text(POSTS)
    logs[0].archive(archives / "0.enc")
    source = {"format": "enc_archive", "path": str(archives)}
    settings = JobSettings(root=flow.lake.root, sources=(source,), database=place, views=str(views))
    with open_job(settings, spark, time_of_creation) as job:
        assert [each.name for each in job.drain() if each.changed] == ["members", "timeline", "posts"]
        flow.check(logs[:1], [*SILVER, "members", "timeline"])
        assert grown == {*flow.lake.names}, "logs are checkpointed even if no stream runs for long"
        logs[1].archive(archives / "1.enc")
        total = sum(len(log.events) for log in logs)
        _run(job, lambda progress: progress.events == total and not progress.waiting)
    with open_job(settings, spark, time_of_creation) as job:
        job.drain()
    flow.check(logs, [*SILVER, "members", "timeline"])
    database = ServingDatabase(place)
    with database.reading() as snapshot:
        assert {view.schema.name for view in snapshot.views()} >= {"events", "timeline", "members", "posts", "heads"}
        expected = sorted((log.enclave, len(log.events)) for log in logs)
        assert snapshot.progress("timeline", 10) == expected
        assert snapshot.progress("events", 10) == expected
        told = {row.part: row for row in snapshot.rows(snapshot.table(PIPELINE).select())}
        assert set(told) == {"ingest", "derive", "views"}
        assert {row.told_at for row in told.values()} == {START * 1000}
        assert told["derive"].batch >= 1
    database.close()
    _into_another(replace(settings, database=str(tmp_path / "another.db")), spark, dict(expected))
    _keep(replace(settings, retention=LakeRetention(raw_days=1, small_files=1)), spark, flow)


def _into_another(settings: JobSettings, spark: SparkSession, expected: dict[str, int]) -> None:
    """Check that a new serving database gets the whole lake, even if the lake has not changed."""
    with open_job(settings, spark, time_of_creation) as job:
        job.drain()
    database = ServingDatabase(settings.database or "")
    with database.reading() as snapshot:
        for name in ("events", "heads", *DERIVED, "timeline"):
            assert dict(snapshot.progress(name, 10)) == expected, name
        events = snapshot.view("events")
        assert events is not None
        assert len(snapshot.rows(snapshot.table(events.schema).select())) == sum(expected.values())
    database.close()


def _keep(settings: JobSettings, spark: SparkSession, flow: Flow) -> None:
    """Run the upkeep a month later: expired contents are gone from tables and views."""
    tables = ("events", "content_status", "timeline")
    due = {row["id"] for row in flow.rows("content_status") if row["expires_at"] is not None}

    def there() -> list[bool]:
        """Return the tables that contain some of them."""
        found = [{row["id"] for row in flow.rows(name) if row["content"] is not None} for name in tables]
        return [bool(ids & due) for ids in found]

    assert all(there())
    with open_job(settings, spark, lambda: datetime.now(UTC) + timedelta(days=30)) as job:
        job.run_upkeep(vacuum=False)
    assert not any(there())
    assert flow.rows("raw_events") == []
    detail = flow.lake["events"].delta(spark).detail().first()
    assert detail is not None
    assert detail["numFiles"] == 1


def _run(job: Job, should_stop: Callable[[PipelineProgress], bool]) -> None:
    """Run until it reports that it is done."""
    stop = threading.Event()

    def tell(progress: PipelineProgress) -> None:
        if should_stop(progress):
            stop.set()

    job.run(stop, tell)


def test_a_stream_goes_on_when_somebody_answers_again(
    spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transient fault does not end the job, whatever was written before it; any other does."""
    monkeypatch.setattr("enc.dataview.pipeline.streams.RESTART_DELAY_S", 0.0)
    log = random_log(23, 20, "club").log()
    log.archive(tmp_path / "0.enc")
    faults: dict[str, Exception] = {
        "after raw_events": Unreachable("cannot reach it"),
        "after fold": Unavailable("not now"),
    }

    shares = set[str | None]()

    def reached(point: str) -> None:
        shares.add(share_of(spark))
        if point in faults:
            raise faults.pop(point)

    settings = JobSettings(root=flow.lake.root, sources=({"format": "enc_archive", "path": str(tmp_path / "0.enc")},))
    job = Job(settings, spark, reached, time_of_creation)
    _run(job, lambda progress: not faults and progress.events == len(log.events) and not progress.waiting)
    flow.check([log])
    assert shares == {"streams"}, "also of a stream that was restarted"
    random_log(24, 20, "club").log().archive(tmp_path / "1.enc")
    settings = replace(settings, sources=({"format": "enc_archive", "path": str(tmp_path / "1.enc")},))
    faults["after raw_events"] = ValueError("no such thing")
    with pytest.raises(Unavailable, match=r"stopped: .*ValueError: no such thing$"):
        Job(settings, spark, reached, time_of_creation).run(threading.Event())
    faults["after raw_events"] = Unreachable("cannot reach it")
    with pytest.raises(Unavailable, match=r"stopped: .*Unreachable: cannot reach it$"):
        Job(settings, spark, reached, time_of_creation).drain()


def test_a_job_that_is_to_end_begins_no_further_view(
    spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enc.dataview.pipeline.periodic_tasks.RECOUNT_S", 0.0)
    random_log(29, 5, "club").log().archive(tmp_path / "0.enc")
    source = {"format": "enc_archive", "path": str(tmp_path / "0.enc")}
    job = Job(JobSettings(root=flow.lake.root, sources=(source,), views_seconds=0.0, upkeep_seconds=0.0), spark)
    stop, made, others = threading.Event(), list[str](), list[str]()

    def build(views: Views, spark: SparkSession, view: View, *_: object) -> BuildResult:
        made.append(view.name)
        stop.set()
        return BuildResult(view.name, False)

    monkeypatch.setattr(Views, "_build", build)
    monkeypatch.setattr(job, "run_upkeep", lambda *, vacuum: others.append("upkeep"))
    monkeypatch.setattr(job, "recount", lambda: others.append("count"))
    monkeypatch.setattr(job, "_publish_status", lambda *_: others.append("reported as if all had been built"))
    job.run(stop)
    assert (len(made), others) == (1, [])


def test_how_far_it_is_is_told_while_views_are_made(
    spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_log(25, 5, "club").log().archive(tmp_path / "0.enc")
    source = {"format": "enc_archive", "path": str(tmp_path / "0.enc")}
    job = Job(JobSettings(root=flow.lake.root, sources=(source,), views_seconds=0.0), spark)
    making, told = threading.Event(), threading.Event()

    def build(should_stop: Callable[[], bool]) -> list[BuildResult]:
        making.set()
        assert told.wait(60), "no progress was reported meanwhile"
        return []

    def should_stop(_: PipelineProgress) -> bool:
        if making.is_set():
            told.set()
        return told.is_set()

    monkeypatch.setattr(job, "build", build)
    _run(job, should_stop)


def test_streams_have_a_share_of_their_own_and_stop_for_no_log(
    spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views are built in the default pool, and logs are checkpointed beside the streams."""
    monkeypatch.setattr("enc.dataview.pipeline.periodic_tasks.CHECKPOINTS_S", 0.0)
    monkeypatch.setattr("enc.dataview.pipeline.job.CHECKPOINTS_S", 0.0)
    monkeypatch.setattr("enc.dataview.pipeline.job.CHECKPOINT_AFTER", 1)
    random_log(28, 5, "club").log().archive(tmp_path / "0.enc")
    source = {"format": "enc_archive", "path": str(tmp_path / "0.enc")}
    shares: dict[str, str | None] = {}

    def share(point: str) -> None:
        shares[point] = share_of(spark)

    def build(should_stop: Callable[[], bool]) -> list[BuildResult]:
        share("views")
        return []

    job = Job(JobSettings(root=flow.lake.root, sources=(source,), views_seconds=0.0), spark, share)
    monkeypatch.setattr(job, "build", build)
    told, log = list[int](), Path(flow.lake["fold"].path) / "_delta_log" / "_last_checkpoint"

    def should_stop(progress: PipelineProgress) -> bool:
        told.append(progress.events)
        return (log.exists() and shares.keys() >= {"ingest", "derive", "views"}) or len(told) == 60

    spark.sparkContext.setLocalProperty(POOL, "mine")
    try:
        _run(job, should_stop)
        assert share_of(spark) == "mine"
    finally:
        spark.sparkContext.setLocalProperty(POOL, None)  # type: ignore[arg-type]
    assert (shares["ingest"], shares["derive"], shares["views"]) == ("streams", "streams", None)
    assert log.exists()
    assert spark.sparkContext._jsc.sc().getSchedulingMode().toString() == "FAIR"


def test_a_log_that_cannot_be_written_down_keeps_nobody_from_anything(
    spark: SparkSession, flow: Flow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and again after a success; other tables are checkpointed."""
    tried, full = list[str](), [True, True, False, True]

    def checkpoint_log(table: Table, spark: SparkSession, after: int) -> None:
        tried.append(table.name)
        if table.name == "raw_events" and full.pop(0):
            raise PySparkException("the disk is full")

    monkeypatch.setattr(Table, "checkpoint_log", checkpoint_log)
    job = Job(JobSettings(root=flow.lake.root), spark)
    for _ in range(4):
        job.checkpoint_logs()
    assert tried == [*flow.lake.names] * 4
    assert caplog.messages == ["cannot checkpoint the log of raw_events: the disk is full"] * 2


def test_what_is_refused_late_is_counted(
    spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enc.dataview.pipeline.periodic_tasks.RECOUNT_S", 0.0)
    random_log(27, 5, "club").log().archive(tmp_path / "0.enc")
    source = {"format": "enc_archive", "path": str(tmp_path / "0.enc")}
    job = Job(JobSettings(root=flow.lake.root, sources=(source,), views_seconds=0.0), spark)
    told = list[int]()

    def build(should_stop: Callable[[], bool]) -> list[BuildResult]:
        nothing = driver_frame(spark, [(None,) * len(QUARANTINE)], QUARANTINE)
        flow.lake["quarantine"].append(nothing, Txn("test", 0))
        return []

    def should_stop(progress: PipelineProgress) -> bool:
        told.append(progress.quarantined)
        return told[-1] > 0 or len(told) == 60

    monkeypatch.setattr(job, "build", build)
    _run(job, should_stop)
    assert told[-1] == 1


@pytest.mark.parametrize("stopping", [False, True])
def test_views_that_cannot_be_looked_for_end_the_job(
    spark: SparkSession, flow: Flow, tmp_path: Path, stopping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the job ends; and streams are stopped once no task holds their turn."""
    random_log(26, 5, "club").log().archive(tmp_path / "0.enc")
    source = {"format": "enc_archive", "path": str(tmp_path / "0.enc")}
    job = Job(JobSettings(root=flow.lake.root, sources=(source,), views_seconds=0.0), spark)
    stop, order = threading.Event(), list[str]()

    class Chores(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait, cancel_futures=cancel_futures)
            order.append("no chores")

    def stopped(query: StreamingQuery) -> None:
        order.append("stopped")
        real(query)

    def build(should_stop: Callable[[], bool]) -> list[BuildResult]:
        if stopping:
            stop.set()
        raise Unavailable("the disk is full")

    real = StreamingQuery.stop
    monkeypatch.setattr("enc.dataview.pipeline.job.ThreadPoolExecutor", Chores)
    monkeypatch.setattr(StreamingQuery, "stop", stopped)
    monkeypatch.setattr(job, "build", build)
    with pytest.raises(Unavailable, match="the disk is full"):
        job.run(stop)
    assert order == ["no chores", "stopped", "stopped"]


def test_a_job_writes_nothing_where_another_is_the_writer(spark: SparkSession, flow: Flow) -> None:
    source = {"format": "enc_archive", "path": flow.lake.root}
    with open_job(JobSettings(root=flow.lake.root, sources=(source,)), spark) as job:
        stop = threading.Event()
        stop.set()
        acts: list[Callable[[], object]] = [job.drain, job.build, job.run_upkeep]
        acts += [lambda: job.rebuild("tags"), lambda: job.run(stop)]
        with LakeLock(flow.lake.root).locked("another"):
            for act in acts:
                with pytest.raises(MisuseError, match=r"one writer, and `another` \(process"):
                    act()


def test_no_source_no_job(spark: SparkSession, flow: Flow) -> None:
    with (
        open_job(JobSettings(root=flow.lake.root), spark) as job,
        pytest.raises(MisuseError, match="name at least one"),
    ):
        job.drain()
