"""HTTP/1.1 on a socket, with the limits that a public node needs: on connections, on the time that
a request may take, and on the bytes that wait for a peer that does not read.

It is written by hand on top of uvicorn's protocol because plain ASGI cannot bound these: it hides
sockets and their buffers from the application. The fast path for `POST /` also skips the task and
the scope that ASGI needs for every request, which makes commits measurably faster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar
from weakref import ref

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from enc.core.errors import EncError, InvalidQuery, PeerError
from enc.runtime.serving.fast_response import CHUNK, FastResponse, raw_error
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.peers import PeerConnection, Peers, address_of
from enc.runtime.serving.sites import SiteCheck

MAX_HEAD = 64 << 10
"""Most bytes of a request that are not its body."""
MAX_FRAMING = 16
"""Most framing bytes for each byte of a chunked body."""
MAX_DISCARDED = 16 << 20
"""Most bytes of a request that are read and discarded after its response."""
UPLOAD_PATH = b"/import"
"""Path whose bodies may take any time as long as they make progress."""

_NEEDS_ASGI = frozenset((b"origin", b"upgrade", b"transfer-encoding"))
"""Headers that send a request through the ASGI application."""


def _noop() -> None:
    """Replaces `drop` of a peer that is gone."""


class _Refused(Exception):
    """Stops the parser; the error response was already written."""


class _RequestTransport:
    """What uvicorn writes a response to. It reads the rest of the request before it closes.

    It does not hold the protocol: such a cycle would keep a dropped peer's response in memory.
    """

    def __init__(self, protocol: "HttpProtocol") -> None:
        self._protocol = ref(protocol)
        self.write, self.is_closing = protocol.transport.write, protocol.transport.is_closing

    def close(self) -> None:
        protocol = self._protocol()
        if protocol is not None:
            protocol.close_after_request()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, and with a fast path for `POST /`.

    It rejects connections over the limit, and records since when it waits for the rest of a
    request. A `POST /` with a Content-Length that comes neither from a browser nor as an upgrade or
    chunked goes to `quick` without a task or a scope.
    """

    limits: ClassVar[ServingLimits]
    peers: ClassVar[Peers]
    sites: ClassVar[SiteCheck]
    quick: ClassVar[Any] = None
    """Takes a body, the peer's address and the function that writes the response; None: no fast
    path.
    """
    waiting_since: float | None = None
    """Loop time since which the rest of a request is missing."""
    _peer: PeerConnection | None = None
    _checked: list[tuple[bytes, bytes]] | None = None
    """The headers of the last request that passed the check of its site."""
    last_progress: tuple[tuple[int, int] | None, float] = (None, 0.0)
    """What `closing.close_stuck` saw last, and when it last changed."""
    _parts: list[bytes] | None = None
    _running: RequestResponseCycle | None = None
    _may_discard: int | None = None
    """After a response that ends the connection: how many more bytes are read and discarded."""
    _received = _body = _body_at_progress = 0
    """Bytes received since this request began, bytes of its body, and of those at the last time
    extension.
    """
    _last_read = _first_read = 0
    """Size of the last read, and of the read in which this request began; that may hold part of the
    previous one.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(CHUNK)
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        is_new = self._peer is None
        self._peer = self._peer or PeerConnection(self.peers, address_of(transport), self.drop)
        self._peer.set_drop(self.drop, lambda: self.is_idle)
        if is_new:
            try:
                self.peers.add(self._peer)
            except EncError as e:
                transport.write(raw_error(e))
                transport.abort()

    @property
    def peer(self) -> PeerConnection:
        assert self._peer is not None  # noqa: S101
        return self._peer

    def take_peer(self, peer: PeerConnection) -> None:
        """Take over a connection that is counted already, as soon as it is made."""
        self._peer = peer

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._may_discard is not None:
            self._discard(len(data))
            return
        self._last_read = len(data)
        self._received += len(data)
        super().data_received(data)
        self._count_incoming()
        framing = self._received - self._body
        if self.waiting_since is not None and framing > max(MAX_HEAD, MAX_FRAMING * self._body):
            self.send_400_response("the request's head is too long")

    def close_after_request(self) -> None:
        """Close the connection once the peer has closed it, or has sent `MAX_DISCARDED` bytes more.

        To close it while the peer sends would reset it, and the peer might lose the response.
        `close_slow` bounds the time.
        """
        if self.waiting_since is None or self.transport.is_closing():
            self.transport.close()
            return
        self._may_discard = MAX_DISCARDED
        self.peer.set_incoming(0)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _discard(self, size: int) -> None:
        assert self._may_discard is not None  # noqa: S101
        self._may_discard -= size
        if self._may_discard < 0:
            self.transport.abort()

    def _count_incoming(self) -> None:
        """Count what has arrived of an incomplete body; uploads are written to disk as they come."""
        is_held = self.waiting_since is not None and not self._is_upload
        size = self._body if is_held else 0
        if size != self.peer.incoming:
            self.peer.set_incoming(size)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        cycle.transport = _RequestTransport(self)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, self._in_chunks(app))

    def _in_chunks(self, app: ASGI3Application) -> ASGI3Application:
        """Return the application with responses written as fast as the peer reads them."""

        async def run(scope: Any, receive: Any, send: Any) -> None:
            async def send_chunked(message: Any) -> None:
                async def put(chunk: bytes, more: bool) -> None:
                    await send({**message, "body": chunk, "more_body": more or message.get("more_body", False)})

                is_body = message["type"] == "http.response.body"
                await (self.send_in_chunks(message.get("body", b""), put) if is_body else send(message))

            await app(scope, receive, send_chunked)

        return run

    async def send_in_chunks(self, body: bytes, put: Callable[[bytes, bool], Awaitable[None]]) -> None:
        """Pass a body on in chunks, and count all of it as waiting for this peer until the last is
        written.
        """
        with self.peer.counting_unsent(len(body)):
            for start in range(0, len(body) or 1, CHUNK):
                await put(body[start : start + CHUNK], start + CHUNK < len(body))
                self.peer.add_unsent(0)

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that a stopping node waits for, as for uvicorn's own responses."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def drop(self) -> None:
        """Close the connection at once."""
        self._disconnect()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.remove()
        self.peer.set_drop(_noop)  # break the reference cycle, which would be collected late
        self._disconnect()
        super().connection_lost(exc)

    def _disconnect(self) -> None:
        """Mark every open request as disconnected: of pipelined requests, uvicorn marks only the
        last.
        """
        for cycle in (self._running, self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def on_message_begin(self) -> None:
        self.waiting_since = self.loop.time()
        self._received, self._body, self._body_at_progress, self._first_read = 0, 0, 0, self._last_read
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._is_head_too_long():
            self.send_400_response("the request's head is too long")
            raise _Refused
        self._check_site()
        if self.parser.should_upgrade() and (self._has_body() or not self._all_answered):
            self.send_400_response("upgrade: expected a GET without a body, after all earlier requests were answered")
        elif self.url == b"/" and self.quick is not None and self._takes_fast_path():
            self._parts = []
        else:
            super().on_headers_complete()

    def _check_site(self) -> None:
        relevant = self.sites.relevant(self.headers)
        if relevant != self._checked:
            try:
                self.sites.check(self.headers, self.server[0] if self.server else "")
            except PeerError as e:
                self._refuse(e)
                raise _Refused from None
            self._checked = relevant

    def _is_head_too_long(self) -> bool:
        """Return whether the head is too long, also if it came in one read; it is measured only if
        it can be.
        """
        if self._first_read + self._received <= MAX_HEAD:
            return False
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD

    def _has_body(self) -> bool:
        names = {name for name, _ in self.headers}
        return self.parser.get_method() != b"GET" or bool(names & {b"content-length", b"transfer-encoding"})

    @property
    def _all_answered(self) -> bool:
        """Whether every request so far was answered."""
        return self.cycle is None or self.cycle.response_complete

    def _takes_fast_path(self) -> bool:
        if not self._all_answered or self.flow.write_paused:
            return False
        if self.expect_100_continue or self.parser.get_method() != b"POST":
            return False
        has_length = False
        for name, value in self.headers:
            if name in _NEEDS_ASGI:
                return False
            if name == b"content-length":
                has_length = int(value) <= self.limits.max_body
        return has_length

    @property
    def _is_upload(self) -> bool:
        return self.url.startswith(UPLOAD_PATH) and not self._all_answered

    @property
    def is_idle(self) -> bool:
        return self._all_answered and self._parts is None and not self.transport.get_write_buffer_size()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        if self._body - self._body_at_progress >= CHUNK and self._is_upload:
            self._body_at_progress, self.waiting_since = self._body, self.loop.time()  # any progress extends the time
        if self._parts is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        self.waiting_since = None
        if self._parts is None:
            super().on_message_complete()
            return
        parts, self._parts = self._parts, None
        cycle = FastResponse(self, self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive())
        self.cycle = cycle  # type: ignore[assignment]
        if self.quick is not None:
            self.quick(b"".join(parts), self.client[0] if self.client else "", cycle.finish)

    def handle_websocket_upgrade(self) -> None:
        self.waiting_since = None
        if not self.transport.is_closing():
            self.app_state = {**self.app_state, "peer": self.peer}  # for the code that takes over
            super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidQuery(msg))

    def _refuse(self, error: EncError) -> None:
        if not self.transport.is_closing():
            self.transport.write(raw_error(error))
            self.close_after_request()
