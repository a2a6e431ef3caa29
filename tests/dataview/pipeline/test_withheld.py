"""Withheld contents through the pipeline: tables, the serving database, and what comes again."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from enc.core.log.event import erase
from enc.core.log.withheld import wire_withheld
from enc.core.primitives.types import Event
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import SPECS, Lake
from enc.dataview.lake.tables import Table
from enc.dataview.pipeline.upkeep import Upkeep
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from tests.core.machine.enclave_town import town
from tests.core.world import START, World, about, withheld
from tests.dataview.flow import Flow, rows_of_logs
from tests.dataview.logs import Log, log_of

Json = dict[str, Any]


class Town:
    """A log with notes of bob, whose events may be replaced before they are read."""

    def __init__(self) -> None:
        self.world: World = town()
        self.notes = [self.world.send("bob", "note", f"note {n}") for n in range(4)]

    def log(self, *instead: Event) -> Log:
        """Return the log with these events instead of those of the same seq."""
        log = log_of(self.world)
        for event in instead:
            log.events[event.seq] = event
        return log


@pytest.fixture
def made() -> Town:
    return Town()


def feed(flow: Flow, log: Log, part: slice = slice(None)) -> None:
    flow.feed(rows_of_logs(flow.spark, [(log, part)]))


def said(event: Event) -> Json:
    assert event.withheld is not None
    return wire_withheld(event.withheld)


def shown(flow: Flow, table: str, event: Event) -> tuple[str | None, Json | None]:
    """Return the content and the statement in the table's only row of this event."""
    (row,) = (row for row in flow.rows(table) if row["id"] == event.id.hex())
    return row["content"], row["withheld"]


def whole(flow: Flow, log: Log) -> None:
    """Check that every event is there once, and nothing was rejected."""
    assert [row["seq"] for row in flow.rows("events", "seq")] == list(range(len(log.events)))
    assert flow.rows("quarantine") == []
    assert [(row["events"], row["missing"]) for row in flow.rows("heads")] == [(len(log.events), 0)]


@pytest.mark.parametrize("limits", [DriverLimits(), DriverLimits(max_rows=2)], ids=["on the driver", "on executors"])
def test_withheld_contents_are_neither_rejected_nor_called_erased(
    spark: SparkSession, empty_lake: Path, tmp_path: Path, made: Town, limits: DriverLimits
) -> None:
    flow, (plain, gone, foreign, old) = Flow.at(spark, empty_lake, tmp_path / "lake", limits), made.notes
    update = made.world.send("bob", "Update", "new", tags=about(old))
    held, new = withheld(plain), withheld(update)
    log = made.log(held, erase(gone), withheld(foreign, "node3"), new)
    feed(flow, log)
    whole(flow, log)
    assert shown(flow, "events", held) == shown(flow, "content_status", held) == (None, said(held))
    assert shown(flow, "events", new) == (None, said(new))
    assert shown(flow, "content_status", old) == (None, said(new))
    for event in (gone, foreign):
        assert shown(flow, "events", event) == shown(flow, "content_status", event) == (None, None)
    raw = {row["id"]: json.loads(row["event"]) for row in flow.rows("raw_events")}
    assert raw[held.id.hex()]["withheld"] == said(held)
    assert "withheld" in raw[foreign.id.hex()]


def test_a_content_that_is_shown_again_returns_everywhere(flow: Flow, made: Town, tmp_path: Path) -> None:
    writer = ServingWriter(str(tmp_path / "serving.db"))
    flow.publisher = ChangePublisher(writer)
    note, other = made.notes[:2]
    update = made.world.send("bob", "Update", "new", tags=about(other))
    feed(flow, made.log(withheld(note), withheld(update)))
    assert served(writer, "events", note) == served(writer, "content_status", note) == (None, said(withheld(note)))
    upkeep = Upkeep(flow.lake, publisher=flow.publisher)
    upkeep.settle(flow.spark)
    assert shown(flow, "content_status", note) == (None, said(withheld(note)))
    for _ in range(2):
        feed(flow, made.log())
        upkeep.settle(flow.spark)
        upkeep.erase(flow.spark)
        whole(flow, made.log())
        assert shown(flow, "events", note) == shown(flow, "content_status", note) == ("note 0", None)
        assert shown(flow, "events", update) == ("new", None)
        assert shown(flow, "content_status", other) == ("new", None)
        assert served(writer, "events", note) == served(writer, "content_status", note) == ("note 0", None)
    writer.close()


def served(writer: ServingWriter, name: str, event: Event) -> tuple[str | None, Json | None]:
    with writer._database.reading() as snapshot:
        stored = snapshot.view(name)
        assert stored is not None
        (row,) = (row for row in snapshot.rows(snapshot.table(stored.schema).select()) if row.id == event.id.hex())
    return row.content, json.loads(row.withheld or "null")


def test_a_copy_that_was_read_before_is_kept_also_if_both_come_in_one_batch(flow: Flow, made: Town) -> None:
    note = made.notes[0]
    log, hidden = made.log(), made.log(withheld(note))
    flow.feed(rows_of_logs(flow.spark, [(hidden, slice(None)), (log, slice(None))]))
    for _ in range(2):
        whole(flow, log)
        assert shown(flow, "events", note) == shown(flow, "content_status", note) == ("note 0", None)
        feed(flow, hidden)


def test_statements_of_a_later_node_count_once_its_migrate_is_there(flow: Flow, made: Town) -> None:
    note, back, deleted, updated = made.notes
    migrate = made.world.send("alice", "Migrate", made.world.migrate("node2"))
    made.world.send("bob", "Delete", {"reason": "author"}, tags=about(deleted), node="node2")
    made.world.send("bob", "Update", "new", tags=about(updated), node="node2")
    every = [withheld(event, "node2") for event in made.notes]
    log, upkeep = made.log(*every), Upkeep(flow.lake)
    feed(flow, log, slice(0, migrate.seq))
    feed(flow, made.log(), slice(back.seq, back.seq + 1))
    upkeep.remove_rows(flow.spark, datetime.fromtimestamp(START / 1000, UTC))
    assert shown(flow, "events", note) == shown(flow, "content_status", note) == (None, None)
    assert shown(flow, "events", back)[0] == "note 1"
    feed(flow, log, slice(migrate.seq, None))
    for _ in range(2):
        upkeep.remove_rows(flow.spark, datetime.fromtimestamp(START / 1000, UTC))
        whole(flow, log)
        assert shown(flow, "events", note) == shown(flow, "content_status", note) == (None, said(every[0]))
        assert shown(flow, "events", back) == ("note 1", None)
        assert shown(flow, "content_status", deleted) == (None, None)
        assert shown(flow, "content_status", updated) == ("new", None)
        assert flow.rows("statements") == []


def test_what_is_deleted_is_erased_and_no_longer_withheld(flow: Flow, made: Town) -> None:
    note = made.notes[0]
    made.world.send("bob", "Delete", {"reason": "author"}, tags=about(note))
    feed(flow, made.log(withheld(note)))
    upkeep = Upkeep(flow.lake)
    for _ in range(2):
        upkeep.remove_rows(flow.spark, datetime.fromtimestamp(START / 1000, UTC))
        assert shown(flow, "events", note) == shown(flow, "content_status", note) == (None, None)
        assert all(
            json.loads(row["event"])["content"] is None for row in flow.rows("raw_events") if row["id"] == note.id.hex()
        )
        feed(flow, made.log())  # an older archive, with the content


def test_the_tables_of_an_earlier_version_get_the_columns(spark: SparkSession, tmp_path: Path, made: Town) -> None:
    root = str(tmp_path / "lake")
    for name in ("events", "content_status"):
        spec = SPECS[name]
        older = StructType([field for field in spec.schema if field.name != "withheld"])
        Table(root, replace(spec, schema=older)).create(spark)
    Lake(root).create(spark)
    note = made.notes[0]
    flow = Flow(spark, Path(root))
    feed(flow, made.log(withheld(note)))
    assert shown(flow, "events", note) == shown(flow, "content_status", note) == (None, said(withheld(note)))
