"""Limits on connections and waiting bytes, slow peers, and input that is not HTTP."""

import gc
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import DecodeError
from msgspec.json import encode
from msgspec.structs import replace
from structlog.testing import capture_logs
from websockets.frames import Frame, Opcode

from enc.core.log.commit import wire_commit
from enc.node.api import read_pool
from enc.node.assembly import READERS
from enc.node.config import LimitSettings, NodeConfig
from enc.node.store.events import SearchItem
from enc.runtime.serving.closing import close_slow, close_stuck
from enc.runtime.serving.fast_response import CHUNK
from enc.runtime.serving.http_protocol import MAX_HEAD
from tests.node.api.http_requests import dialed, posted, read_response
from tests.node.certificates import Certificate
from tests.node.served import DEV, PATIENCE_S, SMALL, Enclave, Served, bad, good
from tests.node.server.limits_setup import KIB, MIB, filled, limited, read_last_response, spoken

# Input that is not a request


@pytest.mark.parametrize(
    "sent",
    [
        b"HELLO\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_closed(node: Served, sent: bytes) -> None:
    with dialed(node) as peer:
        peer.sendall(sent)
        status, _, body = read_last_response(peer)
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
            status, _, _ = read_last_response(peer)
        except TimeoutError:
            pytest.fail("the node still listens")
        except (OSError, IndexError):
            return  # closed while it was sent
        assert 400 <= status < 500


@pytest.mark.parametrize("path", ["/", "/info"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_head_past_the_limit_is_refused_also_if_it_comes_at_once(node: Served, method: str, path: str) -> None:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nX-Long: ".encode()
    _, _, body = spoken(node, head + b"x" * (MAX_HEAD - 200) + b"\r\n\r\n{}")
    assert "head" not in body.get("message", "")
    with suppress(OSError, IndexError):  # closed while it was sent
        status, _, body = spoken(node, head + b"x" * (MAX_HEAD + 1) + b"\r\n\r\n{}")
        assert (status, body["code"]) == (400, "INVALID_QUERY")
        assert "head" in body["message"]


def test_a_head_past_the_limit_that_comes_in_two_parts(node: Served) -> None:
    state = node.connections_state
    with dialed(node) as peer, suppress(OSError, IndexError):  # closed while it was sent
        peer.sendall(b"GET /info HTTP/1.1\r\nX-Long: " + b"x" * 40_000)
        node.until(lambda: any(c._first_read + c._received > 40_000 for c in state.connections))
        peer.sendall(b"x" * 30_000 + b"\r\nHost: localhost\r\n\r\n")
        assert read_last_response(peer)[0] == 400


def test_a_request_behind_many_others_has_the_same_limit(node: Served) -> None:
    """Only its own head counts, not the bytes received with it."""
    get = b"GET /info HTTP/1.1\r\nHost: localhost\r\nX-Long: %b\r\n\r\n"
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.sendall(get % (b"x" * 30_000) * 6)
        assert [read_response(file)[0] for _ in range(6)] == [200] * 6


@pytest.mark.parametrize("sent", [b"POST /|Content-Length: 2", b"GET /|Content-Length: 2", b"POST /state|X: y"])
def test_an_upgrade_with_a_body_is_refused_and_holds_no_connection(node: Served, sent: bytes) -> None:
    line, _, header = sent.partition(b"|")
    with dialed(node) as peer:
        peer.sendall(
            line
            + b" HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + header
            + b"\r\n\r\n{}"
        )
        status, _, body = read_last_response(peer)
        assert (status, body["code"]) == (400, "INVALID_QUERY")


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def test_an_upgrade_before_what_was_asked_is_answered_is_refused(node: Served, enclave: Enclave) -> None:
    """A handler that waits for the answer would never learn that the peer has gone."""
    state = node.connections_state
    with node.held_up(), dialed(node) as peer:
        known = len(state.connections)
        peer.sendall(posted(wire_commit(enclave.commit("bob", "message", "x"))) + UPGRADE)
        status, _, body = read_last_response(peer)
        assert (status, body["code"]) == (400, "INVALID_QUERY")
        assert peer.recv(1) == b""
        node.until(lambda: len(state.connections) < known + 1)


@pytest.mark.parametrize("cut", [1, 0])
def test_a_body_that_is_cut_off_leaves_nothing(cut: int) -> None:
    """Also if the bytes received would have been enough."""
    with Served() as node:
        commit = node.create(SMALL).commit("bob", "message", "not all of it")
        body, state = encode(wire_commit(commit)), node.connections_state
        length = len(body) + 1
        for how in (b"Content-Length: %d\r\n\r\n" % length, b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % length):
            with dialed(node) as peer:
                peer.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + how + body[: len(body) - cut])
                node.until(lambda: len(state.connections) == 2)
            node.until(lambda: len(state.connections) == 1)
        assert node.submit(commit).seq == 1


def test_who_is_slow_to_send_a_request_is_cut() -> None:
    with Served() as node:
        state, loop = node.connections_state, node.node.loop

        def cut(seconds: float) -> int:
            return node.on_loop(lambda: close_slow(state, loop.time() + seconds, 30))

        good(node.get("/info"))
        half = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        with dialed(node) as silent, dialed(node) as halfway, dialed(node) as second:
            halfway.sendall(half % b"/")
            second.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_last_response(second)[0] == 200
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
    """Serve a node with a page of eight megabytes, and room for three such answers."""
    with filled(replace(DEV, limits=LimitSettings(unsent_bytes=36 * MIB)), ["a" * 900_000] * 9) as enclave:
        yield enclave


def untouched(enclave: Enclave) -> None:
    """Return whether nothing waits for any peer."""
    enclave.node.until(lambda: enclave.node.server.peers.unsent == 0)


WAYS = pytest.mark.parametrize("way", [(), ("Origin: http://localhost",)], ids=["the short way", "the long way"])


@WAYS
def test_who_does_not_take_an_answer_is_cut(pages: Enclave, way: tuple[str, ...]) -> None:
    """A peer that reads some of it now and then is not cut."""
    node, state, loop = pages.node, pages.node.connections_state, pages.node.node.loop
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
        (one,) = [c for c in pages.node.connections_state.connections if c.peer.unsent]
        assert one.transport.get_write_buffer_size() <= 2 * CHUNK
        for _ in range(3):
            assert read_response(file)[0] == 200
    untouched(pages)


def from_(node: Served, address: str) -> socket.socket:
    url = httpx.URL(node.url)
    return socket.create_connection((url.host, url.port or 0), PATIENCE_S, (address, 0))


def is_answered(peer: socket.socket) -> bool:
    """Return whether the peer was answered, and not dropped before the answer's end."""
    try:
        return read_last_response(peer)[0] == 200
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
    """A node behind TLS, and its peers."""

    def __init__(self, tmp_path: Path, limits: LimitSettings) -> None:
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
    limits = LimitSettings(unsent_bytes=MIB)
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
    tls = Secured(tmp_path, LimitSettings(unsent_bytes=200 * KIB))
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
    tls = Secured(tmp_path, LimitSettings(unsent_bytes=36 * MIB))
    with filled(tls.config, ["a" * 900_000] * 9) as pages, ExitStack() as stack:
        node, peers = pages.node, pages.node.server.peers
        state, loop = node.connections_state, node.node.loop
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
    tls = Secured(tmp_path, LimitSettings(connections=1))
    with Served(tls.config) as node, tls.dial(node):
        with pytest.raises(OSError, match=r"EOF|reset"):
            tls.dial(node)
        assert node.server.peers.count == len(node.connections_state.connections) == 1


# Connections and queues


def test_connections() -> None:
    with Served(limited(connections=3)) as node:
        state = node.connections_state
        good(node.get("/info"))  # keeps its connection
        with dialed(node), dialed(node):
            node.until(lambda: len(state.connections) == 3)
            with dialed(node) as fourth:
                status, headers, body = read_last_response(fourth)
                assert (status, headers["retry-after"]) == (503, "1")
                assert (body["type"], body["code"]) == ("Error", "UNAVAILABLE")
                assert fourth.recv(1) == b""
            good(node.get("/info"))
        node.until(lambda: len(state.connections) == 1)
        with dialed(node) as other:
            other.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_last_response(other)[0] == 200


def test_connections_of_one_address() -> None:
    config = NodeConfig(port=0, limits=LimitSettings(connections_per_address=3))
    with Served(config) as node:
        state = node.connections_state
        good(node.get("/info"))  # keeps its connection
        with dialed(node) as second, dialed(node):
            second.sendall(UPGRADE)
            assert second.recv(64).startswith(b"HTTP/1.1 101 ")  # it still counts
            node.until(lambda: len(state.connections) == 3)
            with dialed(node) as fourth:
                status, headers, body = read_last_response(fourth)
                assert (status, headers["retry-after"]) == (503, "1")
                assert (body["code"], body["message"]) == ("UNAVAILABLE", "too many connections from this address")
                assert fourth.recv(1) == b""
            with from_(node, "127.0.0.2") as other:
                other.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert read_last_response(other)[0] == 200
            good(node.get("/info"))
        node.until(lambda: node.server.peers.count == 1)
        with dialed(node) as other:
            other.sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_last_response(other)[0] == 200


def test_development_has_no_limit_for_one_address() -> None:
    with Served(limited(connections_per_address=1)) as node, dialed(node), dialed(node):
        good(node.get("/info"))


def test_what_a_connection_too_many_sends_is_not_heard() -> None:
    with Served(limited(connections=1)) as node:
        enclave = node.create(SMALL)
        body = encode(wire_commit(enclave.commit("bob", "message", "x")))
        sent = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        with dialed(node) as second, suppress(OSError):
            second.sendall(sent)
            assert read_last_response(second)[0] == 503
        assert enclave.seqs("bob") == [0]


def test_waiting_commits() -> None:
    with Served(limited(waiting_commits=3)) as node, ThreadPoolExecutor(3) as pool:
        enclave = node.create(SMALL)
        commits = [enclave.commit("bob", "message", f"{i}") for i in range(4)]
        with node.held_up():
            sent = [pool.submit(node.submit, commit) for commit in commits[:3]]
            node.until(lambda: node.node.intake.waiting == 3)
            error = bad(node.post(wire_commit(commits[3])))
            assert (error.status, error.code, error.context) == (503, "UNAVAILABLE", {"retry_after_ms": 1000})
            assert enclave.seqs("bob") == [0]  # reads continue
        assert sorted(future.result().seq for future in sent) == [1, 2, 3]
        assert node.submit(commits[3]).seq == 4


def test_waiting_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_pool, "MAX_WAITING_READS", 2)
    go_on = threading.Event()
    with Served() as node, ThreadPoolExecutor(4) as pool:
        enclave = node.create(SMALL)
        answers = node.node.http._reads
        find, running = node.store.find_in_steps, threading.Semaphore(0)

        def wait(*args: Any) -> Iterator[Sequence[SearchItem]]:
            running.release()
            go_on.wait(PATIENCE_S)
            return find(*args)

        monkeypatch.setattr(node.store, "find_in_steps", wait)
        sent = [pool.submit(enclave.seqs, "bob") for _ in range(READERS)]
        for _ in range(READERS):
            assert running.acquire(timeout=PATIENCE_S)
        sent += [pool.submit(enclave.seqs, "bob") for _ in range(2)]
        node.until(lambda: len(answers._queue) == 2)
        error = enclave.denied("bob", "Query", filter={})
        assert (error.status, error.code) == (503, "UNAVAILABLE")
        assert bad(node.get(f"/{enclave.id.hex()}/sth")).code == "UNAVAILABLE"
        enclave.send("bob", "message", "writing goes on")
        go_on.set()
        assert [future.result() for future in sent] == [[0, 1]] * 4
        assert enclave.seqs("bob") == [0, 1]


@pytest.mark.parametrize("kind", ["a request", "a message"])
def test_a_connection_that_is_gone_is_let_go_without_the_collector(kind: str) -> None:
    """Otherwise unfinished requests fill memory until the garbage collector runs, which is rare."""
    upgrade = "GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    upgrade += "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    begun = bytes(100_000)
    with Served() as node:
        connections = node.connections_state.connections
        gc.disable()
        try:
            with socket.create_connection(("127.0.0.1", httpx.URL(node.url).port), PATIENCE_S) as peer:
                if kind == "a request":
                    peer.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n" + begun)
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
