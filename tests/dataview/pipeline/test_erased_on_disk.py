"""After upkeep, no file holds an erased text: not of the lake, the landing zone or the database."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.dataview.pipeline.job import Job, JobSettings
from enc.dataview.pipeline.upkeep import LakeRetention
from enc.dataview.rows.raw_rows import RowOrigin, raw_batch
from enc.dataview.source.landing import LandingZone
from enc.dataview.source.receive import ReceiverPaths
from enc.dataview.views.catalog import built_in
from tests.core.world import START, World, about
from tests.dataview.disk import files_with
from tests.dataview.flow import AT, Flow
from tests.dataview.logs import log_of
from tests.dataview.pipeline.test_job import time_of_creation
from tests.dataview.random_logs import CLUB

MARKERS = [f"marker-{name}-Zq8vX2" for name in ("deleted", "replaced", "expired", "kept", "new", "late")]
DELETED, REPLACED, EXPIRED, KEPT, NEW, LATE = MARKERS


@pytest.fixture
def job(spark: SparkSession, flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job whose lake holds a log with a Delete, an Update and a content that expires. One more
    event has arrived.
    """
    few = tuple(view for view in built_in() if view.name in ("tags", "timeline"))
    monkeypatch.setattr("enc.dataview.views.catalog.built_in", lambda: few)
    world = World(CLUB)
    first, second = world.send("alice", "public", DELETED), world.send("alice", "public", REPLACED)
    world.send("alice", "public", KEPT)
    before = len(world.events)
    world.send("alice", "Delete", {"reason": "author"}, tags=about(first))
    world.send("alice", "Update", NEW, tags=about(second))
    world.send("alice", "public", EXPIRED, tags=(("auto-delete", str(START + 10_000_000)),))
    deleted = len(world.events)
    world.send("alice", "public", LATE)
    log, zone = log_of(world), ReceiverPaths(flow.lake.root).create()
    place, retention = str(tmp_path / "serving.db"), LakeRetention(vacuum_hours=0)
    made = Job(
        JobSettings(root=flow.lake.root, sources=(zone.source,), database=place, retention=retention),
        spark,
        now=time_of_creation,
    )
    for name, part in (("1", slice(0, before)), ("2", slice(before, deleted)), ("3", slice(deleted, None))):
        rows = raw_batch(log.wire[part], RowOrigin("push:test", None, log.enc_v), AT)
        LandingZone(zone.landing).put(name, rows)
        if name != "3":
            made.drain()
    return made


def test_no_file_holds_an_erased_text(job: Job, tmp_path: Path) -> None:
    def found() -> set[str]:
        return {text for text in MARKERS if files_with(tmp_path, text)}

    with closing(sqlite3.connect(tmp_path / "serving.db")) as reader:  # keeps the write-ahead log on the disk
        reader.execute("SELECT count(*) FROM view_events").fetchall()
        assert found() == set(MARKERS)
        job.run_upkeep(vacuum=False)
        assert found() == set(MARKERS), "older versions of the tables are still there"
        job.run_upkeep()
        assert [files_with(tmp_path, text) for text in (DELETED, REPLACED)] == [[], []]
        assert found() == {EXPIRED, KEPT, NEW, LATE}
        assert [each for each in files_with(tmp_path, EXPIRED) if "landing" in each] == []
        job._now = lambda: datetime.fromtimestamp(0, AT.tzinfo) + timedelta(milliseconds=START + 20_000_000)
        job.upkeep.retention = LakeRetention(vacuum_hours=0, small_files=1)
        job.run_upkeep()
        assert files_with(tmp_path, EXPIRED) == []
        assert found() == {KEPT, NEW, LATE}
    job.drain()  # the streams continue over tables that were clustered, purged and vacuumed
    contents = job.lake["content_status"].read(job.spark).where("content IS NOT NULL").collect()
    assert {row["content"] for row in contents} == {KEPT, NEW, LATE}
    assert job.lake["events"].read(job.spark).count() == job.lake["raw_events"].read(job.spark).count()
    job.close()
