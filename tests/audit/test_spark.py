"""The same findings on Spark as in one process, with large archives in many tasks, on any
master.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from enc.audit.audit import AuditRequest, run_audit
from enc.audit.spark_runner import AuditFailed, OnSpark
from tests.audit.fleets import audited, fleet, places, planted
from tests.audit.logs import talk, write
from tests.cluster import SMALL, Cluster, Driver
from tests.core.world import withheld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_on(spark: "SparkSession", folder: Path) -> None:
    """An audit there finds the planted faults, as one process does, with large logs in many
    tasks.
    """
    found = audited(folder, OnSpark(spark), part=100)
    alone = audited(folder)
    assert not found.problems
    assert places(found) == places(alone) == planted(folder)
    assert [each.finding for each in found.proved] == [each.finding for each in alone.proved]
    assert [each.evidence for each in found.proved] == [each.evidence for each in alone.proved]
    assert [each.checked for each in found.verdicts] == [each.checked for each in alone.verdicts]


def test_a_mixed_fleet_on_two_cores(spark: "SparkSession", tmp_path: Path) -> None:
    check_on(spark, fleet(tmp_path / "fleet", seed=7, enclaves=25, events=2500))


def test_withheld_contents_are_listed(spark: "SparkSession", tmp_path: Path) -> None:
    world = talk()
    events = [withheld(event) if event.seq in (5, 17) else event for event in world.events]
    path = write(tmp_path / "a.enc", world, events)
    found = run_audit(AuditRequest(paths=[path], part=4), OnSpark(spark))
    assert found.findings == []
    assert found.verdicts[0].withheld == [(seq, events[seq].withheld) for seq in (5, 17)]


def test_a_task_that_fails_is_told_in_one_line(spark: "SparkSession") -> None:
    with pytest.raises(AuditFailed, match="ZeroDivisionError"):
        OnSpark(spark).map(lambda n: 1 // n, [1, 0], [1, 1], lambda done: None)


def test_a_mixed_fleet_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    folder = fleet(tmp_path / "fleet", seed=9)
    Driver(tmp_path / "driver.log", "tests.audit.test_spark", cluster.url, str(folder)).ends(0)


def main(master: str, folder: str) -> None:
    from enc.dataview.lake.session import spark_session

    spark = spark_session("audit tests", master, SMALL)
    check_on(spark, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
