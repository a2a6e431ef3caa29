"""The second half of the pipeline alone: behind the first half, and with late events."""

from pathlib import Path

from pyspark.sql import SparkSession

from enc.dataview.pipeline.derive import DERIVED as PUBLISHED
from enc.dataview.pipeline.derive import Derive
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.rows.schema import EVENTS
from tests.dataview.flow import SILVER, Flow, rows_of_logs
from tests.dataview.logs import Log
from tests.dataview.random_logs import random_log

DERIVED = [name for name in SILVER if name != "heads"]


def test_tables_say_what_has_come_so_far_also_where_more_is_there_already(spark: SparkSession, flow: Flow) -> None:
    """A late batch is computed from all events of an enclave, except those of later batches."""
    log, events, versions = random_log(7, 30, "club").log(), flow.lake["events"], list[int]()
    for part in (slice(10, 20), slice(0, 10), slice(20, 30)):
        versions.append(events.version(spark))
        flow.ingest(rows_of_logs(spark, [(log, part)]))
        flow.batch += 1
    versions.append(events.version(spark))
    derive = Derive(flow.context(), "derive:test")
    for batch, count in ((0, None), (1, 20), (2, 30)):
        new = events.changes(spark, versions[batch], versions[batch + 1])
        derive(new.select(*EVENTS.fieldNames()), batch)
        if count is not None:
            flow.check([Log(log.enclave, log.enc_v, log.events[:count])], DERIVED)
    assert [(row["next_seq"], row["events"]) for row in flow.rows("fold")] == [(30, 30)]


def test_what_late_events_change_is_served(spark: SparkSession, flow: Flow, tmp_path: Path) -> None:
    writer = ServingWriter(str(tmp_path / "serving.db"))
    flow.publisher = ChangePublisher(writer)
    log = random_log(7, 20, "club").log()
    for part in (slice(10, 20), slice(0, 10)):
        flow.feed(rows_of_logs(spark, [(log, part)]))
    with writer._database.reading() as snapshot:
        for name in PUBLISHED:
            stored, key = snapshot.view(name), flow.lake[name].key
            assert stored is not None
            served = snapshot.rows(snapshot.table(stored.schema).select())
            assert sorted(tuple(row._mapping[each] for each in key) for row in served) == sorted(
                tuple(row[each] for each in key) for row in flow.rows(name)
            ), name
            assert snapshot.progress(name, 10) == [(log.enclave, 20)]
    writer.close()
