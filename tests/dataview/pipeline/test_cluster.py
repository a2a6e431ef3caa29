"""On a standalone cluster of two workers, the driver and then an executor are killed; the tables
are correct.
"""

import os
import signal
from pathlib import Path

from tests.cluster import Cluster, Driver
from tests.dataview.flow import Flow
from tests.dataview.random_logs import random_log

DRIVER = "tests.dataview.pipeline_driver"


def test_killed_on_a_cluster(flow: Flow, cluster: Cluster, tmp_path: Path) -> None:
    logs = [random_log(seed, 10, kind).log() for seed, kind in enumerate(["club", "v1"])]
    (tmp_path / "archives").mkdir()
    for i, log in enumerate(logs):
        log.archive(tmp_path / "archives" / f"{i}.enc")
    words = (cluster.url, flow.lake.root, str(tmp_path / "archives"))
    Driver(tmp_path / "killed.log", DRIVER, *words, "after events").ends(-signal.SIGKILL)
    driver = Driver(tmp_path / "driver.log", DRIVER, *words)
    cluster.workers[0].says(r"(Launch command)")
    for pid in cluster.workers[0].executors():
        os.kill(pid, signal.SIGKILL)
    driver.ends(0)
    flow.check(logs)
    assert len(flow.rows("events")) == sum(len(log.events) for log in logs)
