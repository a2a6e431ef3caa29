"""Builds the SparkSession: with Delta Lake, and with settings for one machine and for a cluster."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError
from enc.dataview.lake.jars import delta_jars
from enc.dataview.lake.java import check_java

LOCAL = "local[*]"
MASTERS = ("local", "spark://", "yarn", "k8s://")
"""Prefixes of supported Spark masters."""
STREAM_POOL = "streams"
"""Scheduler pool of the streams."""
_POOL = "spark.scheduler.pool"
SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""Exceptions that Spark raises, from Python and from Java."""
_CAUSE = re.compile(r"^(?:Caused by)?: ", re.MULTILINE)

_UNIQUE = ("event", "id", "content", "content_hash", "hash", "sig", "seq_sig")
"""Columns without repeated values: dictionary encoding is useless for them."""

DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
    # Contents may be a mebibyte each, and a batch is in memory several times.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    # A commit of a small table is a job of this many tasks: with the defaults, 50 and 200, it takes
    # ten seconds.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Computing it takes most of the time of a small commit.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # The operator sets how long old files are retained; Delta rejects less than a week.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    **{f"spark.hadoop.parquet.enable.dictionary#{name}": "false" for name in _UNIQUE},
    "spark.sql.streaming.stopTimeout": "30s",
    # The pool with fewer running tasks is served first: a stream's short job does not wait for a
    # view's long one.
    "spark.scheduler.mode": "FAIR",
    # Hadoop's other implementations start a process (readlink) for every file that they rename.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Default settings. On a cluster, raise the numbers of partitions to its number of cores."""

MICRO_BATCH_CONF: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for micro-batches: compiling a query takes longer than running it on few rows."""
SMALL_LAKE_CONF: Mapping[str, str] = {**MICRO_BATCH_CONF, "spark.sql.shuffle.partitions": "1"}
"""Settings for a small lake."""
LOCAL_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""On one machine, Java's second compiler takes cores that the work needs. The code of the first
needs more than the default 48 MB of cache: once that is full, all new code is interpreted.
"""


def spark_session(app: str = "enc", master: str = LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session on one machine, or on a cluster by its `master`. Spark's own `settings`
    override the defaults.
    """
    jars = ",".join(map(str, check_requirements()))
    if not master.startswith(MASTERS):
        raise MisuseError(f"master: {master[:60]}: expected {', '.join(MASTERS[:-1])} or {MASTERS[-1]}")
    # Executors use this Python, unless the machine's environment names another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master).config("spark.jars", jars)
    java = {"spark.driver.extraJavaOptions": LOCAL_JAVA} if master.startswith("local") else {}
    for name, value in {**DEFAULTS, **java, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_requirements() -> list[Path]:
    """Check that Spark can start here, and return Delta's jars. Raises MisuseError without Java or
    without the jars.
    """
    check_java()
    return delta_jars()


@contextmanager
def stream_pool(spark: SparkSession) -> Iterator[None]:
    """Give streams started in this block a scheduler pool of their own."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, STREAM_POOL)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)


def spark_message(error: Exception, most: int = 500) -> str:
    """Return the first line of an error or of its last cause, plus the exception that Python raised
    inside Spark.
    """
    text, mark = str(error).strip(), "Traceback (most recent call last):"
    if isinstance(error, Py4JJavaError):
        text = _CAUSE.split(text)[-1]
    first = text.split("\n", 1)[0].partition(mark)[0].rstrip(" :")
    raised = (line for line in text.rpartition(mark)[2].split("\n")[1:] if line and not line[0].isspace())
    last = next(raised, "") if mark in text else ""
    return f"{first[:most]}: {last[:most]}" if last else first[:most]
