"""HTTP/1.1 on a socket, with the bounds that a public node needs: connections, and the time a request may take."""

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from msgspec.json import encode
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from enc.core.errors import EncError, InvalidQuery, Unavailable

Finish = Callable[..., None]
"""Takes a status, a body and headers."""

_HEAD = b"content-type: application/json\r\ncontent-length: "
MAX_HEAD = 64 << 10
"""Bytes of a request that are not its body."""
MAX_WRAPPING = 16
"""Bytes around each byte of a body that comes in pieces."""

_OTHERWISE = frozenset((b"origin", b"upgrade", b"transfer-encoding"))
"""Headers with which a request takes the long way."""


def raw_error(error: EncError) -> bytes:
    """A whole HTTP response, for what never becomes a request."""
    body = encode(error.to_wire())
    head = f"HTTP/1.1 {error.status} Error\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    retry = "retry-after: 1\r\n" if error.status == 503 else ""
    return f"{head}{retry}connection: close\r\n\r\n".encode() + body


class Quick:
    """A request on the short way: its whole body goes to the node, and one write answers it."""

    def __init__(self, protocol: "HttpProtocol", keep_alive: bool) -> None:
        self._protocol = protocol
        self.keep_alive = keep_alive
        self.response_complete = self.disconnected = False
        self.message_event = asyncio.Event()

    def finish(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Answer, and let the connection go on to its next request."""
        if self.response_complete or self.disconnected:
            return
        self.response_complete = True
        transport = self._protocol.transport
        parts = [STATUS_LINE[status], _HEAD, b"%d" % len(body)]
        for header in headers if self.keep_alive else (*headers, (b"connection", b"close")):
            parts.append(b"\r\n%b: %b" % header)
        transport.write(b"".join((*parts, b"\r\n\r\n", body)))
        if not self.keep_alive:
            transport.close()
        self._protocol.on_response_complete()


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds, and with a short way for `POST /`.

    It refuses a connection too many, and knows since when it waits for the rest of a request. What is plainly a `POST`
    to `/` with its length told, from no browser and through no proxy, is given to `quick` without a task or a scope.
    """

    max_connections = 4096
    max_body = 1 << 21
    quick: ClassVar[Any] = None
    """Takes a body, the peer's address and what finishes the answer."""
    waiting_since: float | None = None
    """For the rest of a request."""
    _parts: list[bytes] | None = None
    _running: RequestResponseCycle | None = None
    _received = _body = 0
    """Bytes of this request, and of its body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= self.max_connections:
            transport.write(raw_error(Unavailable("too many connections", retry_after_ms=1000)))
            transport.close()
        self.waiting_since = self.loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._received += len(data)
        super().data_received(data)
        wrapping = self._received - self._body
        if self.waiting_since is not None and wrapping > max(MAX_HEAD, MAX_WRAPPING * self._body):
            self.send_400_response("the request's head is too long")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Of several requests on one connection uvicorn tells the last one only that nobody waits for its answer."""
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self.waiting_since = self.loop.time()
        self._received = self._body = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and self._has_body():
            self.send_400_response("an upgrade is a GET without a body")
        elif self.url == b"/" and self.quick is not None and self._is_plain():
            self._parts = []
        else:
            super().on_headers_complete()

    def _has_body(self) -> bool:
        names = {name for name, _ in self.headers}
        return self.parser.get_method() != b"GET" or bool(names & {b"content-length", b"transfer-encoding"})

    def _is_plain(self) -> bool:
        is_free = self.cycle is None or self.cycle.response_complete
        if not is_free or self.flow.write_paused or self.expect_100_continue or self.parser.get_method() != b"POST":
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
        is_free = self.cycle is None or self.cycle.response_complete
        return is_free and self._parts is None and not self.transport.get_write_buffer_size()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
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
            super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(raw_error(InvalidQuery(msg)))
        self.transport.close()


def close_slow(state: ServerState, now: float, patience: float) -> int:
    """Close the connections whose request has not come in time; how many there were."""
    slow: list[Any] = [
        connection
        for connection in state.connections
        if isinstance(connection, HttpProtocol)
        and connection.waiting_since is not None
        and now - connection.waiting_since > patience
    ]
    for connection in slow:
        connection.transport.abort()
    return len(slow)


def close_stuck(state: ServerState, now: float, patience: float) -> int:
    """Close the connections whose peers have taken nothing of what waits for them in this time; how many there were.

    It is progress that counts, not speed. Call it now and then: it compares with what waited before.
    """
    stuck: list[Any] = []
    for connection in state.connections:
        waits = connection.transport.get_write_buffer_size() if connection.transport else 0
        waited, since = getattr(connection, "unsent", (0, now))
        if not waits or waits != waited:
            connection.unsent = (waits, now)  # type: ignore[union-attr]
        elif now - since > patience:
            stuck.append(connection)
    for connection in stuck:
        connection.transport.abort()
    return len(stuck)


def close_idle(state: ServerState) -> None:
    """Drop the connections on which nothing is asked and nothing is left to send.

    At once: a TLS peer that does not answer would keep a polite close waiting.
    """
    for connection in list(state.connections):
        if isinstance(connection, HttpProtocol) and connection.is_idle:
            connection.transport.abort()
