"""The admin listener, and whether the node is ready: each part that a commit needs fails in its turn."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, get_args

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from enc.core.errors import Unavailable
from enc.core.primitives.types import Commit
from enc.node.api import readiness_checks
from enc.node.config import AdminSettings, LimitSettings
from enc.node.ops.readiness import Code, Readiness
from enc.node.sequence import admission
from enc.node.signatures import pool
from enc.node.signatures.pool import SignaturePool
from tests.documents import ROOT
from tests.node.api.http_requests import dialed, read_response
from tests.node.metrics_page import check_again
from tests.node.served import DEV, PATIENCE_S, SMALL, Served, good


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served() as node:
        yield node


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def reasons(node: Served) -> list[str]:
    """Return the codes of the reasons why the node is not ready, checked now."""
    check_again(node)
    answer = node.admin("/health/ready")
    found = answer.json()
    assert (answer.status_code, found["status"]) == ((503, "failing") if "reasons" in found else (200, "ok"))
    assert found.get("reason") == (found["reasons"][0]["message"] if "reasons" in found else None)
    return [each["code"] for each in found.get("reasons", [])]


# The admin listener


def test_a_node_that_works_is_live_and_ready(node: Served) -> None:
    for path in ("/health/live", "/health/ready"):
        assert good(node.admin(path)) == {"status": "ok"}
    assert node.admin("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    assert reasons(node) == []


def test_it_answers_head_without_a_body(node: Served) -> None:
    answer = node.admin("/health/ready", "HEAD")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/info", 404), ("POST", "/health/live", 405)])
def test_it_answers_nothing_else(node: Served, method: str, path: str, status: int) -> None:
    answer = node.admin(path, method)
    assert (answer.status_code, answer.json()["code"]) == (status, "INVALID_QUERY")


def test_a_page_that_fails_is_an_internal_error(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> NoReturn:
        raise KeyError("secret")

    monkeypatch.setattr(node.node.metrics, "text", fail)
    answer = node.admin("/metrics")
    assert (answer.status_code, answer.json()["code"], "secret" in answer.text) == (500, "INTERNAL_ERROR", False)


def test_it_checks_the_host_on_loopback(node: Served) -> None:
    answer = node.http.get(node.admin_url + "/metrics", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (421, "HOST_NOT_SERVED")


def test_it_answers_when_all_public_connections_are_taken() -> None:
    limits = LimitSettings(connections=2, connections_per_address=0)
    with Served(replace(DEV, limits=limits)) as node, ExitStack() as stack:
        peers = [stack.enter_context(dialed(node)) for _ in range(2)]
        node.until(lambda: node.server.peers.count == 2)
        with dialed(node) as refused, refused.makefile("rb") as file:
            assert read_response(file)[0] == 503
        assert good(node.admin("/health/live")) == {"status": "ok"}
        assert good(node.admin("/health/ready")) == {"status": "ok"}
        for peer in peers:
            peer.close()


def test_public_metrics_can_be_switched_off() -> None:
    with Served(replace(DEV, admin=AdminSettings(public_metrics=False))) as node:
        assert node.get("/metrics").status_code == 404
        assert node.admin("/metrics").status_code == 200


def test_who_still_reads_public_metrics_is_told_of_once() -> None:
    with Served() as node, capture_logs() as logs:
        node.admin("/metrics")
        assert not [entry for entry in logs if entry["event"] == "public_metrics_used"]
        for _ in range(2):
            assert node.get("/metrics").status_code == 200
    assert len([entry for entry in logs if entry["event"] == "public_metrics_used"]) == 1


# Reasons


def test_the_document_names_every_code() -> None:
    text = (ROOT / "docs/operations.md").read_text()
    for code in get_args(Code):
        assert f"| `{code}` |" in text, code


def test_a_stopped_process_that_checks_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "ANSWER_S", 0.2)
    signatures = SignaturePool(1)
    with Served(signatures=signatures) as node:
        enclave = node.create(SMALL)
        assert reasons(node) == []
        os.kill(signatures._processes[0].pid, signal.SIGSTOP)
        assert reasons(node) == ["signature_workers_not_answering"]
        assert reasons(node) == []
        os.kill(signatures._processes[0].pid, signal.SIGSTOP)
        with ThreadPoolExecutor(8) as senders:
            receipts = list(senders.map(lambda i: enclave.send("bob", "message", str(i)), range(8)))
        assert sorted(receipt.seq for receipt in receipts) == list(range(1, 9))
    signatures.close()


def test_a_thread_that_checks_commits_does_not_answer(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def wait() -> int:
        assert go_on.wait(PATIENCE_S)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(readiness_checks, "PROBE_S", 0.05)
        patch.setattr(node.node.signatures, "probe", wait)
        assert "admission_not_answering" in reasons(node)
        go_on.set()
    assert reasons(node) == []


def test_the_thread_of_long_commits_does_not_answer(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, began = threading.Event(), threading.Event()
    enclave = node.create({**SMALL, "meta": {"n": 1}})

    def wait(commit: Commit) -> bool:
        began.set()
        return go_on.wait(PATIENCE_S)

    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as senders:
        patch.setattr(readiness_checks, "PROBE_S", 0.5)
        patch.setattr(admission, "is_signed", wait)
        sent = senders.submit(enclave.send, "bob", "message", "x" * admission.LONG_BODY)
        assert began.wait(PATIENCE_S)
        assert "long_admission_not_answering" in reasons(node)
        go_on.set()
        sent.result(PATIENCE_S)
    assert reasons(node) == []


def test_a_sequencer_does_not_answer(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, node.held_up():
        patch.setattr(readiness_checks, "PROBE_S", 0.05)
        assert "sequencer_not_answering" in reasons(node)
    assert reasons(node) == []


def test_a_store_that_cannot_be_written(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> NoReturn:
        raise Unavailable("the store cannot be written: SQLITE_READONLY")

    with monkeypatch.context() as patch:
        patch.setattr(node.store, "write", fail)
        assert reasons(node) == ["store_not_writable"]
    assert reasons(node) == []


def test_a_clock_that_is_behind() -> None:
    with Served() as node:
        node.create(SMALL)
        assert reasons(node) == []
        node.clock.now -= 60_001
        assert reasons(node) == ["clock_wrong"]


def test_a_clock_that_has_jumped_ahead() -> None:
    with Served() as node:
        assert reasons(node) == []
        node.clock.now += 60_001
        assert reasons(node) == ["clock_wrong"]


def test_a_disk_with_room_for_a_small_write_only(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(readiness_checks, "unnamed_file", fail)
        assert reasons(node) == ["disk_not_writable"]
        assert node.admin("/health/ready").json()["reason"] == (
            "the data directory cannot be written: No space left on device"
        )
    assert reasons(node) == []


def test_a_disk_that_hangs_holds_one_thread(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, go_on = list[Path](), threading.Event()

    def write(folder: Path) -> None:
        writes.append(folder)
        assert go_on.wait(PATIENCE_S)

    with monkeypatch.context() as patch:
        patch.setattr(readiness_checks, "PROBE_S", 0.05)
        patch.setattr(readiness_checks, "_write", write)
        for _ in range(3):
            assert "disk_not_writable" in reasons(node)
        found = node.admin("/health/ready").json()["reasons"]
        assert "the disk did not answer in time" in [each["message"] for each in found]
        assert len(writes) == 1
        go_on.set()
    assert reasons(node) == []


def test_a_probe_of_the_disk_that_does_not_start_is_tried_again(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(readiness_checks, "threading", SimpleNamespace(Thread=fail))
        assert reasons(node) == ["internal_error"]
    assert reasons(node) == []


def test_all_places_of_commits_are_taken() -> None:
    with Served(replace(DEV, limits=LimitSettings(waiting_commits=1))) as node, ThreadPoolExecutor(1) as senders:
        enclave = node.create(SMALL)
        with pytest.MonkeyPatch.context() as patch, node.held_up():
            patch.setattr(readiness_checks, "PROBE_S", 0.05)
            sent = senders.submit(enclave.send, "bob", "message", "x")
            node.until(lambda: node.node.intake.waiting == 1)
            assert "commits_waiting" in reasons(node)
        sent.result(PATIENCE_S)
        assert reasons(node) == []


def test_a_node_that_stops_is_live_and_not_ready() -> None:
    with Served() as node:
        node.on_loop(lambda: setattr(node.node.intake, "is_closed", True))
        assert reasons(node) == ["stopping"]
        assert good(node.admin("/health/live")) == {"status": "ok"}


@pytest.mark.anyio
async def test_a_check_that_fails_does_not_hide_the_others() -> None:
    async def fail() -> NoReturn:
        raise KeyError("secret")

    async def pass_() -> None:
        return None

    (reason,) = await Readiness([pass_, fail]).reasons()
    assert (reason.code, "secret" in reason.message) == ("internal_error", False)


def test_a_change_is_logged_once(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> NoReturn:
        raise Unavailable("the store cannot be written: SQLITE_FULL")

    with capture_logs() as logs:
        assert reasons(node) == []
        with monkeypatch.context() as patch:
            patch.setattr(node.store, "write", fail)
            for _ in range(3):
                reasons(node)
        reasons(node)
        reasons(node)
    found = [entry for entry in logs if entry["event"] in ("not_ready", "ready_again")]
    assert [entry["event"] for entry in found] == ["not_ready", "ready_again"]
    assert found[0]["codes"] == ("store_not_writable",)
