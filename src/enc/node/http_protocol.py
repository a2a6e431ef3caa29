"""HTTP/1.1 on a socket, with the bounds that a public node needs: connections, the time a request may take, and what
waits for a peer that does not read."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar

from msgspec.json import encode
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from enc.core.errors import EncError, InvalidQuery, Unavailable
from enc.node.peers import Peer, Peers
from enc.runtime.rate_limit import address_key

Finish = Callable[..., None]
"""Takes a status, a body and headers."""

_HEAD = b"content-type: application/json\r\ncontent-length: "
MAX_HEAD = 64 << 10
"""Bytes of a request that are not its body."""
MAX_WRAPPING = 16
"""Bytes around each byte of a body that comes in pieces."""
PIECE = 64 << 10
"""Bytes of an answer that go to the socket at once, and that may wait there before the next do. The rest stays in the
node's own hands: a transport keeps what it was given until the last byte has gone, and behind TLS does not tell."""

LONG = b"/import"
"""Where bodies are so long that they may take their time, as long as they come."""

_OTHERWISE = frozenset((b"origin", b"upgrade", b"transfer-encoding"))
"""Headers with which a request takes the long way."""


def _nothing() -> None:
    """What is left to do for a peer that is gone."""


class _Refused(Exception):
    """Stops the parser; the peer has been told why."""


def raw_error(error: EncError, status: int | None = None) -> bytes:
    """A whole HTTP response, for what never becomes a request."""
    body, status = encode(error.to_wire()), status or error.status
    head = f"HTTP/1.1 {status} Error\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    retry = "retry-after: 1\r\n" if error.status == 503 else ""
    return f"{head}{retry}connection: close\r\n\r\n".encode() + body


class Quick:
    """A request on the short way: its whole body goes to the node, and one write answers it, unless it is long."""

    def __init__(self, protocol: "HttpProtocol", keep_alive: bool) -> None:
        self._protocol = protocol
        self.keep_alive = keep_alive
        self.response_complete = self.disconnected = False
        self.message_event = asyncio.Event()

    def finish(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Answer, and let the connection go on to its next request."""
        if self.response_complete or self.disconnected:
            return
        parts = [STATUS_LINE[status], _HEAD, b"%d" % len(body)]
        for header in headers if self.keep_alive else (*headers, (b"connection", b"close")):
            parts.append(b"\r\n%b: %b" % header)
        if len(body) <= PIECE:
            self._protocol.transport.write(b"".join((*parts, b"\r\n\r\n", body)))
            self._end()
        else:
            self._protocol.transport.write(b"".join((*parts, b"\r\n\r\n")))
            self._protocol.run(self._send(body))

    async def _send(self, body: bytes) -> None:
        await self._protocol.pass_on(body, self._write)
        self._end()

    async def _write(self, piece: bytes, more: bool) -> None:
        await self._protocol.flow.drain()
        if not self.disconnected:
            self._protocol.transport.write(piece)

    def _end(self) -> None:
        if not self.disconnected:
            self.response_complete = True
            if not self.keep_alive:
                self._protocol.transport.close()
            self._protocol.on_response_complete()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds, and with a short way for `POST /`.

    It refuses a connection too many, and knows since when it waits for the rest of a request. What is plainly a `POST`
    to `/` with its length told, from no browser and through no proxy, is given to `quick` without a task or a scope.
    """

    max_body = 1 << 21
    peers: ClassVar[Peers]
    quick: ClassVar[Any] = None
    """Takes a body, the peer's address and what finishes the answer."""
    waiting_since: float | None = None
    """For the rest of a request."""
    _parts: list[bytes] | None = None
    _running: RequestResponseCycle | None = None
    _received = _body = _noted = 0
    """Bytes that came since this request began, those of its body, and those of them when it last got more time."""
    _arrived = _began = 0
    """Bytes that came last, and those with which this request began: some may be of the one before."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(PIECE)
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self.peer = Peer(self.peers, address_key(self.client[0] if self.client else ""), self.drop)
        try:
            self.peers.add(self.peer)
        except Unavailable as e:
            transport.write(raw_error(e))
            transport.abort()  # a TLS peer that does not answer would keep a polite close waiting

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._arrived = len(data)
        self._received += len(data)
        super().data_received(data)
        wrapping = self._received - self._body
        if self.waiting_since is not None and wrapping > max(MAX_HEAD, MAX_WRAPPING * self._body):
            self.send_400_response("the request's head is too long")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, self._in_pieces(app))

    def _in_pieces(self, app: ASGI3Application) -> ASGI3Application:
        """The application, whose answers go out as fast as the peer takes them."""

        async def run(scope: Any, receive: Any, send: Any) -> None:
            async def say(message: Any) -> None:
                async def put(piece: bytes, more: bool) -> None:
                    await send({**message, "body": piece, "more_body": more or message.get("more_body", False)})

                is_body = message["type"] == "http.response.body"
                await (self.pass_on(message.get("body", b""), put) if is_body else send(message))

            await app(scope, receive, say)

        return run

    async def pass_on(self, body: bytes, put: Callable[[bytes, bool], Awaitable[None]]) -> None:
        """Give an answer to the socket piece by piece. Until the last is given, all of it waits for this peer."""
        with self.peer.holding(len(body)):
            for start in range(0, len(body) or 1, PIECE):
                await put(body[start : start + PIECE], start + PIECE < len(body))
                self.peer.hold(0)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Like an answer of uvicorn's: a node that stops waits for it."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def drop(self) -> None:
        """End the connection at once."""
        self._disconnect()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.peer.leave()
        self.peer.drop = _nothing  # it knows this protocol, which knows it: neither would be freed for a long time
        self._disconnect()
        super().connection_lost(exc)

    def _disconnect(self) -> None:
        """Of several requests on one connection uvicorn tells the last one only that nobody waits for its answer."""
        for cycle in (self._running, self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def on_message_begin(self) -> None:
        self.waiting_since = self.loop.time()
        self._received, self._body, self._noted, self._began = 0, 0, 0, self._arrived
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._is_head_too_long():
            self.send_400_response("the request's head is too long")
            raise _Refused
        if self.parser.should_upgrade() and (self._has_body() or not self._is_free):
            self.send_400_response("an upgrade is a GET without a body, once what was asked before is answered")
        elif self.url == b"/" and self.quick is not None and self._is_plain():
            self._parts = []
        else:
            super().on_headers_complete()

    def _is_head_too_long(self) -> bool:
        """Also of one that came at once. It is measured where what came could hold such a head."""
        if self._began + self._received <= MAX_HEAD:
            return False
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > MAX_HEAD

    def _has_body(self) -> bool:
        names = {name for name, _ in self.headers}
        return self.parser.get_method() != b"GET" or bool(names & {b"content-length", b"transfer-encoding"})

    @property
    def _is_free(self) -> bool:
        """Everything that was asked is answered."""
        return self.cycle is None or self.cycle.response_complete

    def _is_plain(self) -> bool:
        if not self._is_free or self.flow.write_paused:
            return False
        if self.expect_100_continue or self.parser.get_method() != b"POST":
            return False
        told = False
        for name, value in self.headers:
            if name in _OTHERWISE:
                return False
            if name == b"content-length":
                told = int(value) <= self.max_body
        return told

    @property
    def is_idle(self) -> bool:
        return self._is_free and self._parts is None and not self.transport.get_write_buffer_size()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        if self._body - self._noted >= PIECE and self.url.startswith(LONG) and not self._is_free:
            self._noted, self.waiting_since = self._body, self.loop.time()  # progress counts, not the whole
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
        cycle = Quick(self, self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive())
        self.cycle = cycle  # type: ignore[assignment]
        if self.quick is not None:
            self.quick(b"".join(parts), self.client[0] if self.client else "", cycle.finish)

    def handle_websocket_upgrade(self) -> None:
        self.waiting_since = None
        if not self.transport.is_closing():
            self.app_state = {**self.app_state, "peer": self.peer}  # to the protocol and the application that follow
            super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(raw_error(InvalidQuery(msg)))
        self.transport.close()
