"""Bounded queue of messages that wait to be sent on one WebSocket."""

import asyncio
from collections import deque
from collections.abc import Callable

from starlette.types import Send

FLUSH_S = 10
"""Seconds that a closing connection has to send its queue."""
ABNORMAL_CLOSURE = 1006
"""Code for a connection that ended without a close frame."""


class SendQueue:
    """Queue with one sender task, `run`. `put` never blocks.

    Callers that can wait await `wait_for_room` before they put; others check `is_full`. `on_resize`
    is called with the change of the queue's size in bytes.
    """

    def __init__(self, send: Send, max_bytes: int, on_resize: Callable[[int], None]) -> None:
        self._send, self._max_bytes, self._on_resize = send, max_bytes, on_resize
        self._messages: deque[bytes] = deque()
        self._size = 0
        self._not_empty, self._has_room = asyncio.Event(), asyncio.Event()
        self._has_room.set()
        self._end_code: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.sent = 0
        """Number of messages sent."""

    @property
    def has_ended(self) -> bool:
        """Whether later messages are discarded."""
        return self._end_code is not None

    @property
    def is_full(self) -> bool:
        return self._size >= self._max_bytes

    @property
    def is_empty(self) -> bool:
        return not self._size

    async def wait_for_room(self) -> None:
        while self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def put(self, message: bytes) -> None:
        if self._end_code is None:
            self._messages.append(message)
            self._resize(len(message))
            self._not_empty.set()

    def _resize(self, by: int) -> None:
        self._size += by
        self._on_resize(by)

    def end(self, code: int) -> None:
        """Send the queued messages, then close with this code."""
        if self._end_code is None:
            self._end_code = code
            self._not_empty.set()
            self._start_deadline()

    def _start_deadline(self) -> None:
        """Cancel `run` after FLUSH_S, so that a peer that reads nothing cannot delay the end."""
        if self._task is not None and self._end_code is not None:
            self._timer = self._task.get_loop().call_later(FLUSH_S, self._task.cancel)

    async def run(self) -> None:
        """Send messages until `end`; discard what is left if sending stops before that."""
        self._task = asyncio.current_task()
        self._start_deadline()
        try:
            await self._send_all()
        finally:
            self._discard()

    def _discard(self) -> None:
        """Free the queued messages: the timer refers to the task, and the task to its message."""
        self._end_code = self._end_code or ABNORMAL_CLOSURE
        self._messages.clear()
        self._resize(-self._size)
        self._task = None
        if self._timer is not None:
            self._timer.cancel()

    async def _send_all(self) -> None:
        while self._messages or self._end_code is None:
            if not self._messages:
                self._not_empty.clear()
                await self._not_empty.wait()
            while self._messages:
                size, text = len(self._messages[0]), self._messages.popleft().decode()
                await self._send({"type": "websocket.send", "text": text})
                self.sent += 1
                self._resize(-size)
                if not self._has_room.is_set() and not self.is_full:
                    self._has_room.set()
        await self._send({"type": "websocket.close", "code": self._end_code})
