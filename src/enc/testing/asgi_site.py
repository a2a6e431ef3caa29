"""Calls a node's ASGI app, which runs on a loop in another thread: requests and WebSockets."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.peers import PeerConnection, Peers
from enc.testing.connections import Deliver

T = TypeVar("T")

CALLER = ("127.0.0.1", 1)
PATIENCE_S = 60
"""Seconds after which a request counts as stuck."""


class AsgiSite:
    """`limits`: those of the node's server, which counts the bytes that wait for a peer."""

    def __init__(self, app: ASGIApp, loop: asyncio.AbstractEventLoop, limits: ServingLimits) -> None:
        self._app, self.loop = app, loop
        peers = Peers(limits)
        self._peer = PeerConnection(peers, CALLER[0], lambda: None)
        peers.add(self._peer)
        self._transport = httpx.ASGITransport(self.app, client=CALLER)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "state": {"peer": self._peer}}, receive, send)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def handle(self, request: httpx.Request) -> httpx.Response:
        whole = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
        return self.wait(self._handle(whole))

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        body = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=body, request=request)

    def open(self, deliver: Deliver) -> "AsgiLine":
        return AsgiLine(self, deliver)


class AsgiLine:
    """The node's end of a WebSocket."""

    def __init__(self, site: AsgiSite, deliver: Deliver) -> None:
        self._site, self._deliver = site, deliver
        self._inbox = asyncio.Queue[Message]()
        self._put({"type": "websocket.connect"})
        asyncio.run_coroutine_threadsafe(self._serve(), site.loop)

    async def _serve(self) -> None:
        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": [], "client": CALLER}
        try:
            await self._site.app(scope, self._inbox.get, self._send)
        finally:
            self._deliver(None)

    async def _send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            text = message.get("text")
            self._deliver(message["bytes"].decode() if text is None else text)

    def send(self, text: str) -> None:
        self._put({"type": "websocket.receive", "text": text})

    def close(self) -> None:
        self._put({"type": "websocket.disconnect", "code": 1000})

    def _put(self, message: Message) -> None:
        with suppress(RuntimeError):  # the node has stopped
            self._site.loop.call_soon_threadsafe(self._inbox.put_nowait, message)
