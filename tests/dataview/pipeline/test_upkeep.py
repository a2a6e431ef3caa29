"""Upkeep removes what it must, and nothing else."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from enc.core.log.event import parse_event
from enc.dataview.lake.driver_rows import driver_frame
from enc.dataview.lake.tables import Txn
from enc.dataview.pipeline.upkeep import LakeRetention, Upkeep
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from tests.core.world import START
from tests.dataview.flow import AT, Flow, rows_of_logs
from tests.dataview.random_logs import RandomLog


def test_upkeep(spark: SparkSession, flow: Flow, tmp_path: Path) -> None:
    """Removed rows are not served any more."""
    writer = ServingWriter(str(tmp_path / "serving.db"))
    flow.publisher = ChangePublisher(writer)
    made = RandomLog(8, "v1", quiet=True).grow(40)
    log = made.log()
    flow.feed(rows_of_logs(spark, [(log, slice(0, 40))]))
    upkeep = Upkeep(flow.lake, LakeRetention(small_files=1, raw_days=1), flow.publisher)
    before = _served(writer, "events")
    upkeep.expire(spark, datetime.fromtimestamp(START / 1000, UTC))
    upkeep.erase(spark)
    upkeep.compact_and_vacuum(spark, flow.lake["events"])
    flow.check([log], ["content_status", "timeline"])
    # Like the node, which has erased what Updates and Deletes removed, and no more.
    gone = {event.id.hex() for event in made.log(erased=True).events if event.content is None}
    assert gone
    for row in flow.rows("events"):
        assert (row["content"] is None) == (row["id"] in gone), row["seq"]
    for row in flow.rows("raw_events"):
        wire = json.loads(row["event"])
        assert (wire["content"] is None) == (row["id"] in gone)
        assert parse_event(row["event"]).id.hex() == row["id"]
    detail = flow.lake["events"].delta(spark).detail().first()
    assert detail is not None
    assert detail["numFiles"] == 1
    early = {name: _check_served(flow, writer, name) for name in ("events", "content_status")}
    assert early["events"] != before
    # A month later the auto-delete times have passed, and raw rows are old.
    late = AT + timedelta(days=30)
    upkeep.expire(spark, late)
    upkeep.erase(spark)
    upkeep.retain(spark, late)
    assert flow.rows("raw_events") == []
    assert all(row["content"] is None for row in flow.rows("content_status") if row["expires_at"] is not None)
    kept = {row["id"] for row in flow.rows("events") if row["content"] is not None}
    assert not kept & {row["id"] for row in flow.rows("content_status") if row["expires_at"] is not None}
    assert kept & {row["id"] for row in flow.rows("content_status")}
    for name, served in early.items():
        assert _check_served(flow, writer, name) != served
    writer.close()


def _served(writer: ServingWriter, name: str) -> dict[str, str | None]:
    """Return the served contents by event id."""
    with writer._database.reading() as snapshot:
        stored = snapshot.view(name)
        assert stored is not None
        assert [seq for _, seq in snapshot.progress(name, 10)] == [40]
        return {row.id: row.content for row in snapshot.rows(snapshot.table(stored.schema).select())}


def _check_served(flow: Flow, writer: ServingWriter, name: str) -> dict[str, str | None]:
    """Check that the serving database has the contents of the table, and return them."""
    found = _served(writer, name)
    assert found == {row["id"]: row["content"] for row in flow.rows(name)}
    return found


def test_what_was_erased_and_comes_again_goes_again(spark: SparkSession, flow: Flow) -> None:
    """From another source, such as an older archive."""
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


def test_what_no_version_needs_is_off_the_disk_as_soon_as_it_is_asked_for_and_not_before(
    spark: SparkSession, flow: Flow
) -> None:
    for part in (slice(0, 5), slice(5, 10)):
        flow.ingest(rows_of_logs(spark, [(RandomLog(8, "v1", quiet=True).grow(10).log(), part)]))
        flow.batch += 1
    events, at_once = flow.lake["events"], Upkeep(flow.lake, LakeRetention(small_files=1, vacuum_hours=0))

    def files() -> set[Path]:
        return set(Path(events.path).glob("*.parquet"))

    before, then = files(), events.version(spark)
    at_once.compact_and_vacuum(spark, events, vacuum=False)
    Upkeep(flow.lake, LakeRetention(vacuum_hours=1)).compact_and_vacuum(spark, events)
    [whole] = files() - before
    assert files() > before, "readers of an older version still have it"
    assert events.read_version(spark, then).count() == 10
    at_once.compact_and_vacuum(spark, events)
    assert files() == {whole}
    assert [row["seq"] for row in flow.rows("events", "seq")] == list(range(10))


def test_what_is_older_than_its_retention_goes_and_nothing_younger(spark: SparkSession, flow: Flow) -> None:
    names = ("raw_events", "quarantine")
    for name in names:
        columns = flow.lake[name].spec.schema
        times = [AT - timedelta(days=days) for days in range(5)]
        rows = [tuple(at if column.name == "received_at" else None for column in columns) for at in times]
        flow.lake[name].append(driver_frame(spark, rows, columns), Txn("test", 0))

    def days(retention: LakeRetention) -> list[list[int]]:
        """Return the ages of each table's rows after upkeep with this retention."""
        Upkeep(flow.lake, retention).retain(spark, AT)
        times = [[row["received_at"].replace(tzinfo=UTC) for row in flow.rows(name)] for name in names]
        return [sorted((AT - at).days for at in each) for each in times]

    assert days(LakeRetention()) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], "for ever, unless the option is given"
    assert days(LakeRetention(raw_days=3)) == [[0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert days(LakeRetention(quarantine_days=1.5)) == [[0, 1, 2, 3], [0, 1]]
    assert days(LakeRetention(raw_days=0.5, quarantine_days=2)) == [[0], [0, 1]]
