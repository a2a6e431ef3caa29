"""A driver in a separate process, for tests that kill it. Arguments: MASTER LAKE ARCHIVES [POINT].

It ingests the archives into the lake through both streams. At the named point, if given, it ends as
by SIGKILL.
"""

import os
import signal
import sys
from datetime import UTC, datetime

from enc.dataview.lake.session import SMALL_LAKE_CONF, spark_session
from enc.dataview.pipeline.job import Job, JobSettings
from tests.cluster import SMALL as CLUSTER
from tests.cluster import SMALL_JAVA
from tests.core.world import START

SMALL = {**SMALL_LAKE_CONF, "spark.driver.extraJavaOptions": SMALL_JAVA}


def main(master: str, lake: str, archives: str, point: str = "") -> None:
    def reached(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    path = os.environ["PYTHONPATH"]
    spark = spark_session("test", master, {"spark.executorEnv.PYTHONPATH": path, **CLUSTER, **SMALL})
    # The beginning of the logs: no content has expired yet.
    settings = JobSettings(root=lake, sources=({"format": "enc_archive", "path": archives},))
    job = Job(settings, spark, reached, lambda: datetime.fromtimestamp(START / 1000, UTC))
    [ingest] = job.ingest(availableNow=True)
    ingest.awaitTermination()
    job.derive(availableNow=True).awaitTermination()
    job.close()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
