"""HTTP connections, internal errors, paths and methods."""

import re
import socket
from typing import Any

import pytest
from msgspec.json import encode

from enc.core.errors import Unavailable
from enc.core.log.commit import wire_commit
from enc.core.log.receipt import build_receipt, wire_receipt
from enc.node.api.http_api import SEALED_PATHS
from tests.node.api.http_requests import dialed, posted, read_response, refused
from tests.node.served import Enclave, Served, bad, good

# Internal errors


def test_a_store_that_cannot_be_written_is_told_and_the_same_commit_may_come_again(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("no disk")

    commit = enclave.commit("bob", "message", "x")
    with monkeypatch.context() as broken:
        broken.setattr(node.store, "write", fail)
        error = bad(node.post(wire_commit(commit)))
        assert (error.status, error.code) == (503, "UNAVAILABLE")
    assert node.submit(commit).seq == 1


def test_a_fault_of_ours_is_500_and_stops_nothing(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("a secret of ours")

    commit = enclave.commit("bob", "message", "x")
    for part in ("write", "target"):
        with monkeypatch.context() as broken:
            broken.setattr(node.store, part, fail)
            sent = commit if part == "write" else enclave.commit("bob", "Update", "x", ("r", "00" * 32))
            error = bad(node.post(wire_commit(sent)))
        assert (error.status, error.code) == (500, "INTERNAL_ERROR")
        assert "secret" not in error.message
    assert node.submit(commit).seq == 1


def test_a_sender_who_hangs_up_is_done_with_and_the_commit_stands(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    with node.held_up():
        with dialed(node) as peer:
            peer.sendall(posted(wire_commit(commit)))
            node.until(lambda: node.node.intake.waiting == 1)
            connections = len(node.server.server_state.connections)
        node.until(lambda: len(node.server.server_state.connections) < connections)
    node.until(lambda: node.node.intake.waiting == 0)
    assert refused(node, commit) == "DUPLICATE"


# Connections


def test_requests_that_come_at_once_are_answered_in_their_order(node: Served, enclave: Enclave) -> None:
    commits = [enclave.commit("bob", "message", f"{i}") for i in range(3)]
    refused = {**wire_commit(commits[0]), "sig": "00" * 64}
    query = enclave.request("bob", "Query", filter={})
    bodies = [wire_commit(commits[0]), query, refused, {}, wire_commit(commits[1]), query, wire_commit(commits[2])]
    get = b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.sendall(b"".join(map(posted, bodies)) + get)
        answers = [read_response(file) for _ in range(8)]
    assert [status for status, _, _ in answers] == [200, 200, 400, 400, 200, 200, 200, 200]
    found = [body.get("hash") or body.get("code") or body.get("type") or "info" for _, _, body in answers]
    first, second, third = (commit.hash.hex() for commit in commits)
    assert found[:4] == [first, "Response", "INVALID_SIGNATURE", "INVALID_QUERY"]
    assert found[4:] == [second, "Response", third, "info"]


@pytest.mark.parametrize(
    ("headers", "version", "stays"),
    [
        ((), "1.1", True),
        (("Origin: http://localhost",), "1.1", True),
        (("Connection: close",), "1.1", False),
        ((), "1.0", False),
        (("Connection: keep-alive",), "1.0", False),
    ],
)
def test_a_connection_stays_open_unless_the_peer_says_otherwise(
    node: Served, enclave: Enclave, headers: tuple[str, ...], version: str, stays: bool
) -> None:
    for body, status in ((wire_commit(enclave.commit("bob", "message", "x")), 200), ({}, 400)):
        with dialed(node) as peer, peer.makefile("rb") as file:
            peer.sendall(posted(body, *headers, version=version))
            answer = read_response(file)
            assert answer[0] == status
            if stays:
                peer.sendall(posted(enclave.request("bob", "Query", filter={}), *headers))
                assert read_response(file)[0] == 200
            else:
                assert file.read(1) == b""


def test_a_body_in_pieces_is_the_same_body(node: Served, enclave: Enclave) -> None:
    raw = posted(wire_commit(enclave.commit("bob", "message", "x" * 1000)))
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(raw), 100):
            peer.sendall(raw[start : start + 100])
            node.on_loop(lambda: None)
        assert read_response(file)[0] == 200


def test_who_waits_to_be_asked_for_the_body_is_asked(node: Served, enclave: Enclave) -> None:
    head, body = posted(wire_commit(enclave.commit("bob", "message", "x")), "Expect: 100-continue").split(b"\r\n\r\n")
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.sendall(head + b"\r\n\r\n")
        assert file.readline().split()[1] == b"100"
        assert file.readline().strip() == b""
        peer.sendall(body)
        assert read_response(file)[0] == 200


# Paths and methods


GETS = ["/info", "/health", "/metrics", "/openapi.json", "/{enclave}/sth", "/{enclave}/consistency?from=1"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/x/y/z", "//", "/sth", "/enclave", "/a/b/sth", "/INFO", "/info/", "/state/"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_path_that_is_not_there(node: Served, path: str, method: str) -> None:
    error = bad(node.http.request(method, node.url + path))
    assert (error.status, error.code) == (404, "INVALID_QUERY")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_path_by_another_method(node: Served, closed: Enclave, method: str) -> None:
    for path in {"GET": SEALED_PATHS, "POST": GETS}.get(method, [*GETS, *SEALED_PATHS]):
        response = node.http.request(method, path.format(enclave=closed.id.hex()))
        error = bad(response)
        assert (error.status, error.code) == (405, "INVALID_QUERY"), path
        assert ("POST" if path in SEALED_PATHS else "GET") in response.headers["allow"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_the_root_takes_post_only(node: Served, method: str) -> None:
    error = bad(node.http.request(method, "/"))
    assert error.status in (404, 405)
    assert error.code == "INVALID_QUERY"


@pytest.mark.parametrize("path", GETS)
def test_head_is_answered_as_get_without_its_body(node: Served, closed: Enclave, path: str) -> None:
    path = path.format(enclave=closed.id.hex())
    head, get = node.http.head(path), node.get(path)
    assert (head.status_code, get.status_code) == (200, 200)
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""


def test_the_log_is_public_by_both_of_its_paths(node: Served, closed: Enclave) -> None:
    for path in ("sth", "consistency?from=1&to=1"):
        short, long = (node.get(f"{prefix}/{closed.id.hex()}/{path}") for prefix in ("", "/enclave"))
        assert good(short) == good(long)


@pytest.mark.parametrize("name", ["00" * 32, "00", "zz" * 32, "%ff", "%00", "A" * 64, "0" * 5000])
def test_an_enclave_that_is_not_there_or_no_id(node: Served, name: str) -> None:
    for path in (f"/{name}/sth", f"/{name}/consistency?from=1", f"/enclave/{name}/sth"):
        error = bad(node.get(path))
        assert (error.status, error.code) == (404, "ENCLAVE_NOT_FOUND")


NO_RANGES = """
to=1 from=0 from=0&to=0 from=2 from=1&to=2 from=2&to=1 from=1&to=0 from= from=x from=-1 from=+1 from=1.0 from=1_0
from=%D9%A1 from=1&to=x from=1&to= from=9007199254740992 from=99999999999999999
"""


@pytest.mark.parametrize("query", ["", *NO_RANGES.split()])
def test_consistency_between_sizes_that_the_log_never_had(node: Served, closed: Enclave, query: str) -> None:
    error = bad(node.get(f"/{closed.id.hex()}/consistency?{query}"))
    assert (error.status, error.code) == (400, "INVALID_RANGE")


@pytest.mark.parametrize("query", ["from=1&from=1", "from=1&from=2", "from=1&to=1&to=1", "from=1&to=x&to=1"])
def test_a_size_that_is_told_twice_is_refused(node: Served, closed: Enclave, query: str) -> None:
    error = bad(node.get(f"/{closed.id.hex()}/consistency?{query}"))
    assert (error.status, error.code) == (400, "INVALID_QUERY")


def test_receipts_of_both_algorithms(node: Served, enclave: Enclave) -> None:
    for alg in ("schnorr", "ecdsa"):
        commit = enclave.commit("bob", "message", alg, alg=alg)
        wire = good(node.post(wire_commit(commit)))
        assert wire.get("alg", "schnorr") == alg
        (event,) = node.store.events(enclave.id, wire["seq"], 1)
        assert wire == wire_receipt(build_receipt(event))


def test_a_peer_that_asks_and_goes_is_no_fault_of_ours(node: Served, enclave: Enclave) -> None:
    """Pipelined requests are answered in order; those of a closed connection are dropped silently."""
    body, state = encode(enclave.request("bob", "Query", filter={})), node.server.server_state
    host, _, port = node.url.rpartition("/")[2].partition(":")
    before = re.findall(r'status="500"} (\S+)', node.get("/metrics").text)
    known = set(state.connections)
    peer = socket.create_connection((host, int(port)), timeout=10)
    peer.sendall((b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) * 4)
    node.until(lambda: state.connections > known)
    peer.close()
    node.until(lambda: state.connections <= known and not state.tasks)
    assert re.findall(r'status="500"} (\S+)', node.get("/metrics").text) == before
