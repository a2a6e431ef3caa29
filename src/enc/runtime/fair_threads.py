"""Threads that run jobs which cannot be interrupted, shared fairly among those who ask.

The sender who had least of the threads comes next, and no sender occupies all threads: half of them
stay free for others, however many and however slow the jobs of one sender are.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from enc.runtime.fair_queue import FairQueue

T = TypeVar("T")


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self.work, self.result = work, Future[T]()


class FairThreads:
    """Runs jobs on `threads` threads; at most `max_waiting` wait, `max_each` of one sender."""

    def __init__(self, threads: int, max_waiting: int, max_each: int, *, name: str) -> None:
        self._queue: FairQueue[_Job[Any]] = FairQueue(max_waiting, max_each, max_running=max(1, threads // 2))
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def close(self, *, wait: bool = True) -> None:
        """End after the jobs that run; those that wait are not run. Without `wait`, return at once."""
        self._executor.shutdown(wait=wait, cancel_futures=True)

    async def run(self, sender: str, work: Callable[[], T]) -> T:
        """Return what `work` returns; raise what it raises, or RateLimited or Unavailable at once if
        there is no place for it.
        """
        job = _Job(work)
        displaced = self._queue.put((sender,), job)
        if displaced is not None and displaced.result.set_running_or_notify_cancel():
            displaced.result.set_exception(self._queue.full())
        self._executor.submit(self._work)
        return await asyncio.wrap_future(job.result)

    def _work(self) -> None:
        """Run jobs until none is left that may run: also those which had to wait for one of these."""
        while (turn := self._queue.take()) is not None:
            job, started = turn.item, time.perf_counter()
            if job.result.set_running_or_notify_cancel():
                try:
                    job.result.set_result(job.work())
                except BaseException as e:
                    job.result.set_exception(e)
            self._queue.finish(turn, time.perf_counter() - started)
