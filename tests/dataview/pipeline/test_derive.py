"""The second half of the pipeline alone: behind the first half, and with late events."""

from pyspark.sql import SparkSession

from enc.dataview.pipeline.derive import Derive
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
