"""Every documented limit of the HTTP API, at the limit and just past it; and input that is not a request."""

import gc
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import DecodeError
from msgspec.json import decode, encode
from msgspec.structs import replace
from structlog.testing import capture_logs
from websockets.frames import Frame, Opcode

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.primitives.encoding import MAX_INT, compact_json
from enc.core.primitives.types import Commit
from enc.node.api import http as api_http
from enc.node.config import Config, Limits
from enc.node.http.closing import close_slow, close_stuck
from enc.node.http.http_protocol import CHUNK, MAX_HEAD
from enc.node.sequence.sequencer import AdmittedCommit, Sequencer
from tests.core.world import LIFETIME, person, pub
from tests.node.api.test_http import BODIES, code, dialed, posted, sealed
from tests.node.api.test_http import heard as read_response
from tests.node.memory_store import MemoryStore
from tests.node.sequence.test_admission import Certificate
from tests.node.served import DEV, NODE, PATIENCE_S, SMALL, Clock, Enclave, Json, Served, bad, good, sqlite

KIB, MIB = 1 << 10, 1 << 20

WIDE: Json = {
    **SMALL,
    "customs": [
        *SMALL["customs"],
        {"event": "t" * 64, "operator": "MEMBER", "ops": ["C"]},
    ],
}
"""With a type of the maximum length."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = sqlite(tmp_path_factory.mktemp("limits"))
    with Served(store=store) as node:
        yield node
    store.close()


@pytest.fixture(scope="module")
def enclave(node: Served) -> Enclave:
    return node.found(WIDE)


def limited(**limits: Any) -> Config:
    return replace(DEV, limits=Limits(**limits))


# Commits


def test_content(enclave: Enclave) -> None:
    enclave.send("bob", "message", "a" * MIB)
    enclave.send("bob", "message", "é" * (MIB // 2))
    for content in ("a" * (MIB + 1), "é" * (MIB // 2) + "a"):
        error = enclave.refused("bob", "message", content)
        assert (error.status, error.code) == (400, "INVALID_COMMIT")
        assert error.message.startswith("content:")


def test_type(enclave: Enclave) -> None:
    enclave.send("bob", "t" * 64)
    for type_ in ("t" * 65, "é" * 32 + "t", ""):
        wire = {**wire_commit(enclave.commit("bob", "x")), "type": type_}
        error = bad(enclave.node.post(wire))
        assert error.code == "INVALID_COMMIT"
        assert error.message.startswith("type:")
    assert enclave.refused("bob", "é" * 32).code == "UNAUTHORIZED"


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        ([("k",)] * 64, [("k",)] * 65),
        ([("k",) * 16], [("k",) * 17]),
        ([("a" * 4096, "é" * 2048)], [("k", "a" * 4097)]),
        ([("",)], [()]),
        ([("a" * 4096,)], [("é" * 2048 + "a",)]),
    ],
)
def test_tags(enclave: Enclave, most: list[tuple[str, ...]], beyond: list[tuple[str, ...]]) -> None:
    enclave.send("bob", "message", "x", *most)
    wire = {**wire_commit(enclave.commit("bob", "message", "x")), "tags": beyond}
    error = bad(enclave.node.post(wire))
    assert error.code == "INVALID_COMMIT"
    assert error.message.startswith("tags")


@pytest.mark.parametrize("beyond", ["0", "-1", "1.0", "soon", "", "01", " 1", "٣", str(MAX_INT + 1)])
def test_the_time_of_an_auto_delete(enclave: Enclave, beyond: str) -> None:
    exp = enclave.node.clock.now + LIFETIME
    enclave.send("bob", "message", "x", ("auto-delete", str(exp + 1)), exp=exp)
    enclave.send("bob", "message", "x", ("auto-delete", str(MAX_INT), "more"))
    for tags in ([("auto-delete", beyond)], [("auto-delete", str(exp))], [("auto-delete",)]):
        wire = {**wire_commit(enclave.commit("bob", "message", "x", exp=exp)), "tags": tags}
        assert bad(enclave.node.post(wire)).code == "INVALID_COMMIT"
    twice = [("auto-delete", str(MAX_INT))] * 2
    assert (
        bad(enclave.node.post({**wire_commit(enclave.commit("bob", "message")), "tags": twice})).code
        == "INVALID_COMMIT"
    )


def padded(size: int) -> str:
    """Return a Manifest of exactly this many bytes."""
    bare = compact_json({**SMALL, "extra": ""})
    return compact_json({**SMALL, "extra": "a" * (size - len(bare.encode()))})


def test_manifest(node: Served) -> None:
    for size in (256 * KIB, 256 * KIB + 1):
        commit = build_manifest(person("alice"), padded(size), node.clock.now + LIFETIME)
        assert len((commit.content or "").encode()) == size
        if size == 256 * KIB:
            assert node.submit(commit).seq == 0
        else:
            error = bad(node.post(wire_commit(commit)))
            assert (error.code, error.message.startswith("content:")) == ("INVALID_COMMIT", True)


def test_an_operator_may_lower_them_and_info_shows_it() -> None:
    limits = Limits(
        content=4000, manifest=3500, body=6000, type=16, tags=2, tag_strings=3, tag_string=64, page_bytes=65536
    )
    with Served(replace(DEV, limits=limits)) as node:
        shown = good(node.get("/info"))["limits"]
        assert shown == {name: getattr(limits, name) for name in shown}
        assert {"content", "manifest", "body", "type", "tags", "tag_strings", "tag_string"} <= set(shown)
        enclave = node.found(SMALL)
        enclave.send("bob", "message", "a" * 4000, ("a" * 64, "", ""), ("k",))
        for content, tags in (
            ("a" * 4001, []),
            ("", [("a" * 65,)]),
            ("", [("k",) * 4]),
            ("", [("k",)] * 3),
        ):
            assert enclave.refused("bob", "message", content, *tags).code == "INVALID_COMMIT"
        assert enclave.refused("bob", "t" * 17).code == "INVALID_COMMIT"
        large = build_manifest(person("alice"), padded(3501), node.clock.now + LIFETIME)
        assert bad(node.post(wire_commit(large))).code == "INVALID_COMMIT"
        assert bad(node.post(b" " * 6001)).status == 413
        assert bad(node.post(b" " * 6000)).status == 400


# Bodies


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


@pytest.mark.parametrize("path", ["/", "/state"])
def test_body(node: Served, enclave: Enclave, path: str) -> None:
    """A body at the limit is accepted, a longer one rejected, with or without Content-Length."""
    request: Any = wire_commit(enclave.commit("bob", "message", f"sent to {path}"))
    if path != "/":
        request = enclave.request("alice", "State_Proof", namespace="rbac", key=pub("alice"), mode="current")
    body = encode(request).ljust(2 * MIB)
    good(node.http.post(path, content=chunks(body)))
    error = bad(node.http.post(path, content=chunks(body + b" ")))
    assert (error.status, error.code) == (413, "INVALID_COMMIT")
    answer = node.http.post(path, content=body)
    assert answer.status_code == (409 if path == "/" else 200)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {2 * MIB + 1}\r\n\r\n"
    status, headers, _ = spoken(node, head.encode())
    assert (status, headers["connection"]) == (413, "close")


def test_a_body_past_the_limit_is_not_taken_to_its_end(node: Served) -> None:
    with dialed(node) as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%b\r\n" % (MIB, b" " * MIB)
        try:
            for _ in range(64):
                peer.sendall(chunk)
        except OSError:
            return  # rejected while it was sent
        assert heard(peer)[0] == 413
        assert peer.recv(1) == b""


# Input that is not a request


def heard(peer: socket.socket) -> tuple[int, dict[str, str], Json]:
    """Return one response, after which the connection is closed."""
    with peer.makefile("rb") as file:
        return read_response(file)


def spoken(node: Served, sent: bytes) -> tuple[int, dict[str, str], Json]:
    with dialed(node) as peer:
        peer.sendall(sent)
        return heard(peer)


@pytest.mark.parametrize(
    "sent",
    [
        b"HELLO\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(node: Served, sent: bytes) -> None:
    with dialed(node) as peer:
        peer.sendall(sent)
        status, _, body = heard(peer)
        assert (status, body["type"], body["code"]) == (400, "Error", "INVALID_QUERY")
        assert peer.recv(1) == b""


@pytest.mark.parametrize(
    ("begins", "more"),
    [
        (b"GET /", b"a" * KIB),
        (b"GET /info?", b"a" * KIB),
        (b"GET /info HTTP/1.1\r\nX-Long: ", b"a" * KIB),
        (b"GET /info HTTP/1.1\r\n", b"X-Many: xyz\r\n" * 100),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-Trailer: xyz\r\n" * 100),
    ],
)
def test_a_head_without_end_is_refused_before_it_fills_the_memory(node: Served, begins: bytes, more: bytes) -> None:
    with dialed(node) as peer:
        peer.settimeout(5)
        try:
            peer.sendall(begins + more * 1024)
            status, _, _ = heard(peer)
        except TimeoutError:
            pytest.fail("the node still listens")
        except (OSError, IndexError):
            return  # closed while it was sent
        assert 400 <= status < 500


@pytest.mark.parametrize("path", ["/", "/info"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_head_past_the_limit_is_refused_also_if_it_comes_at_once(node: Served, method: str, path: str) -> None:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Long: ".encode()
    _, _, body = spoken(node, head + b"x" * (MAX_HEAD - 200) + b"\r\n\r\n{}")
    assert "head" not in body.get("message", "")
    with suppress(OSError, IndexError):  # closed while it was sent
        status, _, body = spoken(node, head + b"x" * (MAX_HEAD + 1) + b"\r\n\r\n{}")
        assert (status, body["code"]) == (400, "INVALID_QUERY")
        assert "head" in body["message"]


def test_a_head_past_the_limit_that_comes_in_two_parts(node: Served) -> None:
    state = node.server.server_state
    with dialed(node) as peer, suppress(OSError, IndexError):  # closed while it was sent
        peer.sendall(b"GET /info HTTP/1.1\r\nX-Long: " + b"x" * 40_000)
        node.until(lambda: any(c._began + c._received > 40_000 for c in state.connections))
        peer.sendall(b"x" * 30_000 + b"\r\nHost: x\r\n\r\n")
        assert heard(peer)[0] == 400


def test_a_request_behind_many_others_has_the_same_limit(node: Served) -> None:
    """Only its own head counts, not the bytes received with it."""
    get = b"GET /info HTTP/1.1\r\nHost: x\r\nX-Long: %b\r\n\r\n"
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.sendall(get % (b"x" * 30_000) * 6)
        assert [read_response(file)[0] for _ in range(6)] == [200] * 6


@pytest.mark.parametrize("sent", [b"POST /|Content-Length: 2", b"GET /|Content-Length: 2", b"POST /state|X: y"])
def test_an_upgrade_with_a_body_is_refused_and_holds_no_connection(node: Served, sent: bytes) -> None:
    line, _, header = sent.partition(b"|")
    with dialed(node) as peer:
        peer.sendall(
            line + b" HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + header + b"\r\n\r\n{}"
        )
        status, _, body = heard(peer)
        assert (status, body["code"]) == (400, "INVALID_QUERY")


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def test_an_upgrade_before_what_was_asked_is_answered_is_refused(node: Served, enclave: Enclave) -> None:
    """A handler that waits for the answer would never learn that the peer has gone."""
    state = node.server.server_state
    with node.held_up(), dialed(node) as peer:
        known = len(state.connections)
        peer.sendall(posted(wire_commit(enclave.commit("bob", "message", "x"))) + UPGRADE)
        status, _, body = heard(peer)
        assert (status, body["code"]) == (400, "INVALID_QUERY")
        assert peer.recv(1) == b""
        node.until(lambda: len(state.connections) < known + 1)


@pytest.mark.parametrize("cut", [1, 0])
def test_a_body_that_is_cut_off_leaves_nothing(cut: int) -> None:
    """Also if the bytes received would have been enough."""
    with Served() as node:
        commit = node.found(SMALL).commit("bob", "message", "not all of it")
        body, state = encode(wire_commit(commit)), node.server.server_state
        length = len(body) + 1
        for how in (b"Content-Length: %d\r\n\r\n" % length, b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % length):
            with dialed(node) as peer:
                peer.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + how + body[: len(body) - cut])
                node.until(lambda: len(state.connections) == 2)
            node.until(lambda: len(state.connections) == 1)
        assert node.submit(commit).seq == 1


def test_who_is_slow_to_send_a_request_is_cut() -> None:
    with Served() as node:
        state, loop = node.server.server_state, node.node.loop

        def cut(seconds: float) -> int:
            return node.on_loop(lambda: close_slow(state, loop.time() + seconds, 30))

        good(node.get("/info"))
        half = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
        with dialed(node) as silent, dialed(node) as halfway, dialed(node) as second:
            halfway.sendall(half % b"/")
            second.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n")
            assert heard(second)[0] == 200
            node.until(lambda: len(state.connections) == 4)
            assert cut(29) == 0
            assert cut(31) == 2  # a peer that has sent a whole request is not cut
            node.until(lambda: len(state.connections) == 2)
            second.sendall(half % b"/state")
            node.until(lambda: any(not c.cycle.response_complete for c in state.connections))
            assert cut(29) == 0
            assert cut(31) == 1
            for peer in (silent, halfway, second):
                with suppress(ConnectionResetError):
                    assert peer.recv(1) == b""
        good(node.get("/info"))


def asked(enclave: Enclave, *headers: str) -> bytes:
    """Return a Query for everything as raw bytes."""
    return posted(enclave.request("bob", "Query", filter={}), *headers)


@pytest.fixture(scope="module")
def pages() -> Iterator[Enclave]:
    """A node with a page of eight megabytes, and room for three such answers."""
    with filled(replace(DEV, limits=Limits(unsent_bytes=36 * MIB)), ["a" * 900_000] * 9) as enclave:
        yield enclave


def untouched(enclave: Enclave) -> None:
    """Return whether nothing waits for any peer."""
    enclave.node.until(lambda: enclave.node.server.peers.unsent == 0)


WAYS = pytest.mark.parametrize("way", [(), ("Origin: x",)], ids=["the short way", "the long way"])


@WAYS
def test_who_does_not_take_an_answer_is_cut(pages: Enclave, way: tuple[str, ...]) -> None:
    """A peer that reads some of it now and then is not cut."""
    node, state, loop = pages.node, pages.node.server.server_state, pages.node.node.loop
    with dialed(node) as peer:
        peer.sendall(asked(pages, *way))
        node.until(lambda: node.server.peers.unsent > MIB)

        def cut(seconds: float) -> int:
            return node.on_loop(lambda: close_stuck(state, loop.time() + seconds, 30))

        assert (cut(0), cut(29)) == (0, 0)
        (one,) = [c for c in state.connections if c.peer.unsent]
        before = one.peer.progress
        while one.peer.progress == before:
            peer.recv(KIB)
        assert (cut(31), cut(60), cut(62)) == (0, 0, 1)
    untouched(pages)


@WAYS
@pytest.mark.parametrize("last", [(), ("Connection: close",)], ids=["stays", "closes"])
def test_a_long_answer_comes_whole(pages: Enclave, way: tuple[str, ...], last: tuple[str, ...]) -> None:
    with dialed(pages.node) as peer, peer.makefile("rb") as file:
        for headers in ((), last):
            peer.sendall(asked(pages, *way, *headers))
            status, _, body = read_response(file)
            assert (status, len(body["content"]) > 8 * MIB) == (200, True)
        if last:
            assert file.read(1) == b""
        else:
            peer.sendall(posted({}))
            assert read_response(file)[0] == 400
    untouched(pages)


@WAYS
def test_of_many_questions_on_one_connection_one_answer_waits(pages: Enclave, way: tuple[str, ...]) -> None:
    peers = pages.node.server.peers
    with dialed(pages.node) as peer, peer.makefile("rb") as file:
        peer.sendall(asked(pages, *way) * 3)
        pages.node.until(lambda: peers.unsent > MIB)
        assert len(pages.query("bob", limit=1)) == 1  # asked later, and answered after them
        assert peers.unsent < 12 * MIB
        (one,) = [c for c in pages.node.server.server_state.connections if c.peer.unsent]
        assert one.transport.get_write_buffer_size() <= 2 * CHUNK
        for _ in range(3):
            assert read_response(file)[0] == 200
    untouched(pages)


def from_(node: Served, address: str) -> socket.socket:
    url = httpx.URL(node.url)
    return socket.create_connection((url.host, url.port or 0), PATIENCE_S, (address, 0))


def is_answered(peer: socket.socket) -> bool:
    """Or was dropped before the answer's end."""
    try:
        return heard(peer)[0] == 200
    except (OSError, DecodeError):
        return False


@WAYS
def test_past_the_bound_on_what_waits_who_reads_nothing_is_dropped(pages: Enclave, way: tuple[str, ...]) -> None:
    """Peers of one address request pages and do not read; a slow peer of another address gets its page."""
    node, peers = pages.node, pages.node.server.peers
    before, held = peers.dropped, list[socket.socket]()
    try:
        with from_(node, "127.0.0.2") as slow, slow.makefile("rb") as file:
            slow.sendall(asked(pages, *way))
            node.until(lambda: peers.unsent > MIB)
            for _ in range(8):
                held.append(from_(node, "127.0.0.1"))
                held[-1].sendall(asked(pages, *way))
            node.until(lambda: peers.dropped >= before + 6)
            assert 24 * MIB < peers.unsent <= 36 * MIB
            assert read_response(file)[0] == 200
            assert peers.dropped == before + 6
        assert sum(is_answered(peer) for peer in held) == 2
    finally:
        for peer in held:
            peer.close()
    untouched(pages)


def test_the_log_tells_once_how_many_were_dropped(node: Served) -> None:
    def tell() -> list[Any]:
        node.server.peers.dropped += 6
        with capture_logs() as logs:
            node.server._log_dropped()
            node.server._log_dropped()
        return logs

    ((entry),) = node.on_loop(tell)
    assert (entry["event"], entry["log_level"], entry["count"]) == ("peers_dropped", "warning", 6)


class Secured:
    """A node behind TLS, and peers of it."""

    def __init__(self, tmp_path: Path, limits: Limits) -> None:
        certificate = Certificate(tmp_path)
        self.config = replace(certificate.config, limits=limits)
        self._context = ssl.create_default_context()
        certificate.authority.configure_trust(self._context)

    def dial(self, node: Served) -> ssl.SSLSocket:
        return self._context.wrap_socket(from_(node, "127.0.0.1"), server_hostname="127.0.0.1")


@WAYS
@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
def test_an_answer_that_alone_is_too_much_ends_its_connection_in_silence(
    tmp_path: Path, way: tuple[str, ...], is_secured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(unsent_bytes=MIB)
    tls = Secured(tmp_path, limits)
    with filled(tls.config if is_secured else replace(DEV, limits=limits), ["a" * 900_000] * 9) as pages:
        with tls.dial(pages.node) if is_secured else from_(pages.node, "127.0.0.1") as peer:
            peer.sendall(asked(pages, *way))
            assert not is_answered(peer)
        untouched(pages)
        assert pages.node.server.peers.dropped == 1
    assert [
        line for line in caplog.messages if "peers_dropped" not in line
    ] == []  # the log may report that it was dropped


def test_a_line_that_alone_is_too_much_ends_its_connection_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Secured(tmp_path, Limits(unsent_bytes=200 * KIB))
    with filled(tls.config, ["a" * 9000] * 100) as pages, tls.dial(pages.node) as peer:
        peer.sendall(UPGRADE)
        assert peer.recv(KIB).startswith(b"HTTP/1.1 101 ")
        query = Frame(Opcode.TEXT, encode(pages.request("bob", "Query", filter={})))
        peer.sendall(query.serialize(mask=True))
        with suppress(OSError):
            while peer.recv(MIB):
                pass
        untouched(pages)
        pages.node.until(lambda: not pages.node.node.ws.connections)
        assert (pages.node.server.peers.dropped, pages.node.node.hub.count) == (1, 0)
    assert [
        line for line in caplog.messages if "peers_dropped" not in line
    ] == []  # the log may report that it was dropped


def test_what_waits_behind_tls_is_counted_and_bounded(tmp_path: Path) -> None:
    tls = Secured(tmp_path, Limits(unsent_bytes=36 * MIB))
    with filled(tls.config, ["a" * 900_000] * 9) as pages, ExitStack() as stack:
        node, peers = pages.node, pages.node.server.peers
        state, loop = node.server.server_state, node.node.loop
        for _ in range(5):
            peer = stack.enter_context(tls.dial(node))
            peer.sendall(asked(pages))
        node.until(lambda: peers.dropped == 2)
        assert peers.unsent > 24 * MIB

        def own() -> list[Any]:
            return [c for c in state.connections if c.transport.get_extra_info("peername") == peer.getsockname()]

        waiting = node.on_loop(own)

        def cut(seconds: float) -> int:
            return node.on_loop(lambda: close_stuck(state, loop.time() + seconds, 30))

        node.until(lambda: all(c.transport.get_write_buffer_size() for c in state.connections))
        assert (cut(0), cut(29)) == (0, 0)
        before = waiting[0].peer.progress
        while waiting[0].peer.progress == before or not waiting[0].transport.get_write_buffer_size():
            assert peer.recv(KIB)
        assert (cut(31), cut(60), cut(62)) == (2, 0, 1)  # a peer that reads some of it is not stuck
        node.until(lambda: peers.unsent == peers.count == 0)


def test_a_connection_too_many_is_gone_at_once_also_behind_tls(tmp_path: Path) -> None:
    tls = Secured(tmp_path, Limits(connections=1))
    with Served(tls.config) as node, tls.dial(node), tls.dial(node) as second:
        assert heard(second)[0] == 503
        node.until(lambda: len(node.server.server_state.connections) == 1)


# JSON

WRONG = [None, True, 7, -1, 1.5, "x", [], {}, [1], {"a": 1}]
COMMIT_FIELDS = ["hash", "enclave", "from", "type", "content", "exp", "tags", "alg", "sig"]


def wrong_for(right: Any) -> list[Any]:
    """Values of other JSON types."""
    return [value for value in WRONG if type(value) is not type(right)]


@pytest.mark.parametrize("field", COMMIT_FIELDS)
def test_a_commit_with_a_field_of_another_type(node: Served, enclave: Enclave, field: str) -> None:
    right = {"alg": "schnorr", **wire_commit(enclave.commit("bob", "message", "x"))}
    right["tags"] = []
    for value in wrong_for(right[field]):
        error = bad(node.post({**right, field: value}))
        assert (error.status, error.code) == (400, "INVALID_COMMIT"), value
        assert error.message.startswith(field), value
    good(node.post(right))


@pytest.mark.parametrize("field", COMMIT_FIELDS)
def test_a_commit_without_a_field(node: Served, enclave: Enclave, field: str) -> None:
    wire = wire_commit(enclave.commit("bob", "message", f"without {field}"))
    wire.pop(field, None)
    response = node.post(wire)
    if field in ("tags", "alg"):
        good(response)
    else:
        assert bad(response).code == ("INVALID_QUERY" if field == "exp" else "INVALID_COMMIT")
        assert field in bad(response).message or field == "exp"


@pytest.mark.parametrize("field", ["hash", "enclave", "from", "sig"])
def test_hex_has_one_spelling(node: Served, enclave: Enclave, field: str) -> None:
    wire = wire_commit(enclave.commit("bob", "message", "x"))
    text = wire[field]
    for wrong in (text.upper(), "0x" + text[2:], text[:-1], text[:-2], text + "00", " " + text[1:], "g" + text[1:], ""):
        error = bad(node.post({**wire, field: wrong}))
        assert error.code == "INVALID_COMMIT"
        assert error.message.startswith(field)


@pytest.mark.parametrize("exp", ["1.0", "1e12", "-1", "9007199254740992", "1" * 400, "0x10", "NaN", "01"])
def test_exp_is_an_integer_that_every_reader_holds(node: Served, enclave: Enclave, exp: str) -> None:
    wire = encode(wire_commit(enclave.commit("bob", "message", "x")))
    number = b'"exp":%d' % decode(wire)["exp"]
    assert bad(node.post(wire.replace(number, b'"exp":' + exp.encode()))).code == "INVALID_COMMIT"


@pytest.mark.parametrize("tags", ["", {}, [1], ["r"], [[1]], [[None]], [["k", 1]], [{"k": "v"}], [[["k"]]]])
def test_tags_are_lists_of_strings(node: Served, enclave: Enclave, tags: Any) -> None:
    error = bad(node.post({**wire_commit(enclave.commit("bob", "message", "x")), "tags": tags}))
    assert error.code == "INVALID_COMMIT"
    assert error.message.startswith("tags")


@pytest.mark.parametrize("alg", ["", "SCHNORR", "ed25519", "none"])
def test_an_algorithm_that_is_not_there(node: Served, enclave: Enclave, alg: str) -> None:
    assert bad(node.post({**wire_commit(enclave.commit("bob", "message", "x")), "alg": alg})).code == "INVALID_COMMIT"


NO_JSON = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"3",
    b'"exp"',
    b"{",
    b"{}}",
    b"{'a': 1}",
    b'{"type":"Query"',
    b'{"type":"Query","type":}',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b'{"exp":1',
    b'{"exp":1}garbage',
    b'{"exp":1,"type":"\xff"}',
    b'{"exp":1,"type":"\xed\xa0\x80"}',
    b'{"exp":1,"type":"\\ud800"}',
    b'{"exp":1,"session":"x"}',
]


@pytest.mark.parametrize("body", NO_JSON)
def test_what_is_no_json_or_says_nothing(node: Served, body: bytes) -> None:
    error = bad(node.post(body))
    assert error.status == 400
    assert error.code == ("INVALID_COMMIT" if b'"exp"' in body else "INVALID_QUERY")
    for path in ("/inclusion", "/bundle", "/state", "/state-batch", "/checkpoint"):
        error = bad(node.post(body, path))
        assert (error.status, error.code) == (400, "INVALID_QUERY")


@pytest.mark.parametrize(
    "outside", ["%b", '{"a":%b}', '{"exp":%b}', '{"exp":1,"a":%b}', '{"exp":1,"session":"","a":%b}']
)
def test_nesting_without_end(node: Served, outside: str) -> None:
    for deep in (b"[" * 100_000 + b"]" * 100_000, b"[" * 500_000, b'{"a":' * 100_000):
        error = bad(node.post(outside.encode().replace(b"%b", deep)))
        assert error.status == 400
        assert error.code in ("INVALID_COMMIT", "INVALID_QUERY")


def test_a_text_that_is_no_unicode_is_refused_before_it_is_hashed(node: Served, enclave: Enclave) -> None:
    wire = encode(wire_commit(enclave.commit("bob", "message", "TEXT")))
    for wrong in (b"\xff", b"\\ud800", b"\xed\xa0\x80", b"\\udc00\\ud800"):
        assert bad(node.post(wire.replace(b"TEXT", wrong))).code == "INVALID_COMMIT"


def test_of_a_repeated_key_the_last_counts_and_the_hash_decides(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "the last")
    wire = encode(wire_commit(commit))
    assert bad(node.post(wire[:-1] + b',"content":"another"}')).code == "INVALID_HASH"
    good(node.post(b'{"content":"the first",' + wire[1:]))


def test_fields_that_are_not_known_are_no_part_of_a_commit(node: Served, enclave: Enclave) -> None:
    wire = wire_commit(enclave.commit("bob", "message", "with more"))
    good(node.post({**wire, "content_hash": "00" * 32, "colour": [{}]}))


@pytest.mark.parametrize(
    "content",
    [
        '{"key":"topic","key":"topic","value":1}',
        '{"key":"topic","value":{"a":1,"a":1}}',
        '{"key":"topic","value":9007199254740992}',
        '{"key":"topic","value":1e999}',
        '{"key":"topic","value":NaN}',
        '{"key":"topic","value":"\\ud800"}',
        '{"key":"topic","value":' + "[" * 65 + "]" * 65 + "}",
        '{"key":"topic","value":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"key":1,"value":1}',
        '{"key":"topic"}',
        "[]",
        "",
    ],
)
def test_contents_that_two_readers_could_read_differently(enclave: Enclave, content: str) -> None:
    assert enclave.refused("bob", "Shared", content).code == "INVALID_COMMIT"


def test_contents_nested_as_deep_as_they_may_be(enclave: Enclave) -> None:
    enclave.send("bob", "Shared", '{"key":"topic","value":' + "[" * 64 + "]" * 64 + "}")
    for depth, status in ((64, 200), (65, 400)):
        text = compact_json({**SMALL, "deep": 0}).replace('"deep":0', '"deep":' + "[" * depth + "]" * depth)
        commit = build_manifest(person("alice"), text, enclave.node.clock.now + LIFETIME)
        assert enclave.node.post(wire_commit(commit)).status_code == status


# Sealed requests

REQUEST_FIELDS = ["type", "enclave", "from", "session", "content"]


@pytest.mark.parametrize("field", REQUEST_FIELDS)
def test_a_request_with_a_field_of_another_type_or_without_it(node: Served, enclave: Enclave, field: str) -> None:
    for type_, body in BODIES.items():
        request = enclave.request("alice", type_, **body)
        for value in wrong_for(""):
            assert code(node, {**request, field: value}, type_) == "INVALID_QUERY"
        assert code(node, {k: v for k, v in request.items() if k != field}, type_) == "INVALID_QUERY"
        for value in ("", "x", "00" * 33, request["enclave"].upper()):
            expected = {"session": "INVALID_SESSION", "content": "DECRYPT_FAILED"}.get(field, "INVALID_QUERY")
            if not (field == "enclave" and value == request["enclave"]):
                assert code(node, {**request, field: value}, type_) == expected, (type_, value)


HEX = "00" * 32
NO_NUMBERS = [None, True, -1, 1.5, "0", [], {}, MAX_INT + 1]
NO_HEX = [None, True, 7, [], {}, "", "zz" * 32, "00" * 31, "AA" * 32]
INSIDE: list[tuple[str, Json, str, list[Any]]] = [
    ("Query", {"filter": {}}, "filter", [None, True, 7, "x", []]),
    ("Query", {"filter": {}}, "proof", [None, 1, 0, "true", [], {}]),
    ("Inclusion_Proof", {"leaf_index": 0}, "leaf_index", NO_NUMBERS),
    ("Inclusion_Proof", {"leaf_index": 0}, "tree_size", NO_NUMBERS),
    ("Bundle_Proof", {}, "leaf_index", NO_NUMBERS),
    ("Bundle_Proof", {}, "event_id", NO_HEX),
    ("Bundle_Proof", {"leaf_index": 0}, "event_id", [HEX]),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "namespace", [None, True, 7, [], {}]),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "key", NO_HEX),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "tree_size", NO_NUMBERS),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "mode", [None, True, 7, [], {}, "", "VERIFIED", "pending"]),
    ("State_Batch", {}, "keys", [None, True, 7, "x", {}, [], [HEX], [{}], [{"namespace": "rbac"}], [{"key": HEX}]]),
    ("State_Batch", {"keys": [{"namespace": "rbac", "key": HEX}]}, "tree_size", NO_NUMBERS),
    ("State_Batch", {"keys": [{"namespace": "rbac", "key": HEX}]}, "mode", [None, 7, "pending"]),
]


@pytest.mark.parametrize(("type_", "body", "field", "values"), INSIDE)
def test_a_field_inside_that_is_no_such_thing(
    enclave: Enclave, type_: str, body: Json, field: str, values: list[Any]
) -> None:
    for value in values:
        error = enclave.denied("alice", type_, **body, **{field: value}) if field not in body else None
        error = error or enclave.denied("alice", type_, **{**body, field: value})
        assert (error.status, error.code) == (400, "INVALID_QUERY"), value


@pytest.mark.parametrize("type_", [type_ for type_, body in BODIES.items() if body])
def test_a_body_without_what_it_asks(enclave: Enclave, type_: str) -> None:
    assert enclave.denied("alice", type_).code == "INVALID_QUERY"
    for field in BODIES[type_]:
        rest = {name: value for name, value in BODIES[type_].items() if name != field}
        assert enclave.denied("alice", type_, **rest).code == "INVALID_QUERY"


def test_a_plaintext_with_a_repeated_key(node: Served, enclave: Enclave) -> None:
    session = node.session("alice")
    token = session.token.hex().encode()
    twice = b'{"session":"","session":"%b","filter":3,"filter":{}}' % token
    good(node.post(sealed(session, enclave, "Query", twice)))


# Filters

IDS = [f"{i:064x}" for i in range(101)]
MAXIMA: list[tuple[str, Any, Any]] = [
    ("id", IDS[:100], IDS),
    ("seq", list(range(100)), list(range(101))),
    ("type", [f"t{i}" for i in range(20)], [f"t{i}" for i in range(21)]),
    ("from", IDS[:100], IDS),
    ("tags", {f"t{i}": True for i in range(10)}, {f"t{i}": True for i in range(11)}),
    ("tags", {"k": [f"v{i}" for i in range(20)]}, {"k": [f"v{i}" for i in range(21)]}),
    ("limit", 1000, 1001),
    ("limit", 1, 0),
    ("seq", MAX_INT, MAX_INT + 1),
    ("seq", {"end_at": MAX_INT}, {"end_at": MAX_INT + 1}),
    ("timestamp", {"start_after": MAX_INT}, {"start_after": MAX_INT + 1}),
]


@pytest.mark.parametrize(("field", "most", "beyond"), MAXIMA)
def test_the_maxima_of_a_filter(enclave: Enclave, field: str, most: Any, beyond: Any) -> None:
    enclave.query("alice", **{field: most})
    error = enclave.denied("alice", "Query", filter={field: beyond})
    assert (error.status, error.code) == (400, "INVALID_FILTER")
    assert error.message.startswith(field)


NO_FILTERS: dict[str, list[Any]] = {
    "id": [None, True, 7, {}, "", "zz" * 32, "AA" * 32, [7], [None], [[]], ["00"]],
    "seq": [None, True, -1, 1.5, "1", [1.5], ["1"], [-1], [None], {"start": 1}, {"start_at": "1"}, {"end_at": None}],
    "type": [None, True, 7, {}, [7], [None]],
    "from": [None, True, 7, {}, "", "00", [7], ["AA" * 32]],
    "tags": [None, True, 7, "x", [], {"k": None}, {"k": False}, {"k": 7}, {"k": [7]}, {"k": {}}, {"k": [True]}],
    "timestamp": [None, True, 7, "x", [], [7], {"start_at": -1}, {"after": 1}, {"start_at": 1.5}],
    "limit": [None, True, -1, 0, 1.5, "1", [], {}, MAX_INT + 1],
    "reverse": [None, 1, 0, "true", [], {}],
    "Type": ["message"],
    "": [1],
}


@pytest.mark.parametrize("field", NO_FILTERS)
def test_what_is_no_filter(enclave: Enclave, field: str) -> None:
    for value in NO_FILTERS[field]:
        assert enclave.denied("alice", "Query", filter={field: value}).code == "INVALID_FILTER", value


def test_an_empty_list_matches_nothing(enclave: Enclave) -> None:
    for field in ("id", "seq", "type", "from"):
        assert enclave.query("alice", **{field: []}) == []
    assert enclave.query("alice", tags={"k": []}) == []


# Answers


def test_a_batch_of_keys(enclave: Enclave) -> None:
    keys = [{"namespace": "rbac", "key": f"{i:064x}"} for i in range(257)]
    assert len(enclave.ask("alice", "State_Batch", keys=keys[:256], mode="current")["proofs"]) == 256
    assert enclave.denied("alice", "State_Batch", keys=keys).code == "INVALID_QUERY"
    assert enclave.denied("alice", "State_Batch", keys=[]).code == "INVALID_QUERY"


@contextmanager
def filled(config: Config, contents: list[str]) -> Iterator[Enclave]:
    """A node with one enclave of these messages by bob."""
    clock, store = Clock(), MemoryStore()
    manifest = build_manifest(person("alice"), compact_json(SMALL), clock.now + LIFETIME)
    exps = range(clock.now + LIFETIME, clock.now + LIFETIME + len(contents))
    commits: list[Commit] = [
        build_commit(person("bob"), manifest.enclave, "message", content, exp)
        for content, exp in zip(contents, exps, strict=True)
    ]
    sequencer = Sequencer(store, NODE, lambda: clock.now, deliver=lambda outcomes: None)
    sequencer.run_once([AdmittedCommit(commit) for commit in (manifest, *commits)])
    with Served(config, store, clock) as node:
        yield Enclave(node, manifest)


def test_the_greatest_page() -> None:
    with filled(DEV, [""] * 1000) as enclave:
        page = enclave.ask("bob", "Query", filter={"limit": 1000})
        assert (len(page["events"]), page["more"]) == (1000, True)
        rest = enclave.ask("bob", "Query", filter={"limit": 1000, "seq": {"start_after": 999}})
        assert ([item["event"]["seq"] for item in rest["events"]], "more" in rest) == ([1000], False)
        whole = enclave.ask("bob", "Query", filter={"limit": 1000, "type": "message"})
        assert (len(whole["events"]), "more" in whole) == (1000, False)
        assert len(enclave.query("bob")) == 100


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_ends_at_its_size_in_bytes_and_says_so(reverse: bool) -> None:
    with filled(limited(page_bytes=64 * KIB), ["a" * 20_000] * 10 + ["b" * 100_000, "c"]) as enclave:
        seqs, sizes, range_ = list[int](), list[int](), {}
        while True:
            page = enclave.ask("bob", "Query", filter={"seq": range_, "type": "message", "reverse": reverse})
            found = [item["event"]["seq"] for item in page["events"]]
            assert sum(len(encode(item["event"])) for item in page["events"]) <= 64 * KIB or len(found) == 1
            seqs, sizes = seqs + found, [*sizes, len(found)]
            range_ = {"end_before" if reverse else "start_after": found[-1]}
            if "more" not in page:
                break
        assert seqs == list(range(1, 13))[:: -1 if reverse else 1]
        assert sizes == ([3, 3, 3, 1, 1, 1] if not reverse else [1, 1, 3, 3, 3, 1])


# Connections and queues


def test_connections() -> None:
    with Served(limited(connections=3)) as node:
        state = node.server.server_state
        good(node.get("/info"))  # keeps its connection
        with dialed(node), dialed(node):
            node.until(lambda: len(state.connections) == 3)
            with dialed(node) as fourth:
                status, headers, body = heard(fourth)
                assert (status, headers["retry-after"]) == (503, "1")
                assert (body["type"], body["code"]) == ("Error", "UNAVAILABLE")
                assert fourth.recv(1) == b""
            good(node.get("/info"))
        node.until(lambda: len(state.connections) == 1)
        with dialed(node) as other:
            other.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n")
            assert heard(other)[0] == 200


def test_connections_of_one_address() -> None:
    config = Config(port=0, limits=Limits(connections_per_address=3))
    with Served(config) as node:
        state = node.server.server_state
        good(node.get("/info"))  # keeps its connection
        with dialed(node) as second, dialed(node):
            second.sendall(UPGRADE)
            assert second.recv(64).startswith(b"HTTP/1.1 101 ")  # it still counts
            node.until(lambda: len(state.connections) == 3)
            with dialed(node) as fourth:
                status, headers, body = heard(fourth)
                assert (status, headers["retry-after"]) == (503, "1")
                assert (body["code"], body["message"]) == ("UNAVAILABLE", "too many connections from this address")
                assert fourth.recv(1) == b""
            with from_(node, "127.0.0.2") as other:
                other.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n")
                assert heard(other)[0] == 200
            good(node.get("/info"))
        node.until(lambda: node.server.peers.count == 1)
        with dialed(node) as other:
            other.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n")
            assert heard(other)[0] == 200


def test_development_has_no_limit_for_one_address() -> None:
    with Served(limited(connections_per_address=1)) as node, dialed(node), dialed(node):
        good(node.get("/info"))


def test_what_a_connection_too_many_sends_is_not_heard() -> None:
    with Served(limited(connections=1)) as node:
        enclave = node.found(SMALL)
        body = encode(wire_commit(enclave.commit("bob", "message", "x")))
        sent = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        with dialed(node) as second, suppress(OSError):
            second.sendall(sent)
            assert heard(second)[0] == 503
        assert enclave.seqs("bob") == [0]


def test_waiting_commits() -> None:
    with Served(limited(waiting_commits=3)) as node, ThreadPoolExecutor(3) as pool:
        enclave = node.found(SMALL)
        commits = [enclave.commit("bob", "message", f"{i}") for i in range(4)]
        with node.held_up():
            sent = [pool.submit(node.submit, commit) for commit in commits[:3]]
            node.until(lambda: node.node.intake.waiting == 3)
            error = bad(node.post(wire_commit(commits[3])))
            assert (error.status, error.code, error.context) == (503, "UNAVAILABLE", {"retry_after_ms": 1000})
            assert enclave.seqs("bob") == [0]  # reading goes on
        assert sorted(future.result().seq for future in sent) == [1, 2, 3]
        assert node.submit(commits[3]).seq == 4


def test_waiting_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_http, "MAX_WAITING_READS", 2)
    go_on = threading.Event()
    with Served() as node, ThreadPoolExecutor(2) as pool:
        enclave = node.found(SMALL)
        answers = node.node.http._reads
        find = node.store.find
        monkeypatch.setattr(node.store, "find", lambda *args: (go_on.wait(PATIENCE_S), find(*args))[1])
        sent = [pool.submit(enclave.seqs, "bob") for _ in range(2)]
        node.until(lambda: answers._waiting == 2)
        error = enclave.denied("bob", "Query", filter={})
        assert (error.status, error.code) == (503, "UNAVAILABLE")
        assert bad(node.get(f"/{enclave.id.hex()}/sth")).code == "UNAVAILABLE"
        enclave.send("bob", "message", "writing goes on")
        go_on.set()
        assert [future.result() for future in sent] == [[0, 1], [0, 1]]
        assert enclave.seqs("bob") == [0, 1]


@pytest.mark.parametrize("kind", ["a request", "a message"])
def test_a_connection_that_is_gone_is_let_go_without_the_collector(kind: str) -> None:
    """Otherwise the memory of unfinished requests adds up until the collector runs, which is rare."""
    upgrade = "GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    upgrade += "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    begun = bytes(100_000)
    with Served() as node:
        connections = node.server.server_state.connections
        gc.disable()
        try:
            with socket.create_connection(("127.0.0.1", httpx.URL(node.url).port), PATIENCE_S) as peer:
                if kind == "a request":
                    peer.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n" + begun)
                    node.until(lambda: any(c._body >= len(begun) for c in connections))
                else:
                    peer.sendall(upgrade.encode())
                    assert peer.recv(4096).startswith(b"HTTP/1.1 101")
                    peer.sendall(b"\x01\xff" + (200_000).to_bytes(8, "big") + bytes(4) + begun)
                    node.until(lambda: any(len(c.conn.reader.buffer) >= len(begun) for c in connections))
                held = node.on_loop(lambda: [weakref.ref(c) for c in connections])
            node.until(lambda: not any(ref() is not None and _size(ref()) for ref in held))
        finally:
            gc.enable()


def _size(connection: Any) -> int:
    """Return the bytes still held. A WebSocket's parts refer to each other, but their data is freed."""
    if hasattr(connection, "conn"):
        return len(connection.conn.reader.buffer) + len(connection.frames)
    return 1
