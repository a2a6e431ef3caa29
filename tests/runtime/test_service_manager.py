"""What a service manager hears, on a real socket."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from enc.runtime.service_manager import ServiceManager
from tests.runtime.manager_socket import Heard


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Heard]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@enc-test-{os.getpid()}"
    heard = Heard(address)
    with closing(heard.socket):
        yield heard


def test_it_hears_that_the_service_is_ready_works_and_stops(manager: Heard) -> None:
    service = ServiceManager.take({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000000"})
    service.ready("serving on http://127.0.0.1:7700")
    service.alive()
    service.stopping()
    assert manager.messages() == ["READY=1\nSTATUS=serving on http://127.0.0.1:7700", "WATCHDOG=1", "STOPPING=1"]


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}])
def test_without_a_watchdog_for_this_process_nothing_is_sent_every_second(
    manager: Heard, watchdog: dict[str, str]
) -> None:
    ServiceManager.take({"NOTIFY_SOCKET": manager.address, **watchdog}).alive()
    assert manager.messages() == []


def test_the_watchdog_of_this_process_is_fed(manager: Heard) -> None:
    here = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    ServiceManager.take(here).alive()
    assert manager.messages() == ["WATCHDOG=1"]


def test_child_processes_do_not_inherit_the_socket() -> None:
    environment = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    ServiceManager.take(environment)
    assert environment == {"HOME": "/"}


def test_without_a_manager_nothing_happens() -> None:
    service = ServiceManager.take({})
    service.ready("x")
    service.alive()
    service.stopping()


def test_a_manager_that_is_gone_is_logged_once_and_stops_nothing(tmp_path: Path) -> None:
    service = ServiceManager(str(tmp_path / "gone"), watchdog=True)
    with structlog.testing.capture_logs() as logs:
        service.ready("x")
        service.alive()
    (entry,) = logs
    assert (entry["event"], entry["log_level"], entry["message"]) == ("manager_not_notified", "warning", "READY=1")
    assert entry["reason"] == "No such file or directory"


def test_a_manager_that_does_not_read_does_not_block_the_service(manager: Heard) -> None:
    service = ServiceManager(manager.address, watchdog=True)
    with structlog.testing.capture_logs():
        for _ in range(5000):  # more than any queue holds
            service.alive()
    assert 0 < len(manager.messages()) < 5000
