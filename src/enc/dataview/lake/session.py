"""Builds the SparkSession: with Delta Lake, and with settings for one machine and for a cluster."""

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
    check_java()
    if not master.startswith(MASTERS):
        raise MisuseError(f"master: {master[:60]}: expected {', '.join(MASTERS[:-1])} or {MASTERS[-1]}")
    jars = ",".join(str(jar) for jar in delta_jars())
    # Executors use this Python, unless the machine's environment names another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master).config("spark.jars", jars)
    java = {"spark.driver.extraJavaOptions": LOCAL_JAVA} if master.startswith("local") else {}
    for name, value in {**DEFAULTS, **java, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


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


def delta_jars() -> list[Path]:
    """Return Delta's jars, from the directory in ENC_JARS or from where `make setup` puts them."""
    named = os.environ.get("ENC_JARS")
    directory = Path(named) if named else Path(sys.prefix) / "share" / "enc" / "jars"
    missing = [name for name in JARS if not (directory / name).is_file()]
    if missing:
        raise MisuseError(
            f"{directory}: {' and '.join(missing)} missing; "
            "run scripts/jars with the virtual environment's directory, or set ENC_JARS to a directory that has them"
        )
    return [directory / name for name in JARS]


def check_java() -> None:
    """Check that Java is at least 17. Spark's own message about an older one does not help."""
    java = _java()
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as e:
        raise MisuseError(f"{java}: cannot be run: {e}; {_INSTALL_HINT}") from None
    version = java_version(done.stderr + done.stdout)
    if version is None or version < JAVA:
        found = "no Java version found" if version is None else f"Java {version} found"
        raise MisuseError(f"{java}: {found}, but Spark needs {JAVA} or newer; {_INSTALL_HINT}")


_INSTALL_HINT = f"install Java {JAVA} (Debian: openjdk-{JAVA}-jre-headless), or set JAVA_HOME to its directory"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise MisuseError(f"Spark needs Java, and none was found; {_INSTALL_HINT}")
    return found


def java_version(said: str) -> int | None:
    """Return the major version from the output of `java -version`; 1.8 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
