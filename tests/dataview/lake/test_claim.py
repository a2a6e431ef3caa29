"""A writer that lost its lake writes nothing more, even if only its Java process is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.lake.claim import WriterClaim, holder_note
from enc.dataview.lake.compaction import compact, purge
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Txn
from enc.dataview.pipeline.job import Job, JobSettings
from tests.cluster import PATIENCE_S, environment
from tests.dataview.flow import Flow

Json = dict[str, Any]
DRIVER = "tests.dataview.orphan_driver"


@pytest.fixture
def orphan(flow: Flow, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a driver on the lake of `flow`; Java ends with this fixture."""
    (tmp_path / "events").mkdir()
    os.mkfifo(tmp_path / "gate")
    words = [flow.lake.root, str(tmp_path / "gate"), str(tmp_path / "events")]
    command = [sys.executable, "-m", DRIVER, *words]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def test_the_java_process_of_a_killed_driver_commits_nothing(
    spark: SparkSession, flow: Flow, orphan: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with (tmp_path / "gate").open("w"):  # waits until a task of the driver has opened it
        orphan.send_signal(signal.SIGKILL)
        orphan.wait()
        job = Job(JobSettings(root=flow.lake.root), spark)
        with job._locked("run"):
            pass
    assert "DELTA_METADATA_CHANGED" in _failure(tmp_path / "events")
    assert flow.rows("raw_events") == []


def _failure(events: Path) -> str:
    """Wait for the end of the driver's write; return its error."""
    found: list[Json] = []
    for _ in range(PATIENCE_S * 10):
        lines = [line for path in events.rglob("*") if path.is_file() for line in path.read_text().splitlines(True)]
        found = [json.loads(line) for line in lines if line.endswith("\n") and "SparkListenerSQLExecution" in line]
        roots = {each["rootExecutionId"] for each in found if "MapInArrow" in each.get("physicalPlanDescription", "")}
        for each in found:
            if each["Event"].endswith("End") and each["executionId"] in roots:
                return str(each["errorMessage"])
        Event().wait(0.1)
    raise AssertionError(found[-3:])


def test_an_earlier_writer_that_still_runs_rejects_its_own_writes(spark: SparkSession, flow: Flow) -> None:
    """In every way that a table is written; a table that the later writer has not claimed is free."""
    first, second = (Lake(flow.lake.root, WriterClaim()) for _ in "12")
    for lake in (first, second):
        lake.claim.begin("enc dataview run")
        for name in ("heads", "events"):
            lake[name].claim(spark)
    table = first["heads"]
    rows = table.read(spark)
    ways: list[Callable[[], object]] = [
        lambda: table.append(rows, Txn("w", 0)),
        lambda: table.add(spark, [], Txn("w", 0)),
        lambda: table.replace(rows, "true", Txn("w", 0)),
        lambda: table.overwrite(rows, Txn("w", 0)),
        lambda: table.upsert(rows, Txn("w", 0)),
        lambda: table.vacuum(spark, 1),
        lambda: compact(spark, table, 0),
        lambda: purge(spark, table),
        lambda: table.delta(spark).delete(),
    ]
    before = table.version(spark)
    for way in ways:
        with pytest.raises(MisuseError, match=r"`enc dataview run` \(process \d+ on .*writes to this lake now"):
            way()
    assert table.version(spark) == before
    second["heads"].append(rows, Txn("w", 0))
    first["slots"].append(first["slots"].read(spark), Txn("w", 0))


def test_a_commit_reads_its_own_transaction(spark: SparkSession, flow: Flow) -> None:
    table = flow.lake["heads"]
    table.add(spark, [], Txn("w", 4))
    for version in (3, 4):
        with pytest.raises(Unavailable, match=f"batch {version} was written meanwhile"):
            table.add(spark, [], Txn("w", version))
    table.add(spark, [], Txn("w", 5))
    assert table.transactions(spark) == {"w": 5}


def test_the_lake_of_a_writer_that_ended_well_is_not_claimed(spark: SparkSession, flow: Flow) -> None:
    """Its tables get no commits, so nothing is read or published again."""
    lock, tables = Path(flow.lake.root) / "_writer", [flow.lake[name] for name in flow.lake.names]

    def commits() -> list[int]:
        """Return how many commits each table gets when a job starts."""
        before = [table.version(spark) for table in tables]
        with Job(JobSettings(root=flow.lake.root), spark)._locked("run"):
            return [table.version(spark) - at for table, at in zip(tables, before, strict=True)]

    assert set(commits()) == {0}
    lock.write_text(json.dumps(holder_note("enc dataview run")))  # as a killed process leaves it
    assert set(commits()) == {1}
    assert set(commits()) == {0}
