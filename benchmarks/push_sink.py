"""A receiver with the least possible cost: it reads whole POSTs, stores them, and answers once its gate is open.

It answers challenges at once, and does not store them.
"""

import asyncio
import threading
from collections.abc import Iterable

from msgspec.json import encode

from enc.core.primitives.signing import PrivateKey
from enc.core.session.envelope import challenge_answer, open_push


class _Connection(asyncio.Protocol):
    def __init__(self, sink: "Sink") -> None:
        self._sink, self._parts, self._missing = sink, list[bytes](), -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            data = b"".join((*self._parts, data))
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found:
                self._parts = [data]
                return
            at = head.lower().find(b"content-length:") + 15
            self._missing, self._parts, data = int(head[at:].split(b"\r\n")[0]), [], rest
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing == 0:
            self._sink.take(b"".join(self._parts), self._transport)
            self._parts, self._missing = [], -1


class Sink:
    """An HTTP server on a separate thread and a free port."""

    def __init__(self, keys: Iterable[PrivateKey]) -> None:
        """`keys`: those of the recipients, to answer challenges with."""
        self._keys = {key.public: key for key in keys}
        self.bodies: list[bytes] = []
        self._held: list[asyncio.BaseTransport] | None = None
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def take(self, body: bytes, transport: asyncio.BaseTransport) -> None:
        if body.startswith(b'{"type":"Challenge"'):
            answer = encode(challenge_answer(open_push(self._keys[to_of(body)], body)))
            _answer(transport, answer)
            return
        self.bodies.append(body)
        if self._held is None:
            _answer(transport)
        else:
            self._held.append(transport)

    def shut(self) -> None:
        """Stop answering requests."""
        self._loop.call_soon_threadsafe(setattr, self, "_held", [])

    def open(self) -> None:
        """Answer all waiting requests, and later ones at once."""

        def work() -> None:
            held, self._held = self._held or [], None
            for transport in held:
                _answer(transport)

        self._loop.call_soon_threadsafe(work)


def to_of(body: bytes) -> bytes:
    """Return the recipient that a push or a challenge names."""
    at = body.find(b'"to":"') + 6
    return bytes.fromhex(body[at : at + 64].decode())


def _answer(transport: asyncio.BaseTransport, body: bytes = b"") -> None:
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
