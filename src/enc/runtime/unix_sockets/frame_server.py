"""Serves a listening Unix socket: answers each message with one.

The kernel names the user of each connection; connections of users that are not allowed are closed.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, cast

from msgspec import Struct

from enc.runtime.unix_sockets import frames
from enc.runtime.unix_sockets.unix_socket import peer_of


class Peer(NamedTuple):
    """The process at the other end of a connection, and its user, as the kernel knows them."""

    pid: int
    uid: int


Answer = bytes | asyncio.Future[bytes]


class FrameLimits(Struct, frozen=True, kw_only=True):
    connections: int
    request_bytes: int
    wait_s: float | None = None
    """Seconds in which a peer must send its next request; None: for ever."""


class FrameServer:
    """For the event loop's thread. Each request of a connection is answered before its next is read."""

    def __init__(
        self,
        listening: socket.socket,
        users: Collection[int],
        answer: Callable[[bytes, Peer], Answer],
        limits: FrameLimits,
        log: Any,
    ) -> None:
        """`users`: the numbers of those who may connect. `answer` may return a future, which must not fail."""
        self._listening, self._log = listening, log
        self.users, self.answer, self.limits = users, answer, limits
        self.connections: set[_Connection] = set()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), sock=self._listening)

    def close(self) -> None:
        """Listen no more, and close the connections once they have sent what was written to them."""
        self._server.close()
        for connection in list(self.connections):
            connection.close()

    def refusal(self, peer: Peer) -> str:
        """Return why a connection is refused; empty if it is not."""
        if peer.uid not in self.users:
            return "this user may not use the socket"
        if len(self.connections) >= self.limits.connections:
            return f"there are {self.limits.connections} connections"
        return ""

    def log_refused(self, peer: Peer, reason: str) -> None:
        self._log.error("connection_refused", pid=peer.pid, uid=peer.uid, reason=reason)

    def log_closed(self, reason: str) -> None:
        self._log.error("connection_closed", reason=reason)


class _Connection(asyncio.Protocol):
    def __init__(self, server: FrameServer) -> None:
        self._server = server
        self._data = bytearray()
        self._is_answering = self._is_full = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        self._peer = Peer(*peer_of(transport.get_extra_info("socket")))
        if reason := self._server.refusal(self._peer):
            self._server.log_refused(self._peer, reason)
            transport.abort()
            return
        self._server.connections.add(self)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._answer_all()

    def _answer_all(self) -> None:
        try:
            while not self._is_answering:
                request = frames.take(self._data, self._server.limits.request_bytes)
                if request is None:
                    return
                self._answer(request)
        except frames.NotAFrame as e:
            self._server.log_closed(str(e))
            self._transport.abort()

    def _answer(self, request: bytes) -> None:
        self._stop_timer()
        answer = self._server.answer(request, self._peer)
        if isinstance(answer, bytes):
            self._write(answer)
            return
        self._is_answering = True
        self._choose_reading()
        answer.add_done_callback(self._finish)

    def _finish(self, answer: asyncio.Future[bytes]) -> None:
        self._is_answering = False
        if answer.cancelled() or self._transport.is_closing():
            return
        self._write(answer.result())
        self._choose_reading()
        self._answer_all()

    def _write(self, answer: bytes) -> None:
        self._transport.write(frames.framed(answer))
        self._start_timer()

    # How much is read, and for how long

    def pause_writing(self) -> None:
        self._is_full = True
        self._choose_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._choose_reading()

    def _choose_reading(self) -> None:
        if self._is_full or self._is_answering:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _start_timer(self) -> None:
        self._stop_timer()
        if (wait_s := self._server.limits.wait_s) is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self._transport.close()
