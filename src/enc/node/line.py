"""The line of messages that wait to go out on one WebSocket."""

import asyncio
from collections import deque

from starlette.types import Send

FLUSH_S = 10
"""How long a connection that ends may take to send what waits."""


class Line:
    """`put` never blocks; who can wait asks for `room` first, who cannot asks whether it `is_full`."""

    def __init__(self, send: Send, max_bytes: int) -> None:
        self._send, self._max_bytes = send, max_bytes
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._end: int | None = None
        self._task: asyncio.Task[None] | None = None
        self.sent = 0
        """Messages that have gone."""

    @property
    def has_ended(self) -> bool:
        """Nothing that is put in line from now on is sent."""
        return self._end is not None

    @property
    def is_full(self) -> bool:
        return self._size >= self._max_bytes

    async def room(self) -> None:
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def put(self, message: bytes) -> None:
        if self._end is None:
            self._messages.append(message)
            self._size += len(message)
            self._news.set()

    def end(self, code: int) -> None:
        """Send what waits, then close."""
        if self._end is None:
            self._end = code
            self._news.set()
            self._limit()

    def _limit(self) -> None:
        """A connection that ends has bounded time for it, also with a peer that reads nothing."""
        if self._task is not None and self._end is not None:
            self._task.get_loop().call_later(FLUSH_S, self._task.cancel)

    async def run(self) -> None:
        """Send until the end."""
        self._task = asyncio.current_task()
        self._limit()
        while self._messages or self._end is None:
            if not self._messages:
                self._news.clear()
                await self._news.wait()
            while self._messages:
                message = self._messages.popleft()
                await self._send({"type": "websocket.send", "text": message.decode()})
                self.sent += 1
                self._size -= len(message)
                if not self._room.is_set() and not self.is_full:
                    self._room.set()
        await self._send({"type": "websocket.close", "code": self._end})
