"""Delivers live events on the event loop in short slices, in turn by the addresses of subscribers.

A backlog holds what was published in one enclave for the subscribers of one address. So an address
with thousands of subscriptions delays only its own events, not those of others, and does not block
the loop. Long work runs on another thread. Its backlog waits meanwhile, so that its events stay in
order.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import cached_property

from enc.core.errors import EncError
from enc.core.primitives.types import Event
from enc.core.rules.policy_types import ReadScope
from enc.node.ops.internal_errors import internal_error
from enc.node.store.events import search_item
from enc.node.store.steps import Step
from enc.runtime.fair_queue import FairQueue, Turn

SLICE_S = 0.002
"""Time after which other callbacks of the loop have their turn."""
MAX_BYTES = 64 << 20
"""Most bytes of events in all backlogs. Above it a backlog keeps the latest batch only, and
subscribers read what is missing from the store."""
EVENT_BYTES = 1024
"""What an event without content counts."""
MAX_BACKLOGS = 1 << 20
"""More than a node has subscriptions."""

Task = Callable[[], object]
Work = Generator[Task | None, None, None]
"""Yields after each short step: None, or a task that must run before the next step and may take
long.
"""
Offload = Callable[[str, Task], Awaitable[object]]
"""Runs a long task for an address, such as on a reader thread."""


class Publication:
    """A durable event, and what its deliveries share."""

    def __init__(self, step: Step, event: Event) -> None:
        self.step, self.event = step, event
        self.scopes: dict[tuple[int, bool], ReadScope] = {}
        """What subscribers may read after it, by bitmask and whether one is the sequencer."""

    @cached_property
    def item(self) -> bytes:
        return search_item(self.event).json

    @property
    def size(self) -> int:
        return EVENT_BYTES + len(self.event.content or "")


Batch = Sequence[Publication]


class Backlog:
    """Batches that wait for the subscribers of one address in one enclave."""

    def __init__(self, address: str) -> None:
        self.address, self.bytes = address, 0
        self.batches: deque[tuple[Batch, int]] = deque()
        self.work: Work | None = None


class LiveEvents:
    """All backlogs. For the event loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._queue: FairQueue[Backlog] = FairQueue(MAX_BACKLOGS, MAX_BACKLOGS)
        self._clock, self._is_running = clock, False
        self._arrivals = deque[Iterator[None]]()
        """What puts the batches into the backlogs, in order of arrival, one backlog a step."""
        self._tasks = set[asyncio.Task[None]]()
        self.bytes = 0
        """Bytes of all events that wait."""

    def spread(self, puts: Iterator[None]) -> None:
        """Take in what calls `put` for a batch, once in each step."""
        self._arrivals.append(puts)

    def put(self, backlog: Backlog, batch: Batch, size: int, begin: Callable[[Backlog], Work]) -> None:
        """Add a batch of `size` bytes. `begin` returns the work on the backlog, if it is idle."""
        if backlog.batches and self.bytes + size > MAX_BYTES:
            self._count(backlog, -backlog.bytes)
            backlog.batches.clear()
        backlog.batches.append((batch, size))
        self._count(backlog, size)
        if backlog.work is None:
            backlog.work = begin(backlog)
            self._queue.put((backlog.address,), backlog)

    def take(self, backlog: Backlog) -> Batch | None:
        """Return the next batch of a backlog, or None."""
        if not backlog.batches:
            return None
        batch, size = backlog.batches.popleft()
        self._count(backlog, -size)
        return batch

    def _count(self, backlog: Backlog, size: int) -> None:
        backlog.bytes += size
        self.bytes += size

    def run(self, offload: Offload) -> None:
        """Deliver, now and in later turns of the loop, until nothing waits."""
        if not self._is_running:
            self._is_running = True
            self._run(offload)

    def _run(self, offload: Offload) -> None:
        until = self._clock() + SLICE_S
        while self._clock() < until:
            if self._arrivals:
                self._put_next()
                continue
            turn = self._queue.take()
            if turn is None:
                self._is_running = False
                return
            self._advance(turn, until, offload)
        asyncio.get_running_loop().call_soon(self._run, offload)

    def _put_next(self) -> None:
        try:
            if next(self._arrivals[0], self) is not self:
                return
        except Exception as e:  # an exception here would end all deliveries for good
            internal_error(e, "publish")
        self._arrivals.popleft()

    def _advance(self, turn: Turn[Backlog], until: float, offload: Offload) -> None:
        backlog, began, task = turn.item, self._clock(), None
        try:
            while backlog.work is not None and task is None and self._clock() < until:
                task = next(backlog.work)
        except StopIteration:
            backlog.work = None
        except Exception as e:  # at the next event these subscriptions see that some are missing
            internal_error(e, "publish")
            backlog.work = None
        self._queue.finish(turn, self._clock() - began)
        if task is not None:
            running = asyncio.get_running_loop().create_task(self._wait(backlog, task, offload))
            self._tasks.add(running)
            running.add_done_callback(self._tasks.discard)
        elif backlog.work is not None:
            self._queue.put_back((backlog.address,), backlog)

    async def _wait(self, backlog: Backlog, task: Task, offload: Offload) -> None:
        """Run a long task, then continue its backlog, also if the task failed: the backlog's work
        handles that.
        """
        try:
            await offload(backlog.address, task)
        except EncError:
            pass
        except Exception as e:
            internal_error(e, "publish")
        self._queue.put_back((backlog.address,), backlog)
        self.run(offload)
