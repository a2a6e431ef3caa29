"""The client's end of a WebSocket without a socket, blocking and async, as the library `websockets` has it."""

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from websockets.exceptions import ConnectionClosedError

Deliver = Callable[[str | None], None]
"""Takes a message from the node; None: the node has ended the connection."""


class Line(Protocol):
    """The node's end."""

    def send(self, text: str) -> None: ...

    def close(self) -> None: ...


Open = Callable[[Deliver], Line]


class Connection:
    def __init__(self, open_line: Open) -> None:
        self._arrived = SimpleQueue[str | None]()
        self._line = open_line(self._arrived.put)

    def send(self, text: str) -> None:
        self._line.send(text)

    def recv(self, timeout: float | None = None) -> str:
        try:
            text = self._arrived.get(timeout=None if timeout is None else max(timeout, 0.0))
        except Empty:
            raise TimeoutError("no message arrived in time") from None
        if text is None:
            raise ConnectionClosedError(None, None)
        return text

    def close(self) -> None:
        self._line.close()


class AsyncConnection:
    def __init__(self, open_line: Open) -> None:
        self._arrived, loop = asyncio.Queue[str | None](), asyncio.get_running_loop()

        def deliver(text: str | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._arrived.put_nowait, text)

        self._line = open_line(deliver)

    async def send(self, text: str) -> None:
        self._line.send(text)

    async def recv(self) -> str:
        text = await self._arrived.get()
        if text is None:
            raise ConnectionClosedError(None, None)
        return text

    async def close(self) -> None:
        self._line.close()
