"""A bounded number of slots that addresses get in turn, by the time for which they hold them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from enc.runtime.fair_queue import FairQueue, Turn

MAX_WAITING = 1 << 20
"""More than a node has subscriptions: nobody is refused a place in the queue."""
SHARE = 4
"""One address holds at most this part of the slots: a slot cannot be taken back."""


class FairSlots:
    """For one event loop."""

    def __init__(self, count: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._free, self._clock = count, clock
        self._queue: FairQueue[_Waiter] = FairQueue(MAX_WAITING, MAX_WAITING, max_running=max(1, count // SHARE))

    @asynccontextmanager
    async def hold(self, address: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it inside the block."""
        waiter = _Waiter()
        self._queue.put((address,), waiter)
        self._grant()
        try:
            await waiter.granted.wait()
            yield
        finally:
            self._leave(waiter)

    def _grant(self) -> None:
        while self._free and (turn := self._queue.take()) is not None:
            waiter = turn.item
            if waiter.has_left:
                self._queue.finish(turn, 0)
                continue
            self._free -= 1
            waiter.turn, waiter.began = turn, self._clock()
            waiter.granted.set()

    def _leave(self, waiter: "_Waiter") -> None:
        """Release the slot, or give up waiting for one."""
        waiter.has_left = True
        if waiter.turn is not None:
            self._queue.finish(waiter.turn, self._clock() - waiter.began)
            self._free += 1
            self._grant()


class _Waiter:
    """A task that waits for a slot or holds one."""

    def __init__(self) -> None:
        self.granted, self.has_left = asyncio.Event(), False
        self.turn: Turn[_Waiter] | None = None
        self.began = 0.0
