"""The one place that builds a SparkSession: with Delta Lake, and with settings that suit one machine and a cluster."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError

JARS = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")
JAVA = 17
LOCAL = "local[*]"
MASTERS = ("local", "spark://", "yarn", "k8s://")
"""How the names of machines begin that Spark can run on."""
STREAMS = "streams"
"""The share of streams."""
_POOL = "spark.scheduler.pool"
SparkFault = (PySparkException, Py4JJavaError)
"""What Spark raises, for whoever tells people: in its own words, and in Java's where it has none."""
_CAUSE = re.compile(r"^(?:Caused by)?: ", re.MULTILINE)

_UNIQUE = ("event", "id", "content", "content_hash", "hash", "sig", "seq_sig")
"""Columns of which no two rows have the same: there are no repeats in them to look for."""

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
    # A commit of a small table is a job of so many tasks: with the defaults, 50 and 200, it takes ten seconds.
    "spark.databricks.delta.snapshotPartitions": "1",
    # To find out what stands in it takes most of the time that a small commit takes.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # How long old files are kept is said by whoever runs the pipeline; Delta refuses less than a week.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    **{f"spark.hadoop.parquet.enable.dictionary#{name}": "false" for name in _UNIQUE},
    "spark.sql.streaming.stopTimeout": "30s",
    # Whoever works less at the moment is next: a stream's short job does not wait for all tasks of a view's long one.
    "spark.scheduler.mode": "FAIR",
    # Hadoop starts a process, readlink, for every file that its other ways rename.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""What holds unless `settings` say otherwise. On a cluster, raise the numbers of partitions to that of its cores."""

QUICK: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For few rows at a time, as micro-batches have them: to compile a query takes longer than to run it."""
SMALL: Mapping[str, str] = {**QUICK, "spark.sql.shuffle.partitions": "1"}
"""For a whole lake of few rows."""
LOCAL_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""On one machine, Java's second compiler takes the cores that the work needs. What the first has compiled needs more
room than it gets by default, 48 MB: once that is full, everything new is interpreted.
"""


def spark_session(app: str = "enc", master: str = LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on one machine, or on a cluster by its `master`. `settings` are Spark's own, and win."""
    check_java()
    if not master.startswith(MASTERS):
        raise MisuseError(f"master: {master[:60]}: expected {', '.join(MASTERS[:-1])} or {MASTERS[-1]}")
    jars = ",".join(str(jar) for jar in delta_jars())
    # Python on the executors is this one, unless the machine's own variables say which.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master).config("spark.jars", jars)
    java = {"spark.driver.extraJavaOptions": LOCAL_JAVA} if master.startswith("local") else {}
    for name, value in {**DEFAULTS, **java, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def for_streams(spark: SparkSession) -> Iterator[None]:
    """Streams that are started here have a share of the machine of their own, beside that of everybody else."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, STREAMS)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)


def spark_says(error: Exception, most: int = 500) -> str:
    """The first line of it, or of its last cause; and, where Python ran inside Spark, what that raised."""
    text, mark = str(error).strip(), "Traceback (most recent call last):"
    if isinstance(error, Py4JJavaError):
        text = _CAUSE.split(text)[-1]
    first = text.split("\n", 1)[0].partition(mark)[0].rstrip(" :")
    raised = (line for line in text.rpartition(mark)[2].split("\n")[1:] if line and not line[0].isspace())
    last = next(raised, "") if mark in text else ""
    return f"{first[:most]}: {last[:most]}" if last else first[:most]


def delta_jars() -> list[Path]:
    """Delta's jars: in the directory that ENC_JARS names, or where `make setup` puts them."""
    named = os.environ.get("ENC_JARS")
    directory = Path(named) if named else Path(sys.prefix) / "share" / "enc" / "jars"
    missing = [name for name in JARS if not (directory / name).is_file()]
    if missing:
        raise MisuseError(
            f"{directory}: has no {' and no '.join(missing)}; "
            "run scripts/jars with the virtual environment's directory, or name one that has them in ENC_JARS"
        )
    return [directory / name for name in JARS]


def check_java() -> None:
    """Spark starts no older Java than 17, and says so in words that help nobody."""
    java = _java()
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as e:
        raise MisuseError(f"{java}: cannot be run: {e}; {_ADVICE}") from None
    version = java_version(done.stderr + done.stdout)
    if version is None or version < JAVA:
        found = "no Java that tells its version" if version is None else f"Java {version}"
        raise MisuseError(f"{java}: is {found}, and Spark needs {JAVA} or newer; {_ADVICE}")


_ADVICE = f"install Java {JAVA} (Debian: openjdk-{JAVA}-jre-headless), or name its home in JAVA_HOME"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise MisuseError(f"Spark needs Java, and there is none here; {_ADVICE}")
    return found


def java_version(said: str) -> int | None:
    """The major number in what `java -version` says; 1.8 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
