"""The line of messages that wait to go out on one WebSocket."""

import asyncio
from collections import deque
from collections.abc import Callable

from starlette.types import Send

FLUSH_S = 10
"""How long a connection that ends may take to send what waits."""
GONE = 1006
"""The code of an end that nobody sent."""


class Line:
    """`put` never blocks; who can wait asks for `room` first, who cannot asks whether it `is_full`.

    `hold` is told how many bytes more wait, or fewer.
    """

    def __init__(self, send: Send, max_bytes: int, hold: Callable[[int], None]) -> None:
        self._send, self._max_bytes, self._hold = send, max_bytes, hold
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._end: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.sent = 0
        """Messages that have gone."""

    @property
    def has_ended(self) -> bool:
        """Nothing that is put in line from now on is sent."""
        return self._end is not None

    @property
    def is_full(self) -> bool:
        return self._size >= self._max_bytes

    @property
    def is_empty(self) -> bool:
        return not self._size

    async def room(self) -> None:
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def put(self, message: bytes) -> None:
        if self._end is None:
            self._messages.append(message)
            self._resize(len(message))
            self._news.set()

    def _resize(self, by: int) -> None:
        self._size += by
        self._hold(by)

    def end(self, code: int) -> None:
        """Send what waits, then close."""
        if self._end is None:
            self._end = code
            self._news.set()
            self._limit()

    def _limit(self) -> None:
        """A connection that ends has bounded time for it, also with a peer that reads nothing."""
        if self._task is not None and self._end is not None:
            self._timer = self._task.get_loop().call_later(FLUSH_S, self._task.cancel)

    async def run(self) -> None:
        """Send until the end. What is left when it was not the end that stopped it is forgotten."""
        self._task = asyncio.current_task()
        self._limit()
        try:
            await self._send_all()
        finally:
            self._forget()

    def _forget(self) -> None:
        """Keep nothing that waited: the task knows what it was sending, and a timer knows the task."""
        self._end = self._end or GONE
        self._messages.clear()
        self._resize(-self._size)
        self._task = None
        if self._timer is not None:
            self._timer.cancel()

    async def _send_all(self) -> None:
        while self._messages or self._end is None:
            if not self._messages:
                self._news.clear()
                await self._news.wait()
            while self._messages:
                size, text = len(self._messages[0]), self._messages.popleft().decode()
                await self._send({"type": "websocket.send", "text": text})
                self.sent += 1
                self._resize(-size)
                if not self._room.is_set() and not self.is_full:
                    self._room.set()
        await self._send({"type": "websocket.close", "code": self._end})
