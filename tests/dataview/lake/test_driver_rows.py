"""Rows that the driver collects: only few, and within its memory, however few they are."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.dataview.lake.driver_rows import DriverLimits, collect_if_few
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from tests.core.world import GROUP, World, about, move
from tests.dataview.flow import Flow, rows_of_logs
from tests.dataview.logs import log_of

KIB = 1 << 10
LARGE, COUNT = 200 * KIB, 16
NARROW = DriverLimits(max_bytes=512 * KIB, max_row_bytes=4 * KIB)


@contextmanager
def narrow(spark: SparkSession) -> Iterator[None]:
    """Limit a query's result on the driver to 2 MiB, which catches any larger fetch."""
    settings, name = spark.sparkContext._jsc.sc().conf(), "spark.driver.maxResultSize"  # type: ignore[union-attr]
    others = {"spark.sql.execution.arrow.maxBytesPerBatch": "512k", "spark.sql.autoBroadcastJoinThreshold": "20k"}
    before = {key: spark.conf.get(key) for key in others}
    settings.set(name, "2m")
    for key, value in others.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        settings.remove(name)
        for key, set_before in before.items():
            spark.conf.set(key, str(set_before))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ServingWriter]:
    made = ServingWriter(str(tmp_path / "serving.db"), NARROW)
    yield made
    made.close()


def served(writer: ServingWriter, view: str) -> list[int]:
    """Return the size of each content, by seq."""
    with writer._database.reading() as snapshot:
        stored = snapshot.view(view)
        assert stored is not None
        return [len(row.content or "") for row in snapshot.rows(snapshot.table(stored.schema).select().order_by("seq"))]


def test_a_batch_of_large_contents_arrives_everywhere(spark: SparkSession, flow: Flow, writer: ServingWriter) -> None:
    """Their revisions, which are small themselves, arrive too."""
    world = World(GROUP)
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    sent = [world.send("bob", "message", secrets.token_hex(LARGE // 2)) for _ in range(COUNT)]
    first = len(world.events)
    for event in sent[1:]:
        world.send("bob", "Delete", {"reason": "author"}, tags=about(event))
    log = log_of(world)
    flow.limits, flow.publisher = NARROW, ChangePublisher(writer)
    flow.feed(rows_of_logs(spark, [(log, slice(0, 1))]))
    with narrow(spark):
        flow.feed(rows_of_logs(spark, [(log, slice(1, first))]))
        assert served(writer, "events")[2:] == served(writer, "content_status") == [LARGE] * COUNT
        flow.feed(rows_of_logs(spark, [(log, slice(first, None))]))
        assert served(writer, "content_status") == [LARGE] + [0] * (COUNT - 1)
    flow.check([log], ["content_status", "access"])
    assert len(flow.rows("events")) == len(log.events)


def test_rows_come_whole_if_all_of_them_are_no_more_than_there_is_room_for(spark: SparkSession) -> None:
    rows = spark.range(4).selectExpr("id", "repeat('é', 500) AS said", "array(array('r', repeat('x', 1000))) AS tags")
    expected = rows.toArrow()
    for room in (DriverLimits(), DriverLimits(max_row_bytes=100), DriverLimits(max_rows=4, max_bytes=10_000)):
        found = collect_if_few(rows, room)
        assert found is not None
        assert found.sort_by("id").to_pylist() == expected.to_pylist()
    for room in (
        DriverLimits(max_rows=3),
        DriverLimits(max_bytes=8000),
        DriverLimits(max_bytes=8000, max_row_bytes=100),
    ):
        assert collect_if_few(rows, room) is None
    nothing = collect_if_few(rows.where("id < 0"), DriverLimits(max_bytes=0))
    assert nothing is not None
    assert nothing.num_rows == 0
