"""The limit of open files, and what a server does when it is reached."""

import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from enc.runtime.serving.descriptors import LOG_S, MAX_FILES, RESERVE, AcceptFailures, raise_file_limit
from tests.runtime.serving.tiny_server import running


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """Return the soft and the hard limit of open files; restore the soft one afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def most(limits: tuple[int, int]) -> int:
    return MAX_FILES if limits[1] == resource.RLIM_INFINITY else min(limits[1], MAX_FILES)


def test_the_soft_limit_becomes_the_hard_one(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most(limits) // 2, limits[1]))
    with capture_logs() as logs:
        raise_file_limit(most(limits) - RESERVE)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most(limits), limits[1])
    assert logs == []


def test_a_limit_that_suffices_stays(limits: tuple[int, int]) -> None:
    """Programs that the server starts get it, too."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most(limits) // 2, limits[1]))
    raise_file_limit(most(limits) // 2 - RESERVE)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most(limits) // 2, limits[1])


def test_a_limit_below_what_the_connections_need_is_logged(limits: tuple[int, int]) -> None:
    with capture_logs() as logs:
        raise_file_limit(most(limits) - RESERVE + 1)
    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("few_file_descriptors", "warning")
    assert (entry["limit"], entry["needed"]) == (most(limits), most(limits) + 1)


def without_descriptors(work: Callable[[], object]) -> list[Any]:
    """Run this while the process may open nothing more; return what it logs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with capture_logs() as logs:
            work()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return logs


def test_a_plain_server_without_descriptors_logs_it() -> None:
    """Its event loop closes new connections and logs nothing."""
    with running() as server:
        assert server.on_loop(lambda: without_descriptors(server.each_second)) == [
            {"event": "accept_failed", "log_level": "error", "reason": "Too many open files"}
        ]
        with capture_logs() as logs:
            server.on_loop(server.each_second)
        assert logs == []


def test_failures_are_logged_once_in_a_while() -> None:
    now = 0.0
    failures = AcceptFailures(lambda: now)
    counts = []
    for step in (0, LOG_S - 1, 1, 0, LOG_S):
        now += step
        with capture_logs() as logs:
            failures.log(OSError(24, "Too many open files"))
        counts.append(len(logs))
    assert counts == [1, 0, 1, 0, 1]
