"""Fixtures for several parts: one Spark session for this process, and a cluster of two workers."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
import structlog
import websockets.asyncio.connection
import websockets.sync.connection
from uvicorn.protocols.websockets import websockets_sansio_impl

from enc.core.errors import MisuseError
from tests.tiers import TIERS, tiers_of, tiers_of_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cluster import Cluster

ROOT = Path(__file__).parents[1]


# Pings of WebSockets draw from the global random state, in a thread of each connection. Hypothesis fails a test
# whose strategies seem to use that state, and a connection may outlast its own test if that one fails.
for module in (websockets.asyncio.connection, websockets.sync.connection, websockets_sansio_impl):
    module.random = Random()  # type: ignore[attr-defined]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run only the tests that have no marker of tests/tiers.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files of slow tests: `--quick` does not even import them."""
    is_quick = config.getoption("quick") and collection_path.match("test_*.py")
    return True if is_quick and tiers_of_file(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for tier in tiers_of(item):
            item.add_marker(tier)
    if config.getoption("quick"):
        _leave_out_slow_tests(config, items)
    _ignore_spark_leaks(items)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection: they live until the end."""
    gc.freeze()


def _leave_out_slow_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if any(item.get_closest_marker(tier) for tier in TIERS)]
    config.hook.pytest_deselected(items=slow)
    left_out = set(slow)
    items[:] = [item for item in items if item not in left_out]


def _ignore_spark_leaks(items: list[pytest.Item]) -> None:
    """Ignore warnings about sockets and files that Spark leaves for the garbage collector to close."""
    for item in items:
        if {"dataview", "audit"} & set(item.path.parts):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Restore the default logging after each test: other tests read it."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def java() -> None:
    """Skip without Java or Delta's jars; let workers import `tests` and `enc` as this process does."""
    from enc.dataview.lake.session import check_requirements

    try:
        check_requirements()
    except MisuseError as e:
        pytest.skip(e.message)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Yield the one session of this process. Only this fixture may stop it."""
    from enc.dataview.lake.session import spark_session
    from tests.cluster import SMALL_JAVA
    from tests.dataview.pipeline_driver import SMALL

    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
        **SMALL,
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} {SMALL_JAVA}",
    }
    session = spark_session("tests", "local[2]", settings)
    yield session
    session.stop()


@pytest.fixture
def cluster(java: None, tmp_path: Path) -> Iterator["Cluster"]:
    """Run a master and two workers, each a process."""
    from tests.cluster import Cluster

    found = Cluster(tmp_path / "cluster")
    try:
        found.start()
        yield found
    finally:
        found.stop()
