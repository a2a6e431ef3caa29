"""Reads in turns and by what they cost, with threads that the test runs by hand."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from enc.core.errors import RateLimited, Unavailable
from enc.node.api import read_pool
from enc.node.api.read_pool import STEP_S, TOKEN_S, UNPROVED_TOKEN_S, ReadPool
from enc.node.read.steps import Steps, finish
from enc.runtime.rate_limit import RateLimiter

pytestmark = pytest.mark.anyio
ALICE, BOB = b"a" * 32, b"b" * 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Hands(Executor):
    """An executor that runs work when the test says so."""

    def __init__(self) -> None:
        self.work: list[Callable[[], Any]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.work.append(lambda: work(*args, **kwargs))
        return Future()

    def turn(self) -> None:
        self.work.pop(0)()


class Pool:
    """A read pool, whose clocks only its reads advance, and a log of the steps that ran."""

    def __init__(self) -> None:
        self.now, self.hands, self.ran = 0.0, Hands(), list[str]()
        self.identities = RateLimiter(100, 400, lambda: 0)
        self.addresses = RateLimiter(500, 2000, lambda: 0)
        self.pool = ReadPool(
            None,  # type: ignore[arg-type]
            self.hands,
            self.identities,
            self.addresses,
            clock=lambda: self.now,
            cpu_clock=lambda: self.now,
        )

    def read(self, name: str, steps: int, seconds: float, identity: bytes | None = None) -> Steps[str]:
        if identity is not None:
            yield identity
        for number in range(steps):
            self.now += seconds
            self.ran.append(name)
            if number < steps - 1:
                yield None
        return name

    def ask(self, address: str, read: Steps[str]) -> "asyncio.Task[str]":
        return asyncio.get_running_loop().create_task(self.pool.run_steps(address, read))

    async def all(self) -> None:
        await asyncio.sleep(0)
        while self.hands.work:
            self.hands.turn()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_read_is_answered() -> None:
    pool = Pool()
    found = pool.ask("a", pool.read("x", 3, 0.001))
    await pool.all()
    assert await found == "x"
    assert pool.ran == ["x"] * 3


async def test_work_without_steps_is_answered_too() -> None:
    pool = Pool()
    found = asyncio.get_running_loop().create_task(pool.pool.run("a", lambda n: n + 1, 1))
    await pool.all()
    assert await found == 2


async def test_an_error_is_passed_on() -> None:
    pool = Pool()

    def fails() -> Steps[str]:
        yield None
        raise Unavailable("no disk")

    found = pool.ask("a", fails())
    await pool.all()
    with pytest.raises(Unavailable, match="no disk"):
        await found


async def test_a_cheap_read_waits_for_one_step_of_a_long_one() -> None:
    pool = Pool()
    for _ in range(20):
        pool.ask("a", pool.read("long", 1000, 0.005))
    await asyncio.sleep(0)
    for _ in range(10):
        pool.hands.turn()
    before = pool.now
    cheap = pool.ask("b", pool.read("cheap", 1, 0.001))
    await asyncio.sleep(0)
    while "cheap" not in pool.ran:
        pool.hands.turn()
    assert pool.now - before <= STEP_S + 0.005 + 0.001
    await asyncio.sleep(0)
    assert await cheap == "cheap"


async def test_a_step_ends_at_the_first_pause_after_its_time() -> None:
    pool = Pool()
    pool.ask("a", pool.read("long", 100, STEP_S / 4))
    await asyncio.sleep(0)
    pool.hands.turn()
    assert pool.ran == ["long"] * 4
    pool.hands.turn()
    assert pool.ran == ["long"] * 8


async def test_an_identity_gets_its_share_behind_the_same_address() -> None:
    pool = Pool()
    for _ in range(50):
        pool.ask("a", pool.read("long", 100, 0.01, ALICE))
    await asyncio.sleep(0)
    for _ in range(100):  # each is opened, and waits for its identity's turn
        pool.hands.turn()
    before = pool.now
    pool.ask("a", pool.read("cheap", 1, 0.001, BOB))
    await asyncio.sleep(0)
    while "cheap" not in pool.ran:
        pool.hands.turn()
    assert pool.now - before <= 3 * STEP_S


async def test_reads_of_one_identity_run_one_after_the_other() -> None:
    """Otherwise each would keep its results so far in memory, and all of them would end late."""
    pool = Pool()
    for name in "xyz":
        pool.ask("a", pool.read(name, 50, 0.005))
    await pool.all()
    assert "".join(pool.ran) == "x" * 50 + "y" * 50 + "z" * 50


# Rates


async def tokens_left(limiter: RateLimiter, key: Any) -> int:
    """Return how many tokens a key has left."""
    left = 0
    while True:
        try:
            limiter.take(key)
        except RateLimited:
            return left
        left += 1


async def test_a_cheap_read_costs_the_one_token_that_was_taken_for_it() -> None:
    pool = Pool()
    pool.ask("a", pool.read("x", 1, TOKEN_S * 0.9, ALICE))
    await pool.all()
    assert await tokens_left(pool.identities, ALICE) == 400
    assert await tokens_left(pool.addresses, "a") == 2000


async def test_a_long_read_costs_a_token_for_each_part_of_its_time() -> None:
    pool = Pool()
    pool.ask("a", pool.read("x", 100, TOKEN_S, ALICE))
    await pool.all()
    assert await tokens_left(pool.identities, ALICE) == 301
    assert await tokens_left(pool.addresses, "a") == 1901


async def test_who_owes_is_told_when_to_come_back() -> None:
    pool = Pool()
    pool.ask("a", pool.read("x", 1000, TOKEN_S, ALICE))
    await pool.all()
    with pytest.raises(RateLimited) as e:
        pool.identities.take(ALICE)
    assert e.value.context == {"retry_after_ms": 6000}  # 600 tokens at 100 a second


async def test_an_identity_that_is_not_proved_is_not_charged() -> None:
    pool = Pool()
    pool.ask("a", pool.read("x", 10, TOKEN_S))
    await pool.all()
    assert len(pool.identities) == 0


async def test_an_address_pays_more_as_long_as_no_identity_is_proved() -> None:
    """At an address's default rate, these reads may use half a core, as those of one identity."""
    pool = Pool()
    pool.ask("a", pool.read("x", 100, UNPROVED_TOKEN_S))
    await pool.all()
    assert await tokens_left(pool.addresses, "a") == 1901


async def test_work_that_the_node_begins_itself_costs_what_a_proved_read_does() -> None:
    pool = Pool()

    def work() -> None:
        pool.now += 10 * TOKEN_S

    done = asyncio.get_running_loop().create_task(pool.pool.run_own("a", work))
    await pool.all()
    await done
    assert await tokens_left(pool.addresses, "a") == 1991


# Bounds


async def test_an_address_that_fills_the_queue_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_pool, "MAX_WAITING_READS", 4)
    pool = Pool()
    tasks = [pool.ask("a", pool.read("x", 1, 0.001)) for _ in range(4)]
    await asyncio.sleep(0)
    other = pool.ask("b", pool.read("other", 1, 0.001))
    await pool.all()
    assert await other == "other"
    with pytest.raises(Unavailable, match="too many requests are waiting"):
        await tasks[3]


async def test_an_address_has_a_bounded_number_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_pool, "MAX_READS_PER_ADDRESS", 2)
    pool = Pool()
    tasks = [pool.ask("a", pool.read("x", 1, 0.001)) for _ in range(3)]
    await asyncio.sleep(0)
    await pool.all()
    with pytest.raises(RateLimited, match="too many requests of this sender"):
        await tasks[2]


async def test_the_number_of_long_reads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds what it found until then. Short ones are not affected."""
    monkeypatch.setattr(read_pool, "MAX_LONG_READS", 2)
    pool = Pool()
    tasks = [pool.ask(name, pool.read(name, 100, 0.01)) for name in "abc"]
    short = pool.ask("d", pool.read("d", 1, 0.01))
    await asyncio.sleep(0)
    await pool.all()
    with pytest.raises(Unavailable, match="too many long requests"):
        await tasks[2]
    assert [await tasks[0], await tasks[1], await short] == ["a", "b", "d"]
    again = pool.ask("c", pool.read("c", 100, 0.01))
    await asyncio.sleep(0)
    await pool.all()
    assert await again == "c"


@pytest.mark.parametrize("identities", [False, True])
async def test_the_long_reads_of_one_address_keep_no_other_s_out(
    monkeypatch: pytest.MonkeyPatch, identities: bool
) -> None:
    monkeypatch.setattr(read_pool, "MAX_LONG_READS", 4)
    pool = Pool()
    many = [pool.ask("a", pool.read(f"a{i}", 100, 0.01, bytes([i]) * 32 if identities else None)) for i in range(8)]
    await asyncio.sleep(0)
    for _ in range(40):
        pool.hands.turn()
    others = [pool.ask("b", pool.read("b", 10, 0.01, BOB)), pool.ask("c", pool.read("c", 10, 0.01, ALICE))]
    await pool.all()
    assert [await other for other in others] == ["b", "c"]
    found = await asyncio.gather(*many, return_exceptions=True)
    assert "a0" in found
    assert {type(each) for each in found} <= {str, Unavailable}
    assert not len(pool.pool._long)


async def test_a_long_read_that_is_ended_frees_what_it_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_pool, "MAX_LONG_READS", 2)
    pool, freed = Pool(), list[str]()

    def read(name: str) -> Steps[str]:
        try:
            return (yield from pool.read(name, 100, 0.01, name.encode() * 16))
        finally:
            freed.append(name)

    many = [pool.ask("a", read(name)) for name in ("a1", "a2")]
    other = pool.ask("b", read("b1"))
    await asyncio.sleep(0)
    while not freed:
        pool.hands.turn()
    assert freed == ["a2"]
    await pool.all()
    with pytest.raises(Unavailable, match="too many long requests"):
        await many[1]
    assert [await many[0], await other] == ["a1", "b1"]


async def test_a_read_that_nobody_waits_for_is_dropped() -> None:
    pool = Pool()
    task = pool.ask("a", pool.read("x", 100, STEP_S / 2))
    await asyncio.sleep(0)
    pool.hands.turn()
    task.cancel()
    await pool.all()
    assert len(pool.ran) == 2
    assert not len(pool.pool._long)


def test_steps_can_be_run_at_once() -> None:
    assert finish(Pool().read("x", 5, 1, ALICE)) == "x"
