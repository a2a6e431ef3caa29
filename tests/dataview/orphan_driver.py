"""A driver whose Java process outlives it. Arguments: LAKE GATE EVENTS.

It writes a row to `raw_events`. Java's task waits until somebody has opened and closed the pipe
GATE. Spark writes its events to the directory EVENTS. A child process keeps Java's standard input
open, so Java does not end with the driver, but with the driver's own standard input.
"""

import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import SparkContext

from enc.dataview.lake.driver_rows import driver_frame
from enc.dataview.lake.session import spark_session
from enc.dataview.lake.tables import Txn
from enc.dataview.pipeline.job import Job, JobSettings
from tests.dataview.pipeline_driver import SMALL


def keep_java_alive(context: SparkContext) -> None:
    """Start a child that has only two files: its standard input, and the end of Java's."""
    java = context._gateway.proc.stdin.fileno()  # type: ignore[union-attr]
    if os.fork() == 0:
        os.dup2(java, 3)
        os.closerange(4, 4096)
        os.read(0, 1)
        os._exit(0)


def main(lake: str, gate: str, events: str) -> None:
    logs = {"enabled": "true", "compress": "false", "dir": f"file://{events}"}
    spark = spark_session(
        "orphan", "local[1]", {**SMALL, **{f"spark.eventLog.{name}": value for name, value in logs.items()}}
    )
    keep_java_alive(spark.sparkContext)

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        with open(gate) as file:
            file.read()

    job = Job(JobSettings(root=lake), spark)
    with job.lock.locked("enc dataview run"):
        table = job.lake["raw_events"]
        row = tuple("orphan" if field.name == "id" else None for field in table.spec.schema)
        rows = driver_frame(spark, [row], table.spec.schema).mapInArrow(wait, table.spec.schema)
        table.append(rows, Txn("orphan", 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
