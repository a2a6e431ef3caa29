"""Responses that are written without ASGI: on the fast path, and to input that is not a valid
request.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.json import encode
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from enc.core.errors import EncError

if TYPE_CHECKING:
    from enc.runtime.serving.http_protocol import HttpProtocol

Finish = Callable[..., None]
"""Writes a response from a status, a body and headers."""

_HEAD = b"content-type: application/json\r\ncontent-length: "
CHUNK = 64 << 10
"""Bytes of a response that are written to the socket at a time, and most bytes that wait there
before the next chunk.

The node keeps the rest itself: a transport holds what it was given until the last byte is sent, and
with TLS does not report its size.
"""


def raw_error(error: EncError, status: int | None = None) -> bytes:
    """Return a whole HTTP response, for input that never becomes a request."""
    body, status = encode(error.to_wire()), status or error.status
    head = f"HTTP/1.1 {status} Error\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    retry = "retry-after: 1\r\n" if error.status == 503 else ""
    return f"{head}{retry}connection: close\r\n\r\n".encode() + body


class FastResponse:
    """Response on the fast path: the node gets the whole body, and one write answers unless it is
    long.
    """

    def __init__(self, protocol: "HttpProtocol", keep_alive: bool) -> None:
        self._protocol = protocol
        self.keep_alive = keep_alive
        self.response_complete = self.disconnected = False
        self.message_event = asyncio.Event()

    def finish(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Write the response, and let the connection continue with its next request."""
        if self.response_complete or self.disconnected:
            return
        parts = [STATUS_LINE[status], _HEAD, b"%d" % len(body)]
        for header in headers if self.keep_alive else (*headers, (b"connection", b"close")):
            parts.append(b"\r\n%b: %b" % header)
        if len(body) <= CHUNK:
            self._protocol.transport.write(b"".join((*parts, b"\r\n\r\n", body)))
            self._end()
        else:
            self._protocol.transport.write(b"".join((*parts, b"\r\n\r\n")))
            self._protocol.run_task(self._send(body))

    async def _send(self, body: bytes) -> None:
        await self._protocol.send_in_chunks(body, self._write)
        self._end()

    async def _write(self, chunk: bytes, more: bool) -> None:
        await self._protocol.flow.drain()
        if not self.disconnected:
            self._protocol.transport.write(chunk)

    def _end(self) -> None:
        if not self.disconnected:
            self.response_complete = True
            if not self.keep_alive:
                self._protocol.transport.close()
            self._protocol.on_response_complete()
