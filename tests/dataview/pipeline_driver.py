"""A driver in a process of its own, for tests that kill it. Its words: MASTER LAKE ARCHIVES [POINT].

Takes the archives into the lake, through both streams; at the named point, if one is given, it ends as by SIGKILL.
"""

import os
import signal
import sys
from datetime import UTC, datetime

from enc.dataview.job import Job, JobSettings
from enc.dataview.session import spark_session
from tests.cluster import SMALL as CLUSTER
from tests.core.world import START

SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Hadoop starts a process, readlink, for every file that the others rename.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
"""For few rows, compiling a query takes longer than running it."""


def main(master: str, lake: str, archives: str, point: str = "") -> None:
    def reached(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    path = os.environ["PYTHONPATH"]
    spark = spark_session("test", master, {"spark.executorEnv.PYTHONPATH": path, **CLUSTER, **SMALL})
    # When the logs begin: no content has had its time yet.
    settings = JobSettings(root=lake, sources=({"format": "enc_archive", "path": archives},))
    job = Job(settings, spark, reached, lambda: datetime.fromtimestamp(START / 1000, UTC))
    for stream in (job.ingest, job.derive):
        stream(availableNow=True).awaitTermination()
    job.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
