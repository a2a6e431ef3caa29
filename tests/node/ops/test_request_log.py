"""Ids of requests, the access log, and the times that requests and commits take."""

from collections.abc import Iterator
from typing import Any, NoReturn

import httpx
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs
from websockets.sync.client import connect

from enc.core.log.commit import wire_commit
from enc.node.config import ProxySettings
from enc.node.ops.latencies import LatencyHistogram
from tests.node.api.http_requests import BODIES, sealed
from tests.node.metrics_page import figures
from tests.node.served import DEV, SMALL, Enclave, Served, bad, encode

LOGGED = replace(DEV, access_log=True)


@pytest.fixture(scope="module", params=[True, False], ids=["fast path", "ASGI"])
def node(request: pytest.FixtureRequest) -> Iterator[Served]:
    with Served(LOGGED, quick=request.param) as node:
        yield node


@pytest.fixture(scope="module")
def enclave(node: Served) -> Enclave:
    return node.create(SMALL)


def id_of(answer: httpx.Response) -> str:
    return answer.headers["x-request-id"]


def requests(logs: list[Any]) -> list[Any]:
    return [entry for entry in logs if entry["event"] in ("request", "websocket")]


# Ids


def test_every_answer_has_an_id_of_its_own(node: Served, enclave: Enclave) -> None:
    answers = [
        node.post(wire_commit(enclave.commit("bob", "message", "x"))),
        node.post(wire_commit(enclave.commit("mallory", "message", "x"))),
        node.post(enclave.request("bob", "Query", filter={})),
        node.post(b"{"),
        node.get("/info"),
        node.get("/nothing"),
        node.get("/"),
        node.get(f"/{enclave.id.hex()}/sth"),
    ]
    assert len({id_of(answer) for answer in answers}) == len(answers)


@pytest.mark.parametrize(
    ("given", "is_taken"), [("a-B_9.z", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("", False)]
)
def test_a_proxy_s_id_is_taken_if_it_is_one(given: str, is_taken: bool) -> None:
    with Served(replace(LOGGED, proxy=ProxySettings(trusted=("127.0.0.1",)))) as node:
        assert (id_of(node.get("/info", headers={"x-request-id": given})) == given) == is_taken


def test_the_id_of_a_stranger_is_not_taken(node: Served) -> None:
    assert id_of(node.get("/info", headers={"x-request-id": "mine"})) != "mine"


@pytest.mark.parametrize("place", ["sequencer._sequence", "admission._validator.parse"])
def test_a_fault_in_a_commit_is_logged_with_its_id(
    node: Served, enclave: Enclave, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> NoReturn:
        raise KeyError("secret")

    owner: Any = node.node
    *path, name = place.split(".")
    for each in path:
        owner = getattr(owner, each)
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(owner, name, fail)
        answer = node.post(wire_commit(enclave.commit("bob", "message", "x")))
    assert (answer.status_code, bad(answer).code) == (500, "INTERNAL_ERROR")
    (fault,) = [entry for entry in logs if entry["event"] == "internal_error"]
    assert fault["request"] == id_of(answer)


def test_a_fault_in_one_of_many_commits_is_logged_with_the_request_s_id(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> NoReturn:
        raise KeyError("secret")

    monkeypatch.setattr(node.node.sequencer, "_sequence", fail)
    with capture_logs() as logs:
        answer = node.post(encode(wire_commit(enclave.commit("bob", "message", "x"))), "/commits")
    (fault,) = [entry for entry in logs if entry["event"] == "internal_error"]
    assert fault["request"] == id_of(answer)


def test_a_fault_in_a_query_is_logged_with_its_id(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> NoReturn:
        raise KeyError("secret")

    monkeypatch.setattr(node.node.http._reads.handlers, "answer", fail)
    with capture_logs([merge_contextvars]) as logs:
        answer = node.post(enclave.request("bob", "Query", filter={}))
    (fault,) = [entry for entry in logs if entry["event"] == "internal_error"]
    assert fault["request"] == id_of(answer)


# The access log


def test_each_request_is_logged(node: Served, enclave: Enclave) -> None:
    with capture_logs() as logs:
        answer = node.post(wire_commit(enclave.commit("bob", "message", "x")))
        node.get("/nothing/" + "x" * 500 + "?q=secret")
    first, second = requests(logs)
    assert first == {
        "event": "request",
        "log_level": "info",
        "request": id_of(answer),
        "method": "POST",
        "path": "/",
        "status": 200,
        "ms": 0.0,
        "address": "127.0.0.1",
    }
    assert (second["method"], second["path"], second["status"]) == ("GET", "/nothing/" + "x" * 247, 404)


def test_a_websocket_is_logged_when_it_ends(node: Served, enclave: Enclave) -> None:
    with capture_logs() as logs:
        with connect(node.url.replace("http", "ws"), proxy=None) as socket:
            for i in range(2):
                socket.send(encode(wire_commit(enclave.commit("bob", "message", f"ws {i}"))))
                socket.recv()
        node.until(lambda: not node.node.ws.connections)
    (entry,) = requests(logs)
    assert (entry["event"], entry["commits"], entry["address"]) == ("websocket", 2, "127.0.0.1")


def test_the_log_has_neither_sessions_nor_contents(node: Served, enclave: Enclave) -> None:
    request = sealed(node.session("bob"), enclave, "Query", encode(BODIES["Query"]))
    with capture_logs() as logs:
        node.post(request)
        node.post(wire_commit(enclave.commit("bob", "message", "my secret")))
    assert requests(logs)
    for secret in (request["session"], request["content"], "my secret"):
        assert secret not in str(logs)


def test_without_the_setting_nothing_is_logged() -> None:
    with Served() as node, capture_logs() as logs:
        node.get("/info")
        with connect(node.url.replace("http", "ws"), proxy=None):
            pass
        node.until(lambda: not node.node.ws.connections)
    assert not requests(logs)


# Times


def test_a_histogram_counts_as_prometheus_does() -> None:
    registry, reference = CollectorRegistry(), CollectorRegistry()
    ours = LatencyHistogram("a_seconds", "A", "path", buckets=(0.1, 0.5, 1.0))
    registry.register(ours)
    theirs = Histogram("a_seconds", "A", ["path"], buckets=(0.1, 0.5, 1.0), registry=reference)
    for path, seconds in (("x", 0.05), ("x", 0.1), ("x", 0.7), ("y", 1.0), ("y", 5.0), ("x", 0.5)):
        ours.observe(seconds, path)
        theirs.labels(path).observe(seconds)
    assert samples(registry) == samples(reference)


def samples(registry: CollectorRegistry) -> set[Any]:
    found = [sample for family in registry.collect() for sample in family.samples]
    return {(s.name, tuple(sorted(s.labels.items())), s.value) for s in found if not s.name.endswith("_created")}


def test_requests_are_counted_by_the_form_of_their_path(node: Served, enclave: Enclave) -> None:
    before = figures(node)
    for path in (f"/{enclave.id.hex()}/sth", "/nothing", "/nothing/else", "/info"):
        node.get(path)
    enclave.ask("alice", "Export")
    enclave.send("bob", "message", "x")
    after = figures(node)

    def grown(name: str, form: str = "") -> float:
        return after[name, form] - before.get((name, form), 0)

    assert grown("enc_request_seconds_count", "/{enclave}/sth") == 1
    assert grown("enc_request_seconds_count", "other") == 2
    assert grown("enc_request_seconds_count", "/info") == 1
    assert grown("enc_request_seconds_count", "/export") == 1
    assert grown("enc_request_seconds_count", "/") == 1
    assert grown("enc_commit_seconds_count") == 1
    assert grown("enc_commit_seconds_sum") > 0


def test_commits_of_websockets_are_counted_too(node: Served, enclave: Enclave) -> None:
    before = figures(node)["enc_commit_seconds_count", ""]
    with connect(node.url.replace("http", "ws"), proxy=None) as socket:
        socket.send(encode(wire_commit(enclave.commit("bob", "message", "timed"))))
        socket.recv()
    assert figures(node)["enc_commit_seconds_count", ""] == before + 1


def test_the_page_is_valid(node: Served) -> None:
    names = [family.name for family in text_string_to_metric_families(node.admin("/metrics").text)]
    assert len(names) == len(set(names))
