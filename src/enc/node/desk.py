"""The event loop's side of writing: commits go in here as they arrive, and their outcomes come back here.

What arrives within a few milliseconds goes to admission as one group, and what one batch settles comes back as one
call: under load threads are woken once for many commits, not once for each. A commit that comes alone does not wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from enc.core.errors import EncError, Unavailable
from enc.core.types import Receipt
from enc.node.admission import MAX_GROUP, Admission, Arrival, Refusal
from enc.node.sequencer import Outcome, internal

MAX_BYTES = 256 << 20
"""Of commits that wait."""
GATHER_S = 0.004
"""From one group to the next, unless it is full."""

Result = Receipt | EncError
Reply = Callable[[Result, bytes | None], None]
"""Takes the outcome of a commit, and its hash if it could be read. Called on the event loop's thread."""


class Desk:
    """`submit` on the loop's thread; `refuse` and `deliver` from any other."""

    admission: Admission
    settled: Callable[[Sequence[Result]], None] = staticmethod(lambda results: None)

    def __init__(self, loop: asyncio.AbstractEventLoop, max_waiting: int, gather_s: float = GATHER_S) -> None:
        self._loop, self._max_waiting, self._gather_s = loop, max_waiting, gather_s
        self._arrivals: list[Arrival] = []
        self._due = 0.0
        """When the next group may go, by the loop's clock."""
        self._timer: asyncio.Handle
        self.waiting = self.bytes = 0
        self.is_closed = False
        """The node stops: what is in line is answered, nothing more is taken."""

    def submit(self, body: bytes, reply: Reply) -> None:
        """Put a commit in line. `reply` is called once, whatever becomes of it."""
        if self.is_closed:
            raise Unavailable("the node is shutting down", retry_after_ms=1000)
        if self.waiting >= self._max_waiting or self.bytes >= MAX_BYTES:
            raise Unavailable("too many commits are waiting", retry_after_ms=1000)
        self.waiting += 1
        self.bytes += len(body)
        self._arrivals.append((body, (reply, len(body))))
        if len(self._arrivals) == 1:
            self._timer = self._schedule()
        elif len(self._arrivals) == MAX_GROUP:
            self._timer.cancel()
            self._pass_on()

    def _schedule(self) -> asyncio.Handle:
        if self._due <= self._loop.time():
            return self._loop.call_soon(self._pass_on)
        return self._loop.call_at(self._due, self._pass_on)

    def _pass_on(self) -> None:
        self._due = self._loop.time() + self._gather_s
        arrivals, self._arrivals = self._arrivals, []
        self.admission.submit(arrivals)

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        self._loop.call_soon_threadsafe(self._settle, refusals)

    def deliver(self, outcomes: Sequence[Outcome]) -> None:
        settled = [(ticket.sender, result, ticket.commit.hash) for ticket, result in outcomes]
        self._loop.call_soon_threadsafe(self._settle, settled)

    def _settle(self, settled: Sequence[tuple[Any, Result, bytes | None]]) -> None:
        self.waiting -= len(settled)
        for (reply, size), result, commit_hash in settled:
            self.bytes -= size
            try:
                reply(result, commit_hash)
            except Exception as e:  # one peer's trouble is not the next one's
                internal(e, "reply")
        self.settled([result for _, result, _ in settled])

    async def drained(self) -> None:
        """When nothing waits any more."""
        while self.waiting:
            await asyncio.sleep(0.005)
