"""Threads that senders share: none occupies all, and none waits behind all jobs of another."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from enc.core.errors import MisuseError, RateLimited, Unavailable
from enc.runtime.fair_threads import FairThreads

PATIENCE_S = 30


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    made = FairThreads(4, 20, 12, name="test")
    yield made
    made.close()


class Slow:
    """Jobs that run until they may end."""

    def __init__(self) -> None:
        self._go_on, self._running = threading.Event(), threading.Semaphore(0)
        self.count, self.most, self._lock = 0, 0, threading.Lock()

    def work(self) -> str:
        with self._lock:
            self.count += 1
            self.most = max(self.most, self.count)
        self._running.release()
        assert self._go_on.wait(PATIENCE_S)
        with self._lock:
            self.count -= 1
        return "slow"

    async def until_running(self, jobs: int) -> None:
        for _ in range(jobs):
            assert await asyncio.to_thread(self._running.acquire, timeout=PATIENCE_S)

    def end(self) -> None:
        self._go_on.set()


def test_a_job_s_result_and_its_error(threads: FairThreads) -> None:
    def fail() -> None:
        raise MisuseError("wrong")

    assert asyncio.run(threads.run("a", lambda: 7)) == 7
    with pytest.raises(MisuseError, match="wrong"):
        asyncio.run(threads.run("a", fail))


def test_slow_jobs_of_one_sender_leave_threads_to_others(threads: FairThreads) -> None:
    async def ask() -> None:
        slow = Slow()
        jobs = [asyncio.ensure_future(threads.run("greedy", slow.work)) for _ in range(10)]
        await slow.until_running(2)
        for _ in range(5):
            assert await threads.run("other", lambda: "quick") == "quick"
        assert slow.count == 2
        slow.end()
        assert await asyncio.gather(*jobs) == ["slow"] * 10
        assert slow.most == 2

    asyncio.run(ask())


def test_who_has_too_many_waiting_is_refused_and_gives_way(threads: FairThreads) -> None:
    async def ask() -> None:
        slow = Slow()
        greedy = [asyncio.ensure_future(threads.run("greedy", slow.work)) for _ in range(14)]
        await slow.until_running(2)
        with pytest.raises(RateLimited):
            await threads.run("greedy", slow.work)
        more = [asyncio.ensure_future(threads.run("second", slow.work)) for _ in range(10)]
        await slow.until_running(2)
        others = [asyncio.ensure_future(threads.run(f"{i}", lambda: "quick")) for i in range(3)]
        await asyncio.sleep(0)
        slow.end()
        assert await asyncio.gather(*others) == ["quick"] * 3
        found = await asyncio.gather(*greedy, *more, return_exceptions=True)
        assert {type(each) for each in found} <= {str, Unavailable, RateLimited}

    asyncio.run(ask())


def test_a_job_that_nobody_waits_for_gives_way_too() -> None:
    threads, slow = FairThreads(1, 2, 2, name="test"), Slow()

    async def ask() -> str:
        running = asyncio.ensure_future(threads.run("first", slow.work))
        await slow.until_running(1)
        waiting = [asyncio.ensure_future(threads.run("greedy", lambda: "quick")) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.gather(waiting[1], return_exceptions=True)
        other = asyncio.ensure_future(threads.run("other", lambda: "other"))
        await asyncio.sleep(0)
        slow.end()
        assert await asyncio.gather(running, waiting[0]) == ["slow", "quick"]
        return await other

    assert asyncio.run(ask()) == "other"
    threads.close()


def test_one_thread_serves_all() -> None:
    threads = FairThreads(1, 10, 10, name="test")

    async def ask() -> list[str]:
        return list(await asyncio.gather(*(threads.run(name, lambda name=name: name) for name in "aab")))  # type: ignore[misc]

    assert asyncio.run(ask()) == ["a", "a", "b"]
    threads.close()
