"""A server of messages: order, bounds and deadlines."""

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
import structlog
import uvloop

from enc.runtime.unix_sockets import frames, unix_socket
from enc.runtime.unix_sockets.frame_server import Answer, FrameLimits, FrameServer, Peer

PATIENCE_S = 60.0
LIMITS = FrameLimits(connections=2, request_bytes=100)


class Slow:
    """Answers with the request in capitals, on a thread and once it may."""

    def __init__(self) -> None:
        self.may, self.running, self.peers = Event(), Event(), list[Peer]()
        self.thread = ThreadPoolExecutor(1)

    def __call__(self, request: bytes, peer: Peer) -> Answer:
        self.peers.append(peer)
        return asyncio.get_running_loop().run_in_executor(self.thread, self._answer, request)

    def _answer(self, request: bytes) -> bytes:
        self.running.set()
        assert self.may.wait(PATIENCE_S)
        return request.upper()


@contextmanager
def serving(path: Path, answer: Slow, limits: FrameLimits = LIMITS) -> Iterator[None]:
    started, loop = Event(), uvloop.new_event_loop()
    stopped = asyncio.Event()

    async def serve() -> None:
        with unix_socket.listen(path, os.geteuid()) as listening:
            server = FrameServer(listening, {os.geteuid()}, answer, limits, structlog.get_logger())
            await server.start()
            started.set()
            await stopped.wait()
            server.close()

    thread = Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(PATIENCE_S)
        loop.close()
        answer.thread.shutdown()


def connect(path: Path) -> socket.socket:
    return unix_socket.connect(path, PATIENCE_S)


def test_requests_of_a_connection_are_answered_in_turn(tmp_path: Path) -> None:
    answer = Slow()
    with serving(tmp_path / "s", answer), connect(tmp_path / "s") as peer:
        peer.sendall(frames.framed(b"one") + frames.framed(b"two"))
        assert answer.running.wait(PATIENCE_S)
        assert len(answer.peers) == 1  # the second waits
        answer.may.set()
        data = b""
        while len(data) < 14:
            data += peer.recv(100)
        assert data == frames.framed(b"ONE") + frames.framed(b"TWO")
        assert answer.peers == [Peer(os.getpid(), os.geteuid())] * 2


@pytest.mark.parametrize("data", [b"\0\0\0\0", frames.LENGTH.pack(101), b"GET / HTTP/1.1\r\n"])
def test_other_protocols_end_the_connection(tmp_path: Path, data: bytes) -> None:
    with serving(tmp_path / "s", Slow()), connect(tmp_path / "s") as peer:
        peer.sendall(data)
        with pytest.raises(EOFError):
            frames.exchange(peer, b"x", 100)


def test_a_peer_that_sends_nothing_is_dropped(tmp_path: Path) -> None:
    answer = Slow()
    answer.may.set()
    limits = FrameLimits(connections=2, request_bytes=100, wait_s=0.01)
    with serving(tmp_path / "s", answer, limits), connect(tmp_path / "s") as peer:
        peer.sendall(b"\0\0")
        assert peer.recv(1) == b""


def test_a_peer_that_waits_for_its_answer_is_not_dropped(tmp_path: Path) -> None:
    answer = Slow()
    limits = FrameLimits(connections=2, request_bytes=100, wait_s=0.01)
    with serving(tmp_path / "s", answer, limits), connect(tmp_path / "s") as peer, connect(tmp_path / "s") as idle:
        peer.sendall(frames.framed(b"one"))
        assert answer.running.wait(PATIENCE_S)
        assert idle.recv(1) == b""  # its time is over, which is the same as the other one's
        answer.may.set()
        assert peer.recv(7) == frames.framed(b"ONE")


def test_connections_are_bounded(tmp_path: Path) -> None:
    answer = Slow()
    answer.may.set()
    with serving(tmp_path / "s", answer), connect(tmp_path / "s") as one, connect(tmp_path / "s") as two:
        for each in (one, two):
            assert frames.exchange(each, b"a", 100) == b"A"
        with connect(tmp_path / "s") as third:
            assert third.recv(1) == b""
