"""Limits that every server has: on connections from accept on, on slow requests, on incomplete ones."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import uvloop

from enc.runtime.serving.closing import close_slow
from enc.runtime.serving.limits import HANDSHAKE_S, ServingLimits
from enc.runtime.serving.tls_listener import TlsListener
from tests.runtime.serving.tiny_server import GET, TinyServer, certificate, running

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
MIB = 1 << 20
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a handshake."""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return certificate(tmp_path_factory.mktemp("tls"))


Secure = tuple[Path, ssl.SSLContext]


def is_answered(peer: socket.socket, sent: bytes = GET) -> bool:
    """Send a request and return whether the whole answer comes, with 200."""
    found = b""
    peer.sendall(sent)
    while not found.endswith(b"here"):
        part = peer.recv(1 << 12)
        if not part:
            return False
        found += part
    return found.startswith(b"HTTP/1.1 200 ")


def is_served(peer: socket.socket) -> bool:
    """Do the same, and close the connection."""
    with closing(peer):
        try:
            return is_answered(peer)
        except OSError:
            return False


def is_closed(peer: socket.socket) -> bool:
    """Return whether the server closes the connection: what it has not read resets it."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def shaken(server: TinyServer, context: ssl.SSLContext, address: str = "127.0.0.1") -> ssl.SSLSocket:
    return context.wrap_socket(server.dial(address), server_hostname="127.0.0.1")


# TLS


@LOOPS
def test_a_connection_counts_before_its_handshake(secure: Secure, loop: Any) -> None:
    cert, context = secure
    with running(loop, cert=cert, connections=10, connections_per_address=3) as server, ExitStack() as stack:
        silent = [stack.enter_context(server.dial()) for _ in range(8)]
        server.until(lambda: server.peers.count == 3)
        assert [peer.recv(1) for peer in silent[3:]] == [b""] * 5
        with pytest.raises(OSError, match=r"EOF|reset"):
            shaken(server, context)
        assert is_served(shaken(server, context, "127.0.0.2"))
        for peer in silent[:3]:
            peer.close()
        server.until(lambda: server.peers.count == 0)
        assert is_served(shaken(server, context))


@LOOPS
def test_a_handshake_that_does_not_end_is_closed(secure: Secure, loop: Any) -> None:
    cert, context = secure
    with running(loop, cert=cert, request_timeout_s=0.1) as server, server.dial() as silent, server.dial() as half:
        half.sendall(HELLO)
        assert (silent.recv(1), half.recv(1)) == (b"", b"")
        server.until(lambda: server.peers.count == 0)
        assert is_served(shaken(server, context))


@LOOPS
def test_a_newcomer_takes_the_place_of_a_handshake(secure: Secure, loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Also of one that has not begun, and of one that is half done."""
    cert, context = secure
    with running(loop, cert=cert, connections=3, connections_per_address=3) as server, ExitStack() as stack:
        silent = [stack.enter_context(server.dial()) for _ in range(3)]
        silent[0].sendall(HELLO)
        server.until(lambda: server.peers.count == 3)
        first = stack.enter_context(shaken(server, context, "127.0.0.2"))
        assert is_closed(silent[0])
        second = stack.enter_context(shaken(server, context, "127.0.0.3"))
        assert is_closed(silent[1])
        with pytest.raises(OSError, match=r"EOF|reset"):
            shaken(server, context, "127.0.0.4")
        for peer in (first, second):
            assert is_answered(peer)
        assert (server.peers.count, server.peers.dropped) == (3, 2)
    assert caplog.messages == []


@LOOPS
def test_newcomers_that_come_together_displace_what_was_just_accepted(secure: Secure, loop: Any) -> None:
    """Before the first step of its handshake."""
    cert, context = secure
    with running(loop, cert=cert, connections=2, connections_per_address=2) as server, ExitStack() as stack:

        def come() -> list[socket.socket]:
            return [stack.enter_context(server.dial(f"127.0.0.{host}")) for host in (2, 2, 3)]

        greedy, other, honest = server.on_loop(come)  # they are accepted in one turn of the event loop
        assert is_closed(greedy)
        assert is_served(context.wrap_socket(honest, server_hostname="127.0.0.1"))
        other.close()
        server.until(lambda: server.peers.count == 0)


@LOOPS
def test_what_is_no_handshake_is_closed_and_logs_nothing(
    secure: Secure, loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with running(loop, cert=secure[0]) as server, server.dial() as peer, server.dial() as gone:
        gone.close()
        peer.sendall(GET)
        while peer.recv(1 << 12):
            pass
        server.until(lambda: server.peers.count == 0)
    assert caplog.messages == []


@LOOPS
def test_a_request_right_behind_the_handshake_is_answered(secure: Secure, loop: Any) -> None:
    """Its bytes may arrive with the last of the handshake."""
    cert, context = secure
    with running(loop, cert=cert) as server:
        for _ in range(10):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            with server.dial() as peer:
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        peer.sendall(outgoing.read())
                        incoming.write(peer.recv(1 << 14))
                tls.write(GET)
                peer.sendall(outgoing.read())
                assert peer.recv(1 << 12)


def test_a_stop_ends_handshakes(secure: Secure) -> None:
    with running(cert=secure[0]) as server, server.dial() as silent:
        server.until(lambda: server.peers.count == 1)
        (listener,) = server.servers
        server.on_loop(listener.close)
        silent.settimeout(HANDSHAKE_S / 2)
        assert silent.recv(1) == b""
        assert not listener.is_serving()


def test_a_listener_that_cannot_accept_pauses(secure: Secure, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without file descriptors: it must not spin."""

    class Full:
        def accept(self) -> Any:
            raise OSError(24, "Too many open files")

    with running(cert=secure[0]) as server:
        (listener,) = server.servers
        assert isinstance(listener, TlsListener)

        def fail() -> Any:
            kept, listener._socket = listener._socket, Full()  # type: ignore[assignment]
            monkeypatch.setattr(listener._loop, "remove_reader", lambda _: True)
            listener._accept()
            monkeypatch.undo()
            listener._socket = kept
            return listener._timer

        timer = server.on_loop(fail)
        assert timer is not None
        server.on_loop(timer.cancel)


def test_a_handshake_has_a_time_of_its_own() -> None:
    assert ServingLimits().handshake_s == HANDSHAKE_S
    assert ServingLimits(request_timeout_s=3).handshake_s == 3


# Any server


@LOOPS
def test_an_idle_connection_makes_room_for_another_address(loop: Any) -> None:
    with running(loop, connections=3, connections_per_address=3) as server, ExitStack() as stack:
        waiting, idle, half = (stack.enter_context(server.dial()) for _ in range(3))
        waiting.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1")
        assert is_answered(idle)
        half.sendall(GET[:5])
        server.until(lambda: sum(not peer.is_idle() for peer in server.peers._by_address["127.0.0.1"].peers) == 1)
        assert is_served(server.dial("127.0.0.2"))
        assert is_closed(idle)
        server.until(lambda: server.peers.count == 2)
        assert is_answered(waiting, b"2")


@pytest.fixture
def server() -> Iterator[TinyServer]:
    with running(connections=10, connections_per_address=3, incoming_bytes_per_address=MIB) as server:
        yield server


def test_connections_that_ask_nothing_keep_no_other_address_out(server: TinyServer) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(server.dial()) for _ in range(20)]
        server.until(lambda: server.peers.count == 3)
        assert not is_served(server.dial())
        assert is_served(server.dial("127.0.0.2"))
        cut = server.on_loop(lambda: close_slow(server.server_state, asyncio.get_running_loop().time() + 31, 30))
        assert cut == 3
        for peer in silent:
            while peer.recv(1 << 12):  # those over the limit were answered
                pass
        assert is_served(server.dial())


def test_an_incomplete_body_counts_until_it_is_complete(server: TinyServer) -> None:
    with server.dial() as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n" + bytes(900))
        server.until(lambda: server.peers.incoming == 900)
        peer.sendall(bytes(100))
        assert peer.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
        server.until(lambda: server.peers.incoming == 0)


def test_an_address_that_sends_too_much_of_incomplete_bodies_loses_the_oldest(server: TinyServer) -> None:
    begun = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + bytes(600_000)
    with server.dial() as first, server.dial("127.0.0.2") as other, server.dial() as second:
        first.sendall(begun)
        other.sendall(begun)
        server.until(lambda: server.peers.incoming == 1_200_000)
        second.sendall(begun)
        assert first.recv(1) == b""
        server.until(lambda: server.peers.incoming == 1_200_000)
        second.sendall(bytes(300_000))
        other.sendall(bytes(300_000))
        assert second.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
        assert other.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
        assert server.peers.dropped == 1
