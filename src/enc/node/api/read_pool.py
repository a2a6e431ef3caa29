"""The threads that answer reads, shared fairly among those who ask.

Each read runs in steps. After STEP_S a thread puts it back, and takes the read of the sender who
had least of the threads: a cheap read waits for one step of a thread at most, however long the
reads of others are. Addresses share the threads among themselves, and the identities of an address
share its part, as soon as they are proved.

A read is charged to the rates by what it cost: one token for each TOKEN_S of a thread's processor
time. The first token was taken when the request arrived. While no identity is proved, it is one
token for each UNPROVED_TOKEN_S: only the address's rate limits such reads, and it is a multiple of an
identity's.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Generic, Literal, TypeVar

from enc.core.errors import EncError, Unavailable
from enc.node.api.long_reads import LongReads
from enc.node.read.request_handlers import SealedHandlers
from enc.node.read.steps import Steps, one_step
from enc.runtime.fair_queue import FairQueue
from enc.runtime.rate_limit import RateLimiter

MAX_WAITING_READS = 512
"""Most requests that wait for a reader thread."""
MAX_READS_PER_ADDRESS = 128
"""Most of them of one address."""
MAX_LONG_READS = 32
"""Most reads that were put back."""
STEP_S = 0.002
"""Time after which a read goes back to the queue."""
TOKEN_S = 0.005
"""Processor time that one token of a rate pays for."""
UNPROVED_TOKEN_S = 0.001
"""The same for a read whose sender has proved no identity."""

T = TypeVar("T")
_End = Literal["done", "opened", "paused"]


class _Read(Generic[T]):
    """A read that waits or runs."""

    def __init__(
        self, address: str, steps: Steps[T], loop: asyncio.AbstractEventLoop, token_s: float = UNPROVED_TOKEN_S
    ) -> None:
        self.address, self.steps, self._loop = address, steps, loop
        self.identity: bytes | None = None
        self._token_s = token_s
        self.result: asyncio.Future[T] = loop.create_future()
        self.spent, self.paid = 0.0, 1.0
        """Processor time in tokens, and how many of them were taken."""

    @property
    def token_s(self) -> float:
        return self._token_s if self.identity is None else TOKEN_S

    def resolve(self, value: T | None, error: BaseException | None = None) -> None:
        """Pass the result to the event loop. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resolve, value, error)

    def end(self, error: EncError) -> None:
        """End a read that waits, and free what it holds."""
        self.steps.close()
        self.resolve(None, error)

    def _resolve(self, value: Any, error: BaseException | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)


class ReadPool:
    """Runs reads on a thread pool of their own; rejects requests when too many wait."""

    def __init__(
        self,
        handlers: SealedHandlers,
        executor: Executor,
        identities: RateLimiter,
        addresses: RateLimiter,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.handlers, self._executor = handlers, executor
        self._identities, self._addresses = identities, addresses
        self._clock, self._cpu_clock = clock, cpu_clock
        self._queue: FairQueue[_Read[Any]] = FairQueue(MAX_WAITING_READS, MAX_READS_PER_ADDRESS, levels=2)
        self._long = LongReads[_Read[Any]]()

    async def run(self, address: str, work: Callable[..., T], *args: Any) -> T:
        """Run a short read for an address on a reader thread and return its result.

        Raises Unavailable or RateLimited if too many wait.
        """
        return await self.run_steps(address, one_step(lambda: work(*args)))

    async def run_own(self, address: str, work: Callable[[], T]) -> T:
        """Do the same for work that the node begins itself for a peer with a proved identity."""
        return await self._run(_Read(address, one_step(work), asyncio.get_running_loop(), TOKEN_S))

    async def run_steps(self, address: str, steps: Steps[T], identity: bytes | None = None) -> T:
        """Do the same for a read in steps. `identity`: the sender's, if it is proved already."""
        read = _Read(address, steps, asyncio.get_running_loop())
        read.identity = identity
        return await self._run(read)

    async def _run(self, read: _Read[T]) -> T:
        displaced = self._queue.put((read.address, read.identity), read)
        if displaced is not None:
            displaced.end(self._queue.full())
        self._executor.submit(self._work)
        return await read.result

    # On a reader thread

    def _work(self) -> None:
        """Run one step of the read whose turn it is."""
        turn = self._queue.take()
        if turn is None:  # a read was displaced
            return
        read, started, cpu = turn.item, self._clock(), self._cpu_clock()
        end: _End = "done"
        try:
            if self._long.resume(read.address, read) and not read.result.cancelled():
                end = self._advance(read, started)
        except StopIteration as e:
            read.resolve(e.value)
        except BaseException as e:
            read.resolve(None, e)
        self._charge(read, self._cpu_clock() - cpu)
        self._queue.finish(turn, self._clock() - started)
        if end == "done":
            read.steps.close()
            self._long.discard(read.address, read)
            return
        (self._queue.move if end == "opened" else self._queue.put_back)((read.address, read.identity), read)
        self._executor.submit(self._work)

    def _advance(self, read: _Read[Any], started: float) -> _End:
        """Run one step; raises StopIteration with the result when it is the last."""
        while True:
            identity = next(read.steps)
            if identity is not None:
                read.identity = identity
                if len(self._queue):  # from here on it is the identity's turn that counts
                    return "opened"
            if self._clock() - started >= STEP_S:
                ended = self._long.keep(read.address, read, MAX_LONG_READS)
                if ended is not None:
                    ended.end(Unavailable("too many long requests are running", retry_after_ms=1000))
                return "done" if ended is read else "paused"

    def _charge(self, read: _Read[Any], cpu_s: float) -> None:
        read.spent += cpu_s / read.token_s
        due = read.spent - read.paid
        if due > 0:
            read.paid = read.spent
            self._addresses.charge(read.address, due)
            if read.identity is not None:
                self._identities.charge(read.identity, due)
