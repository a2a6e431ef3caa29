"""Subscriptions: a feed, driven over WebSockets that are made again when they are lost."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.sync.client import ClientConnection, connect

from enc.client.courier import Backoff
from enc.client.feed import Feed, Turn
from enc.client.items import Item
from enc.client.transport import LOST, unreachable, web_socket_url
from enc.core.errors import EncError, RateLimited, WorldError

MAX_MESSAGE = 16 << 20
"""Bytes of one message."""


_PASSING = (*LOST, RateLimited, WorldError)
"""After these the connection is made again, as long as patience lasts."""


class _Subscription:
    def __init__(self, url: str, timeout: float, backoff: Backoff) -> None:
        self._url, self._backoff = url, backoff
        self._options: dict[str, Any] = {"max_size": MAX_MESSAGE, "open_timeout": timeout, "close_timeout": timeout}
        self._items: deque[Item] = deque()
        self._is_closed = False

    def _take(self, turn: Turn) -> tuple[str, ...]:
        """What to send."""
        self._items += turn.items
        if turn.is_good:
            self._backoff.reset()
        return turn.send

    def _wait(self, error: Exception) -> float:
        """Seconds until the next connection; raises what ends the subscription."""
        return self._backoff.wait(error if isinstance(error, EncError) else unreachable(self._url, error))


class Subscription(_Subscription):
    """Iterate over it for as long as you like, then close it; `with` does. What it raises ends it."""

    _socket: ClientConnection | None = None

    def __init__(self, url: str, timeout: float, feed: Feed, backoff: Backoff) -> None:
        super().__init__(url, timeout, backoff)
        self._feed = feed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        try:
            while not self._items:
                if self._is_closed:
                    raise StopIteration
                self._step()
        except EncError:
            self.close()
            raise
        return self._items.popleft()

    def _step(self) -> None:
        try:
            self._turn()
        except _PASSING as e:
            self._lose()
            if not self._is_closed:
                time.sleep(self._wait(e))

    def _turn(self) -> None:
        if self._socket is None:
            self._socket = connect(web_socket_url(self._url), **self._options).__enter__()
            self._send(self._feed.connected())
        try:
            text = self._socket.recv(timeout=self._feed.due_in)
        except TimeoutError:
            self._send(self._feed.tick())
            return
        self._send(self._take(self._feed.take(text)))

    def _send(self, messages: tuple[str, ...]) -> None:
        for message in messages:
            if self._socket is not None:
                self._socket.send(message)

    def _lose(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def close(self) -> None:
        self._is_closed = True
        self._lose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncSubscription(_Subscription):
    """Iterate over it for as long as you like, then close it; `async with` does. What it raises ends it."""

    _feed: Feed | None = None
    _socket: AsyncConnection | None = None

    def __init__(self, url: str, timeout: float, open_feed: Callable[[], Awaitable[Feed]], backoff: Backoff) -> None:
        super().__init__(url, timeout, backoff)
        self._open_feed = open_feed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            while not self._items:
                if self._is_closed:
                    raise StopAsyncIteration
                self._feed = self._feed or await self._open_feed()
                await self._step(self._feed)
        except EncError:
            await self.close()
            raise
        return self._items.popleft()

    async def _step(self, feed: Feed) -> None:
        try:
            await self._turn(feed)
        except _PASSING as e:
            await self._lose()
            await asyncio.sleep(self._wait(e))

    async def _turn(self, feed: Feed) -> None:
        if self._socket is None:
            self._socket = await connect_async(web_socket_url(self._url), **self._options)
            await self._send(feed.connected())
        try:
            text = await asyncio.wait_for(self._socket.recv(), feed.due_in)
        except TimeoutError:
            await self._send(feed.tick())
            return
        await self._send(self._take(feed.take(text)))

    async def _send(self, messages: tuple[str, ...]) -> None:
        for message in messages:
            if self._socket is not None:
                await self._socket.send(message)

    async def _lose(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def close(self) -> None:
        self._is_closed = True
        await self._lose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
