"""Status for operators: info, health and metrics."""

import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from enc import __version__
from enc.core.errors import Unavailable
from enc.node.api import readiness_checks
from enc.node.config import AdminSettings, AdmissionSettings, LimitSettings
from enc.node.store.steps import Step
from enc.testing.memory_store import MemoryStore
from tests.core.world import pub
from tests.documents import ROOT
from tests.node.api.http_requests import dialed, read_response
from tests.node.metrics_page import check_again, figures
from tests.node.served import DEV, PATIENCE_S, SMALL, Served, good, health, sqlite

# Status


def test_info() -> None:
    config = replace(DEV, public_url="https://node.example/enc", admission=AdmissionSettings(create="allowlist"))
    with Served(config) as node:
        found = good(node.get("/info"))
        assert found["seq_pub"] == pub("node")
        assert found["software"] == {"name": "enc", "version": __version__}
        assert (found["enc_v"], found["url"], found["create"]) == ([1, 2], "https://node.example/enc", "allowlist")
        assert found["limits"] == {name: getattr(LimitSettings(), name) for name in found["limits"]}
    with Served() as node:
        assert good(node.get("/info"))["url"] is None


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("the store cannot be written: SQLITE_FULL")

    with Served() as node:
        assert node.get("/health").json() == {"status": "ok"}
        with monkeypatch.context() as broken:
            broken.setattr(node.store, "write", fail)
            assert health(node) == (503, "failing")
            assert node.get("/health").json()["reason"] == "the store cannot be written: SQLITE_FULL"
        assert health(node) == (200, "ok")


def test_metrics_that_take_long_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting the push queues takes longer with each of them, and none is ever deleted."""
    with Served() as node, ThreadPoolExecutor(2) as pool:
        counting, go_on, plain = threading.Semaphore(0), threading.Event(), node.store.count

        def count() -> int:
            counting.release()
            assert go_on.wait(PATIENCE_S)
            return plain()

        node.on_loop(lambda: node.node.metrics.gauge("enc_test", "Waits", count))
        pages = [pool.submit(node.get, "/metrics") for _ in range(2)]
        try:
            assert counting.acquire(timeout=PATIENCE_S)
            assert good(node.get("/info"))["seq_pub"] == pub("node")
        finally:
            go_on.set()
        assert [page.result().status_code for page in pages] == [200, 200]


def test_health_of_a_node_whose_clock_stands_behind() -> None:
    with Served() as node:
        node.create(SMALL)
        node.clock.now -= 60_001
        assert health(node) == (503, "failing")
        node.clock.now += 1
        assert health(node) == (200, "ok")


def test_health_of_a_node_whose_sequencer_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_checks, "PROBE_S", 0.01)
    with Served() as node:
        with node.held_up():
            assert health(node) == (503, "failing")
        monkeypatch.setattr(readiness_checks, "PROBE_S", PATIENCE_S)
        assert health(node) == (200, "ok")


def count_writes(node: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each write appends its number of steps."""
    write, written = node.store.write, list[int]()

    def counted(steps: Sequence[Step], clock: int) -> None:
        written.append(len(steps))
        write(steps, clock)

    monkeypatch.setattr(node.store, "write", counted)
    return written


def test_asked_often_it_is_not_tried_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as node:
        written = count_writes(node, monkeypatch)
        assert health(node) == (200, "ok")
        node.on_loop(lambda: setattr(node.node.pages.readiness, "_until", node.node.loop.time() + PATIENCE_S))
        assert [node.get("/health").json()["status"] for _ in range(5)] == ["ok"] * 5
        node.on_loop(lambda: setattr(node.node.pages.readiness, "_until", 0.0))
        assert node.get("/health").json()["status"] == "ok"
        assert written == [0, 0]


def test_many_who_ask_at_once_cost_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as node, ThreadPoolExecutor(4) as pool:
        written = count_writes(node, monkeypatch)
        connections: set[Any] = node.server.server_state.connections  # HttpProtocol, not one of uvicorn's own
        with node.held_up():
            asked = [pool.submit(node.get, "/health") for _ in range(4)]
            node.until(lambda: sum(c.cycle is not None for c in connections) == 4)
        assert [future.result(PATIENCE_S).status_code for future in asked] == [200] * 4
        assert written == [0]


def test_health_writes_to_the_disk_and_leaves_no_event(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    with Served(store=store) as node:
        enclave = node.create(SMALL)
        size = (tmp_path / "enc.db-wal").stat().st_size
        assert health(node) == (200, "ok")
        assert (tmp_path / "enc.db-wal").stat().st_size > size
        assert enclave.seqs("bob") == [0]
    store.close()


def test_metrics() -> None:
    with Served() as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "x")
        enclave.refused("mallory", "message", "x")
        enclave.refused("bob", "message", exp=1)
        node.get("/nothing")
        assert node.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
        found = figures(node)
    assert found["enc_commits_total", "accepted"] == 2
    assert found["enc_commits_total", "UNAUTHORIZED"] == 1
    assert found["enc_commits_total", "EXPIRED"] == 1
    assert found["enc_requests_total", "200"] == 3
    assert (found["enc_requests_total", "403"], found["enc_requests_total", "400"]) == (1, 1)
    assert found["enc_requests_total", "404"] == 1
    assert found["enc_batch_steps_count", ""] == 2
    assert found["enc_batch_steps_sum", ""] == 2
    assert found["enc_write_seconds_count", ""] == 2
    assert (found["enc_enclaves", ""], found["enc_enclaves_in_memory", ""]) == (1, 1)
    for gauge in ("enc_waiting_commits", "enc_subscriptions", "enc_websockets"):
        assert found[gauge, ""] == 0
    assert found["process_resident_memory_bytes", ""] > 0


def test_waiting_commits_are_watched() -> None:
    with Served() as node, ThreadPoolExecutor(1) as pool:
        enclave = node.create(SMALL)
        with node.held_up():
            sent = pool.submit(enclave.send, "bob", "message", "x")
            node.until(lambda: node.node.intake.waiting == 1)
            assert figures(node)["enc_waiting_commits", ""] == 1
        sent.result(PATIENCE_S)
        assert figures(node)["enc_waiting_commits", ""] == 0


def test_figures_that_cannot_be_read_hide_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: MemoryStore) -> NoReturn:
        raise Unavailable("the store cannot be read: SQLITE_CORRUPT")

    def break_(store: MemoryStore) -> NoReturn:
        raise KeyError("secret")

    monkeypatch.setattr(MemoryStore, "count", fail)
    monkeypatch.setattr(MemoryStore, "largest_size", break_)
    with Served() as node:
        page = node.admin("/metrics").text
    for line in ("enc_enclaves NaN", "enc_largest_enclave_bytes NaN", "enc_waiting_commits 0.0"):
        assert f"\n{line}\n" in page


def test_the_document_names_every_metric() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    with Served() as node:
        page = node.admin("/metrics").text
    for family in text_string_to_metric_families(page):
        if family.name.endswith("_created"):  # of a counter or histogram
            continue
        assert family.name.startswith("process_") or f"`{family.name}" in text, family.name


def test_the_disk_is_watched(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    with Served(replace(DEV, data=str(tmp_path)), store=store) as node:
        node.create(SMALL)
        found = figures(node)
    assert found["enc_database_bytes", ""] == (tmp_path / "enc.db").stat().st_size > 0
    assert found["enc_wal_bytes", ""] == (tmp_path / "enc.db-wal").stat().st_size > 0
    assert found["enc_free_bytes", ""] > 0
    store.close()


def test_the_clock_is_watched() -> None:
    with Served() as node:
        node.create(SMALL)
        found = figures(node)
        assert (found["enc_clock_offset_seconds", ""], found["enc_clock_behind_seconds", ""]) == (0, 0)
        node.clock.now -= 5000
        found = figures(node)
        assert (found["enc_clock_offset_seconds", ""], found["enc_clock_behind_seconds", ""]) == (-5, 5)


def test_readiness_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("the store cannot be written: SQLITE_FULL")

    with Served() as node:
        assert figures(node)["enc_ready", ""] == 1
        check_again(node)
        monkeypatch.setattr(node.store, "write", fail)
        found = figures(node)
    assert (found["enc_ready", ""], found["enc_not_ready", "store_not_writable"]) == (0, 1)


@pytest.mark.parametrize(("limits", "limit"), [((1, 0), "connections"), ((9, 1), "connections_per_address")])
def test_refused_connections_are_watched(limits: tuple[int, int], limit: str) -> None:
    settings = LimitSettings(connections=limits[0], connections_per_address=limits[1])
    with Served(replace(DEV, dev=False, limits=settings, admin=AdminSettings(port=0))) as node, dialed(node):
        node.until(lambda: node.server.peers.count == 1)
        with dialed(node) as refused, refused.makefile("rb") as file:
            assert read_response(file)[0] == 503
        found = figures(node)
    assert found["enc_connections", ""] == 1
    assert found["enc_connections_refused_total", limit] == 1
    assert sum(value for (name, _), value in found.items() if name == "enc_connections_refused_total") == 1
    assert found["enc_connections_dropped_total", ""] == 0


def test_replaced_processes_are_watched() -> None:
    with Served() as node:
        node.node.signatures.failures = 3
        found = figures(node)
    assert found["enc_signature_workers_failed_total", ""] == 3
    assert found["enc_push_senders_failed_total", ""] == 0


def test_versions() -> None:
    with Served() as node:
        page = node.admin("/metrics").text
    (line,) = [line for line in page.splitlines() if line.startswith("enc_build_info")]
    assert f'version="{__version__}"' in line
    assert f'sqlite="{sqlite3.sqlite_version}"' in line
    assert line.endswith(" 1.0")
