"""A stopping node answers every request that it accepted."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from msgspec.json import encode

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.node.store.sqlite.store import SqliteStore
from enc.runtime.clock import now_ms
from tests.core.world import LIFETIME, person
from tests.node.certificates import Certificate, secured
from tests.node.running import RunningNode
from tests.node.served import DEV, PATIENCE_S, SMALL, Served, good, sqlite
from tests.plain_http import NO_TLS

# Stopping


def test_a_stop_answers_what_was_accepted(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    node = Served(store=store)
    try:
        enclave = node.create(SMALL)
        commits = [enclave.commit("bob", "message", f"{i}") for i in range(3)]
        with ThreadPoolExecutor(3) as pool:
            with node.held_up():
                sent = [pool.submit(node.submit, commit) for commit in commits]
                node.until(lambda: node.node.intake.waiting == 3)
                node.begin_stop()
                node.until(lambda: not any(server.is_serving() for server in node.server.servers))
                with pytest.raises(httpx.ConnectError):
                    httpx.get(node.url + "/info", timeout=PATIENCE_S, trust_env=False, verify=NO_TLS)
            receipts = [future.result(PATIENCE_S) for future in sent]
    finally:
        node.stop()
    assert sorted(receipt.seq for receipt in receipts) == [1, 2, 3]
    assert {event.id for event in store.events(enclave.id, 1, 3)} == {receipt.id for receipt in receipts}
    store.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_stop_does_not_wait_for_connections_that_nothing_is_asked_on(
    certificate: Certificate, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = Served(DEV if scheme == "http" else certificate.config)
    with secured(node, certificate.authority) as lasting:
        good(lasting.get("/info"))
        node.stop()
        assert not node.server.server_state.connections
    assert "cancelled" not in caplog.text


def test_every_receipt_that_was_given_is_kept_when_the_process_is_told_to_stop(tmp_path: Path) -> None:
    with (
        RunningNode(tmp_path / "node") as node,
        httpx.Client(base_url=node.url, timeout=PATIENCE_S, verify=NO_TLS) as client,
    ):
        exp = real_now() + LIFETIME
        manifest = build_manifest(person("alice"), compact_json(SMALL), exp)
        assert client.post("/", content=encode(wire_commit(manifest))).status_code == 200
        given, begun = list[Receipt](), threading.Semaphore(0)

        def write(name: str) -> None:
            for i in range(10_000):
                commit = build_commit(person(name), manifest.enclave, "message", f"{i}", exp + i)
                try:
                    response = client.post("/", content=encode(wire_commit(commit)))
                except httpx.HTTPError:
                    return
                if response.status_code != 200:
                    assert response.status_code == 503, response.text
                    return
                given.append(parse_receipt(response.content))
                begun.release()

        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(write, name) for name in ("alice", "bob", "carol")]
            for _ in range(30):
                assert begun.acquire(timeout=PATIENCE_S)
            node.stop()
            for writer in writers:
                writer.result(PATIENCE_S)
    store = SqliteStore(tmp_path / "node" / "enc.db")
    kept = {event.seq: event.id for event in store.events(manifest.enclave, 0, 100_000)}
    store.close()
    assert len(given) >= 30
    assert all(kept[receipt.seq] == receipt.id for receipt in given)


def real_now() -> int:
    return now_ms()
