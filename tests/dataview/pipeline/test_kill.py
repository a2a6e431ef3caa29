"""Killed at every named point in turn, and repeated: no row is missing or duplicated."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.dataview.fold.known_heads import Heads
from enc.dataview.pipeline.ingest import Ingest
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.source.staging import stage_rows
from tests.core.world import GROUP, World
from tests.dataview.flow import Flow, rows_of, rows_of_logs
from tests.dataview.logs import log_of
from tests.dataview.random_logs import random_log


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Kills after the first commit that it has not killed after yet.

    The state after a commit is the state before the next one.
    """

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def __call__(self, point: str) -> None:
        is_one_of_many = "publish" in point and point not in ("after publish events", "after publish content_status")
        if point.startswith("after") and not is_one_of_many and point not in self.done:
            self.done.append(point)
            raise Killed(point)


def killed_everywhere(flow: Flow, place: str, act: Callable[[Killer], None]) -> list[str]:
    """Repeat the action, killed one step later each time, until it completes; each time with empty
    caches.
    """
    points: list[str] = []
    while True:
        writer = ServingWriter(place)
        flow.publisher = ChangePublisher(writer)
        try:
            act(Killer(points))
        except Killed:
            continue
        else:
            return points
        finally:
            writer.close()


def test_ingest_killed_everywhere(spark: SparkSession, flow: Flow, tmp_path: Path) -> None:
    """With rows that are stored already, duplicates within the batch, and rejected rows."""
    place, log = str(tmp_path / "serving.db"), random_log(5, 20, "club").log()
    flow.ingest(rows_of_logs(spark, [(log, slice(0, 10))]))
    flow.batch += 1
    rest = rows_of_logs(spark, [(log, slice(5, 20)), (log, slice(18, 20))])
    bad = rows_of(spark, [b"garbage"])
    points = killed_everywhere(flow, place, lambda killer: flow.ingest(rest.unionByName(bad), killer))
    assert points == [
        *(f"after {name}" for name in ("raw_events", "quarantine", "events", "publish events", "heads")),
    ]
    flow.check([log], ["heads"])
    assert [row["seq"] for row in flow.rows("events", "seq")] == list(range(20))
    assert len(flow.rows("raw_events")) == 10 + 15 + 2 + 1
    assert len(flow.rows("quarantine")) == 1
    _check_served(flow, place, {"events": 20})


def test_another_source_comes_first_after_a_death_between_events_and_heads(spark: SparkSession, flow: Flow) -> None:
    """It brings the same events and those of the next sequencer; then the dead process's batch is
    repeated.
    """
    world = World(GROUP)
    for n in range(4):
        world.send("alice", "message", f"before {n}")
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    dead = log_of(world)
    for n in range(3):
        world.send("alice", "message", f"after {n}")
    log = log_of(world)
    rows = rows_of_logs(spark, [(dead, slice(0, 99))])
    flow.feed(rows_of_logs(spark, [(log, slice(0, 1))]))  # establishes the owner

    def die(point: str) -> None:
        if point == "after events":
            raise Killed(point)

    with pytest.raises(Killed):
        flow.ingest(rows, die)
    [before] = flow.rows("heads")
    assert before["next_seq"] == 1
    for app, batch in (("ingest:other", rows_of_logs(spark, [(log, slice(2, 99))])), ("ingest:test", rows)):
        flow.app = app
        flow.ingest(batch, lambda _: None)
        assert [row["seq"] for row in flow.rows("events", "seq")] == list(range(len(log.events)))
        flow.check([log], ["heads"])
        [head] = flow.rows("heads")
        assert [each["from_seq"] for each in head["sequencers"]] == [0, len(dead.events) - 1]
    assert flow.rows("quarantine") == []


def test_another_source_comes_first_after_a_batch_that_failed_between_events_and_heads(
    spark: SparkSession, flow: Flow
) -> None:
    """In one process that continues."""
    log, heads = random_log(7, 12, "club").log(), Heads(flow.lake, flow.limits)
    root = flow.lake.root

    def fail(point: str) -> None:
        if point == "after events":
            raise Killed(point)

    def take(app: str, some: slice, reached: Callable[[str], None] = lambda _: None) -> None:
        rows = rows_of_logs(spark, [(log, some)])
        Ingest(flow.context(reached), app, heads)(stage_rows(rows, root), some.start)

    take("ingest:one", slice(0, 4))
    with pytest.raises(Killed):
        take("ingest:one", slice(4, 12), fail)
    for app in ("ingest:other", "ingest:one"):
        take(app, slice(4, 12))
        assert [row["seq"] for row in flow.rows("events", "seq")] == list(range(12))
        flow.check([log], ["heads"])


def test_derive_killed_everywhere(spark: SparkSession, flow: Flow, tmp_path: Path) -> None:
    place, made = str(tmp_path / "serving.db"), [random_log(seed, 30, kind) for seed, kind in ((5, "club"), (6, "v1"))]
    logs = [each.log() for each in made]
    flow.feed(rows_of_logs(spark, [(log, slice(0, 20)) for log in logs]))
    flow.ingest(rows_of_logs(spark, [(log, slice(20, 30)) for log in logs]))
    points = killed_everywhere(flow, place, flow.derive)
    flow.check(logs)
    written = "access enclaves content_status fold".split()
    assert {f"after {name}" for name in written} <= set(points)
    assert "after publish content_status" in points
    gone = [(log.enclave, id_.hex()) for each, log in zip(made, logs, strict=True) for id_ in each.gone]
    assert sorted((row["enclave"], row["id"]) for row in flow.rows("erasures")) == sorted(gone)
    _check_served(flow, place, dict.fromkeys(("access", "enclaves", "content_status"), 30))


def _check_served(flow: Flow, place: str, next_seqs: dict[str, int]) -> None:
    """Check that the serving database has the same rows, and their progress."""
    with closing(sqlite3.connect(place)) as db:
        for name in next_seqs:
            [[count]] = db.execute(f"SELECT count(*) FROM view_{name}").fetchall()  # noqa: S608
            assert count == len(flow.rows(name)), name
    database = ServingDatabase(place)
    with database.reading() as snapshot:
        for name, next_seq in next_seqs.items():
            assert {found for _, found in snapshot.progress(name, 10)} == {next_seq}
    database.close()
