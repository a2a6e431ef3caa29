"""Upkeep: what must go is gone, and nothing else."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from enc.core.event import parse_event
from enc.dataview.upkeep import Keeping, Upkeep
from tests.core.world import START
from tests.dataview.flow import AT, Flow, rows_of_logs
from tests.dataview.random_logs import RandomLog


def test_upkeep(spark: SparkSession, flow: Flow) -> None:
    made = RandomLog(8, "v1", quiet=True).grow(40)
    log = made.log()
    flow.feed(rows_of_logs(spark, [(log, slice(0, 40))]))
    upkeep = Upkeep(flow.lake, Keeping(small_files=1, raw_days=1))
    upkeep.expire(spark, datetime.fromtimestamp(START / 1000, UTC))
    upkeep.erase(spark)
    upkeep.tidy(spark, flow.lake["events"])
    flow.check([log], ["content_status", "timeline"])
    # As the node, which has erased what Updates and Deletes took away, and no more.
    gone = {event.id.hex() for event in made.log(erased=True).events if event.content is None}
    assert gone
    for row in flow.rows("events"):
        assert (row["content"] is None) == (row["id"] in gone), row["seq"]
    for row in flow.rows("raw_events"):
        wire = json.loads(row["event"])
        assert (wire["content"] is None) == (row["id"] in gone)
        assert parse_event(row["event"]).id.hex() == row["id"]
    assert flow.lake["events"].delta(spark).detail().first()["numFiles"] == 1
    # A month later the auto-delete times have passed, and what is raw is old.
    late = AT + timedelta(days=30)
    upkeep.expire(spark, late)
    upkeep.erase(spark)
    upkeep.retain(spark, late)
    assert flow.rows("raw_events") == []
    assert all(row["content"] is None for row in flow.rows("content_status") if row["expires_at"] is not None)
    kept = {row["id"] for row in flow.rows("events") if row["content"] is not None}
    assert not kept & {row["id"] for row in flow.rows("content_status") if row["expires_at"] is not None}
    assert kept & {row["id"] for row in flow.rows("content_status")}


def test_what_was_erased_and_comes_again_goes_again(spark: SparkSession, flow: Flow) -> None:
    """From another source, such as an archive that was made before."""
    made = RandomLog(8, "v1", quiet=True).grow(20)
    rows = rows_of_logs(spark, [(made.log(), slice(0, 20))])
    gone = {event.id.hex() for event in made.log(erased=True).events if event.content is None}
    upkeep = Upkeep(flow.lake)
    for times in (1, 2):
        flow.feed(rows)
        upkeep.erase(spark)
        found = flow.rows("raw_events")
        assert len(found) == 20 * times
        assert {row["id"] for row in found if json.loads(row["event"])["content"] is None} == gone
        assert {row["id"] for row in found if json.loads(row["event"])["content"] is not None}.isdisjoint(gone)
        assert len(flow.rows("events")) == 20
    assert flow.rows("quarantine") == []


def test_what_no_version_needs_is_off_the_disk_as_soon_as_it_is_asked_for(spark: SparkSession, flow: Flow) -> None:
    for part in (slice(0, 5), slice(5, 10)):
        flow.ingest(rows_of_logs(spark, [(RandomLog(8, "v1", quiet=True).grow(10).log(), part)]))
        flow.batch += 1
    events = flow.lake["events"]
    Upkeep(flow.lake, Keeping(small_files=1, vacuum_hours=0)).tidy(spark, events)
    assert len(list(Path(events.path).glob("*.parquet"))) == 1
    assert [row["seq"] for row in flow.rows("events", "seq")] == list(range(10))
