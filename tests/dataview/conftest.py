"""Small real logs, and a lake to feed."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.dataview.lake.lake import Lake
from tests.dataview.flow import Flow
from tests.dataview.logs import Log, small_log


@pytest.fixture(scope="session")
def log() -> Log:
    """Return a log of forty events of one enclave, to be read only."""
    return small_log()


@pytest.fixture(scope="session")
def empty_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a lake with all tables, empty: copying them is faster than creating them."""
    root = tmp_path_factory.mktemp("lake") / "empty"
    Lake(str(root)).create(spark)
    return root


@pytest.fixture
def flow(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> Flow:
    return Flow.at(spark, empty_lake, tmp_path / "lake")
