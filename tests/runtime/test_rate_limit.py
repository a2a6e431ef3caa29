"""Token buckets, against a slow reference in exact arithmetic."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from math import ceil, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import MisuseError, RateLimited
from enc.runtime.rate_limit import RateLimiter, address_key
from tests.core.strategies import examples


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Reference:
    """A plain implementation: counted tokens, and one list in the order of use."""

    def __init__(self, per_s: Fraction, burst: Fraction, max_keys: int) -> None:
        self.per_s, self.burst, self.max_keys = per_s, burst, max_keys
        self.buckets: list[tuple[str, Fraction, Fraction]] = []

    def take(self, key: str, cost: Fraction, now: Fraction) -> int | None:
        """Return None, or the milliseconds to wait."""
        known = [bucket for bucket in self.buckets if bucket[0] == key]
        others = [bucket for bucket in self.buckets if bucket[0] != key]
        _, tokens, since = known[0] if known else (key, self.burst, now)
        tokens = min(self.burst, tokens + (now - since) * self.per_s)
        wait = (min(cost, self.burst) - tokens) / self.per_s
        self.buckets = [*others, (key, tokens - cost if wait <= 0 else tokens, now)][-self.max_keys :]
        return None if wait <= 0 else ceil(wait * 1000)


def waiting(take: Callable[[], None]) -> int | None:
    try:
        take()
    except RateLimited as e:
        return int(e.context["retry_after_ms"])
    return None


# Sums and products of these are exact in a float, so both must agree to the last bit.
rates = st.sampled_from([Fraction(1, 4), Fraction(1), Fraction(8), Fraction(256)])
bursts = st.integers(4, 64).map(lambda n: Fraction(n, 4))
costs = st.integers(0, 80).map(lambda n: Fraction(n, 4))
steps = st.lists(
    st.tuples(st.sampled_from("abcde"), st.one_of(st.just(Fraction(1)), costs), st.integers(0, 2048)), max_size=60
)


@examples()
@given(rates, bursts, st.integers(1, 5), steps)
def test_it_does_what_the_reference_does(
    per_s: Fraction, burst: Fraction, max_keys: int, uses: list[tuple[str, Fraction, int]]
) -> None:
    clock = Clock()
    limiter = RateLimiter(float(per_s), float(burst), clock, max_keys)
    reference = Reference(per_s, burst, max_keys)
    for key, cost, pause in uses:
        clock.now += pause / 1024
        expected = reference.take(key, cost, Fraction(clock.now))
        assert waiting(lambda: limiter.take(key, float(cost))) == expected  # noqa: B023
        assert len(limiter) <= max_keys


@examples()
@given(st.floats(0.01, 1e6), st.integers(1, 500), st.floats(0, 1e7))
def test_a_burst_is_a_burst_at_any_rate_and_time(per_s: float, burst: int, now: float) -> None:
    limiter = RateLimiter(per_s, burst, Clock(now))
    for _ in range(burst):
        limiter.take("a")
    with pytest.raises(RateLimited):
        limiter.take("a")


@examples()
@given(st.floats(0.01, 1e3), st.integers(1, 50), st.lists(st.floats(0, 10), min_size=1, max_size=100))
def test_never_more_than_the_burst_and_the_rate(per_s: float, burst: int, pauses: list[float]) -> None:
    clock = Clock()
    limiter, taken = RateLimiter(per_s, burst, clock), 0
    for pause in pauses:
        clock.now += pause
        taken += waiting(lambda: limiter.take("a")) is None
    assert taken <= burst + (clock.now - 1000) * per_s + 0.001


@examples()
@given(st.floats(0.01, 1e4), st.integers(1, 50), st.integers(1, 200))
def test_who_waits_as_told_is_let_in(per_s: float, burst: int, cost: int) -> None:
    clock = Clock()
    limiter = RateLimiter(per_s, burst, clock)
    limiter.take("a", burst)
    wait = waiting(lambda: limiter.take("a", cost))
    assert wait is not None
    assert wait >= 1
    clock.now += wait / 1000
    limiter.take("a", cost)


def test_a_cost_above_the_burst_is_paid_in_full() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 4, clock)
    limiter.take("a", 100)
    clock.now += 96
    assert waiting(lambda: limiter.take("a")) == 1000
    clock.now += 1
    limiter.take("a")


def test_rounding_costs_nobody_a_token() -> None:
    clock = Clock()
    limiter = RateLimiter(10, 1, clock)
    for _ in range(1000):
        limiter.take("a")
        clock.now += 0.1


def test_what_was_refused_costs_nothing() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 1, clock)
    limiter.take("a")
    for _ in range(50):
        assert waiting(lambda: limiter.take("a")) == 1000
    clock.now += 1
    limiter.take("a")


def test_a_check_says_what_the_last_of_so_many_would_hear_and_takes_nothing() -> None:
    clock = Clock()
    limiter = RateLimiter(2, 4, clock)
    limiter.take("a")
    clock.now += 0.25
    assert [waiting(lambda n=n: limiter.check("a", n)) for n in (3, 4, 5)] == [None, 250, 750]  # type: ignore[misc]
    assert [waiting(lambda: limiter.take("a")) for _ in range(4)] == [None, None, None, 250]
    assert waiting(lambda: limiter.check("new", 4)) is None
    assert len(limiter) == 1


def test_without_a_limit_a_check_passes() -> None:
    RateLimiter(0, 1, Clock()).check("a", 1000)


def test_keys_do_not_share() -> None:
    limiter = RateLimiter(1, 1, Clock())
    limiter.take("a")
    limiter.take(b"a")
    limiter.take("b")


def test_a_clock_that_goes_back_gives_nothing() -> None:
    clock = Clock()
    limiter = RateLimiter(1, 1, clock)
    limiter.take("a")
    clock.now -= 100
    assert waiting(lambda: limiter.take("a")) == 101_000


def test_rate_0_is_no_limit_and_keeps_nothing() -> None:
    def never() -> float:
        raise AssertionError("the clock is not asked")

    limiter = RateLimiter(0, 1, never)
    for i in range(100):
        limiter.take("a", i)
    assert len(limiter) == 0


def test_strangers_do_not_take_memory_and_lock_nobody_out() -> None:
    limiter = RateLimiter(1, 2, Clock(), max_keys=100)
    limiter.take("honest")
    for i in range(10_000):
        limiter.take(f"stranger {i}")
    assert len(limiter) == 100
    limiter.take("honest", 2)


def test_one_who_does_not_stop_is_not_forgotten() -> None:
    limiter = RateLimiter(1, 1, Clock(), max_keys=3)
    limiter.take("greedy")
    for i in range(10):
        limiter.take(f"stranger {i}")
        assert waiting(lambda: limiter.take("greedy")) == 1000


def test_threads_get_no_more_together_than_one() -> None:
    limiter = RateLimiter(1, 500, Clock(), max_keys=2)

    def use(_: int) -> int:
        return sum(waiting(lambda: limiter.take("a")) is None for _ in range(500))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(use, range(4))) == 500


def test_an_update_is_one_step_for_other_threads() -> None:
    """The lock is held while the clock is read, so no thread acts on a bucket that is about to change."""
    held: list[bool] = []

    def clock() -> float:
        held.append(limiter._lock.locked())
        return 0.0

    limiter = RateLimiter(1, 1, clock)
    limiter.take("a")
    assert held == [True]
    assert not limiter._lock.locked()


@pytest.mark.parametrize("cost", [-1, nan, inf, -inf])
def test_a_cost_that_is_none(cost: float) -> None:
    with pytest.raises(MisuseError):
        RateLimiter(1, 1, Clock()).take("a", cost)


@pytest.mark.parametrize(
    ("per_s", "burst", "max_keys"),
    [(-1, 1, 1), (nan, 1, 1), (inf, 1, 1), (1, 0.5, 1), (1, nan, 1), (1, inf, 1), (1, 1, 0)],
)
def test_a_limiter_that_is_none(per_s: float, burst: float, max_keys: int) -> None:
    with pytest.raises(MisuseError):
        RateLimiter(per_s, burst, Clock(), max_keys)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::FFFF:c000:207", "192.0.2.7"),
        ("64:ff9b::192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:0DB8:0001:0002::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", "unknown"),
        ("testclient", "unknown"),
        ("192.0.2.7:80", "unknown"),
        ("x" * 10_000, "unknown"),
    ],
)
def test_what_an_address_is_limited_by(address: str, key: str) -> None:
    assert address_key(address) == key


def test_the_refusal_has_the_message_that_was_given() -> None:
    limiter = RateLimiter(1, 1, Clock(), message="too many heads")
    limiter.take("a")
    with pytest.raises(RateLimited, match="too many heads"):
        limiter.take("a")


def test_work_that_was_done_is_charged_even_into_debt() -> None:
    clock = Clock()
    limiter = RateLimiter(10, 20, clock)
    limiter.charge("a", 50)
    with pytest.raises(RateLimited) as e:
        limiter.take("a")
    assert e.value.context == {"retry_after_ms": 3100}
    clock.now += 3.1
    limiter.take("a")
    limiter.charge("b", 19)
    limiter.take("b")
    with pytest.raises(RateLimited):
        limiter.take("b")


def test_a_charge_is_bounded_in_keys_and_without_a_rate_free() -> None:
    clock = Clock()
    limiter, free = RateLimiter(1, 1, clock, max_keys=2), RateLimiter(0, 1, clock)
    for key in "abc":
        limiter.charge(key, 5)
        free.charge(key, 5)
    assert (len(limiter), len(free)) == (2, 0)
    with pytest.raises(MisuseError):
        limiter.charge("a", -1)
