"""Subscriptions: drive a feed over WebSockets, and reconnect when they are lost."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Self

from msgspec import Struct
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.asyncio.client import connect as connect_async
from websockets.sync.client import ClientConnection, connect

from enc.client.errors import TimedOut, Unreachable
from enc.client.link.follow_moves import MAX_HOPS
from enc.client.subscribe.feed import MOVE_CHECK_S, RECOVERABLE, Feed, FeedStep
from enc.client.verify.items import Item
from enc.client.wire.flow import Flow
from enc.client.wire.network import Network
from enc.client.wire.retrying_caller import PAUSES
from enc.client.wire.transport import CONNECTION_ERRORS, unreachable, web_socket_url
from enc.core.errors import EncError, RateLimited, WorldError
from enc.runtime.backoff import Backoff

MAX_MESSAGE = 16 << 20
"""Most bytes of one message."""
CLOSE_S = 0.1
"""Longest wait for the node to confirm the end of a connection, in seconds. While many unread messages
wait, nothing is read, and so the confirmation cannot arrive; nothing depends on it.
"""

_log = logging.getLogger("enc.client.subscription")
_log.addHandler(logging.NullHandler())  # a lost connection is no error: without a handler, Python prints it on stderr

_TRANSIENT = (*CONNECTION_ERRORS, RateLimited, WorldError)
"""Errors after which to reconnect while patience lasts."""


class ConnectionChange(Struct, frozen=True):
    """The node stopped answering, or answers again."""

    is_up: bool
    why: str = ""
    """The reason."""


class _Subscription:
    """`is_endless`: retry however long the node does not answer."""

    def __init__(
        self,
        url: str | None,
        timeout: float,
        backoff: Backoff,
        *,
        is_endless: bool = False,
        network: Network | None = None,
    ) -> None:
        self._url, self._backoff, self._hops, self._is_endless = url or "", backoff, 0, is_endless
        self._network = network
        self._failures = 0
        """Consecutive failures. The first may just be a lost connection."""
        self._news: deque[ConnectionChange] = deque()
        self._options: dict[str, Any] = {
            "max_size": MAX_MESSAGE,
            "open_timeout": timeout,
            "close_timeout": CLOSE_S,
            "logger": _log,
        }
        self._items: deque[Item] = deque()
        self._is_closed = False

    def _store(self, turn: FeedStep) -> tuple[str, ...]:
        """Store the events and return the messages to send."""
        self._items += turn.items
        if turn.is_good:
            self._backoff.reset()
            self._hops = 0
            if self._failures > 1:
                self._news.append(ConnectionChange(is_up=True))
            self._failures = 0
        return turn.send

    def _count_hop(self, error: EncError) -> None:
        """Count a node that brought no event; raise the error after too many."""
        self._hops += 1
        if self._hops > MAX_HOPS:
            raise error

    def _wait(self, error: Exception) -> float:
        """Return the seconds until the next connection; raise the error that ends the subscription."""
        known = error if isinstance(error, EncError) else unreachable(self._url, error)
        self._failures += 1
        if self._failures == 2:
            self._news.append(ConnectionChange(is_up=False, why=known.message))
        return self._backoff.wait(known)

    def _again(self, error: EncError) -> float:
        """Return the seconds to wait after patience is exhausted; raise the error unless endless."""
        if not self._is_endless:
            raise error
        self._hops = 0
        return PAUSES.max_s


class Subscription(_Subscription):
    """Iterate over it, then close it, or use `with`. Any error that it raises ends it."""

    _socket: ClientConnection | None = None

    def __init__(
        self,
        url: str | None,
        timeout: float,
        open_feed: Callable[[], Feed],
        backoff: Backoff,
        run: Callable[[Flow[Any]], Any],
        *,
        is_endless: bool = False,
        network: Network | None = None,
    ) -> None:
        super().__init__(url, timeout, backoff, is_endless=is_endless, network=network)
        self._feed, self._run = open_feed(), run

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        while True:
            found = self.news()
            if found is None:
                raise StopIteration
            if isinstance(found, Item):
                return found

    def news(self) -> Item | ConnectionChange | None:
        """Return the next event, or a ConnectionChange when the node stops or resumes answering.

        None if closed.
        """
        try:
            while not self._items and not self._news:
                if self._is_closed:
                    return None
                self._step()
        except EncError:
            self.close()
            raise
        return self._news.popleft() if self._news else self._items.popleft()

    def _step(self) -> None:
        try:
            self._exchange()
        except RECOVERABLE as e:
            self._disconnect()
            self._recover(e)
        except _TRANSIENT as e:
            self._disconnect()
            if not self._is_closed:
                self._pause(e)

    def _pause(self, error: Exception) -> None:
        """Wait before the next attempt; after the last one, look for the enclave at another node."""
        try:
            self._sleep(self._wait(error))
        except (Unreachable, TimedOut) as e:
            self._recover(e)
            self._backoff.reset()
        except (RateLimited, WorldError) as e:
            self._sleep(self._again(e))

    def _recover(self, error: EncError) -> None:
        try:
            self._count_hop(error)
            self._run(self._feed.recover(error))
        except (RateLimited, WorldError) as e:
            self._sleep(self._again(e))

    def _exchange(self) -> None:
        if self._socket is None:
            self._run(self._feed.check_moved())
            self._url = self._feed.url or self._url
            self._socket = self._open(web_socket_url(self._url))
            self._send(self._feed.connected())
        try:
            text = self._socket.recv(timeout=min(self._feed.due_in, MOVE_CHECK_S))
        except TimeoutError:
            if self._run(self._feed.check_moved()):
                self._disconnect()
            else:
                self._send(self._feed.tick())
            return
        self._send(self._store(self._feed.receive(text)))

    def _open(self, url: str) -> Any:
        if self._network is not None:
            return self._network.connect(url)
        return connect(url, **self._options).__enter__()

    def _sleep(self, seconds: float) -> None:
        (time.sleep if self._network is None else self._network.sleep)(seconds)

    def _send(self, messages: tuple[str, ...]) -> None:
        for message in messages:
            if self._socket is not None:
                self._socket.send(message)

    def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def close(self) -> None:
        self._is_closed = True
        self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncSubscription(_Subscription):
    """Iterate over it, then close it, or use `async with`. Any error that it raises ends it."""

    _feed: Feed | None = None
    _socket: AsyncConnection | None = None

    def __init__(
        self,
        url: str | None,
        timeout: float,
        open_feed: Callable[[], Awaitable[Feed]],
        backoff: Backoff,
        run: Callable[[Flow[Any]], Awaitable[Any]],
        *,
        is_endless: bool = False,
        network: Network | None = None,
    ) -> None:
        super().__init__(url, timeout, backoff, is_endless=is_endless, network=network)
        self._open_feed, self._run = open_feed, run

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        while True:
            found = await self.news()
            if found is None:
                raise StopAsyncIteration
            if isinstance(found, Item):
                return found

    async def news(self) -> Item | ConnectionChange | None:
        """Return the next event, or a ConnectionChange when the node stops or resumes answering.

        None if closed.
        """
        try:
            while not self._items and not self._news:
                if self._is_closed:
                    return None
                self._feed = self._feed or await self._open_feed()
                await self._step(self._feed)
        except EncError:
            await self.close()
            raise
        return self._news.popleft() if self._news else self._items.popleft()

    async def _step(self, feed: Feed) -> None:
        try:
            await self._exchange(feed)
        except RECOVERABLE as e:
            await self._disconnect()
            await self._recover(e, feed)
        except _TRANSIENT as e:
            await self._disconnect()
            await self._pause(e, feed)

    async def _pause(self, error: Exception, feed: Feed) -> None:
        try:
            await self._sleep(self._wait(error))
        except (Unreachable, TimedOut) as e:
            await self._recover(e, feed)
            self._backoff.reset()
        except (RateLimited, WorldError) as e:
            await self._sleep(self._again(e))

    async def _recover(self, error: EncError, feed: Feed) -> None:
        try:
            self._count_hop(error)
            await self._run(feed.recover(error))
        except (RateLimited, WorldError) as e:
            await self._sleep(self._again(e))

    async def _exchange(self, feed: Feed) -> None:
        if self._socket is None:
            await self._run(feed.check_moved())
            self._url = feed.url or self._url
            self._socket = await self._open(web_socket_url(self._url))
            await self._send(feed.connected())
        try:
            text = await asyncio.wait_for(self._socket.recv(), min(feed.due_in, MOVE_CHECK_S))
        except TimeoutError:
            if await self._run(feed.check_moved()):
                await self._disconnect()
            else:
                await self._send(feed.tick())
            return
        await self._send(self._store(feed.receive(text)))

    async def _open(self, url: str) -> Any:
        if self._network is not None:
            return await self._network.async_connect(url)
        return await connect_async(url, **self._options)

    async def _sleep(self, seconds: float) -> None:
        await (asyncio.sleep if self._network is None else self._network.async_sleep)(seconds)

    async def _send(self, messages: tuple[str, ...]) -> None:
        for message in messages:
            if self._socket is not None:
                await self._socket.send(message)

    async def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def close(self) -> None:
        self._is_closed = True
        await self._disconnect()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
