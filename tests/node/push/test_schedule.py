"""The order of batches: each queue sends one at a time, in order, and slow recipients do not delay quick ones."""

import sys
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from enc.node.push.host_limits import HOST_BURST_MS, HostRates
from enc.node.push.schedule import COPIES, HOST_AHEAD_MS, OVERHEAD, Bounds, QueueHealth, Schedule
from enc.node.store.push_interface import DueBatch

MIB = 1 << 20
NOW = 1_000_000


def due(queue: int, push_seq: int = 1, tries: int = 0, size: int = 100, host: str = "") -> DueBatch:
    return DueBatch(queue, push_seq, bytes(32), f"https://{host or f'h{queue}'}.example/", tries, size)


def taken(schedule: Schedule, now: int = NOW) -> list[int]:
    """Return the queues whose batches may be sent now."""
    found = []
    while (one := schedule.take(now)) is not None:
        found.append(one.queue)
    return found


def offered(schedule: Schedule, *dues: DueBatch, now: int = NOW) -> list[bool]:
    return [schedule.offer(one, now) for one in dues]


def settle(schedule: Schedule, queue: int, *, has_failed: bool = False, took_ms: int = 1) -> None:
    schedule.finish(queue, has_failed=has_failed, took_ms=took_ms)
    schedule.free(queue)


def known(schedule: Schedule, standing: QueueHealth, *queues: int) -> None:
    """Let these queues have been tried before."""
    for queue in queues:
        assert schedule.offer(due(queue), NOW)
        assert taken(schedule) == [queue]
        took = schedule.bounds.slow_ms if standing is QueueHealth.UNKNOWN else 1
        settle(schedule, queue, has_failed=standing is QueueHealth.FAILING, took_ms=took)
        assert schedule.health(due(queue)) is standing


def test_whoever_came_first_goes_first() -> None:
    schedule = Schedule(Bounds())
    assert all(offered(schedule, *map(due, (5, 3, 9, 1))))
    assert taken(schedule) == [5, 3, 9, 1]
    assert (schedule.waiting, schedule.calling) == (0, 4)


def test_a_queue_has_one_batch_on_its_way_until_its_outcome_is_durable() -> None:
    schedule = Schedule(Bounds())
    assert offered(schedule, due(1), due(1), due(1, 2)) == [True, False, False]
    assert taken(schedule) == [1]
    assert offered(schedule, due(1, 2)) == [False]
    schedule.finish(1, has_failed=False, took_ms=1)
    assert schedule.calling == 0
    assert offered(schedule, due(1, 1), due(1, 2)) == [False, False]
    schedule.free(1)
    assert offered(schedule, due(1, 2)) == [True]


def test_a_try_that_came_to_nothing_frees_its_place_and_says_nothing_of_its_queue() -> None:
    schedule = Schedule(Bounds())
    schedule.offer(due(1), NOW)
    assert taken(schedule) == [1]
    schedule.free(1)
    assert schedule.calling == 0
    assert schedule.health(due(1)) is QueueHealth.UNKNOWN
    assert offered(schedule, due(1)) == [True]


def test_how_a_queue_stands_is_how_its_last_try_went() -> None:
    schedule = Schedule(Bounds(slow_ms=100))
    one = due(1)
    assert schedule.health(one) is QueueHealth.UNKNOWN
    assert schedule.health(due(1, tries=1)) is QueueHealth.FAILING
    for has_failed, took_ms, now in (
        (False, 99, QueueHealth.QUICK),
        (False, 100, QueueHealth.UNKNOWN),
        (True, 1, QueueHealth.FAILING),
        (True, 100, QueueHealth.FAILING),
        (False, 1, QueueHealth.QUICK),
    ):
        before = schedule.health(one)
        schedule.offer(one, NOW)
        assert taken(schedule) == [1]
        assert schedule.finish(1, has_failed=has_failed, took_ms=took_ms) == (before, now)
        schedule.free(1)
        assert schedule.health(due(1, tries=1)) is now


def test_of_many_queues_the_one_that_was_tried_longest_ago_is_forgotten() -> None:
    schedule = Schedule(Bounds(known=3))
    known(schedule, QueueHealth.FAILING, 1, 2, 3)
    known(schedule, QueueHealth.QUICK, 1)
    known(schedule, QueueHealth.FAILING, 4)
    found = [schedule.health(due(queue)) for queue in (1, 2, 3, 4)]
    assert found == [QueueHealth.QUICK, QueueHealth.UNKNOWN, QueueHealth.FAILING, QueueHealth.FAILING]


def test_what_was_failing_before_a_restart_is_failing_after_it() -> None:
    schedule = Schedule(Bounds(connections=16, known=100))
    schedule.remember_failing(range(1, 1000))
    assert schedule.health(due(1)) is schedule.health(due(100)) is QueueHealth.FAILING
    assert schedule.health(due(101)) is QueueHealth.UNKNOWN
    offered(schedule, *map(due, range(1, 50)))
    assert len(taken(schedule)) == 4


# Shares


def filled(standing: QueueHealth, bounds: Bounds, size: int = 100) -> int:
    """Return how many queues of one health are in flight when no more may be sent."""
    schedule = Schedule(bounds)
    queues = range(1, 101)
    known(schedule, standing, *queues)
    assert all(offered(schedule, *(due(queue, size=size) for queue in queues)))
    return len(taken(schedule))


@pytest.mark.parametrize(
    ("standing", "most"), [(QueueHealth.FAILING, 4), (QueueHealth.UNKNOWN, 12), (QueueHealth.QUICK, 16)]
)
def test_shares_of_connections(standing: QueueHealth, most: int) -> None:
    assert filled(standing, Bounds(connections=16)) == most


@pytest.mark.parametrize(
    ("standing", "most"), [(QueueHealth.FAILING, 2), (QueueHealth.UNKNOWN, 7), (QueueHealth.QUICK, 10)]
)
def test_shares_of_memory(standing: QueueHealth, most: int) -> None:
    assert filled(standing, Bounds(unsent_bytes=128 * MIB), 4 * MIB) == most


def test_a_connection_takes_memory_however_small_its_body() -> None:
    assert filled(QueueHealth.QUICK, Bounds(unsent_bytes=10 * (OVERHEAD + COPIES)), 1) == 10


def test_the_largest_batch_goes_even_if_it_is_larger_than_its_share() -> None:
    for standing in QueueHealth:
        assert filled(standing, Bounds(unsent_bytes=1 * MIB), 1000 * MIB) == [4, 3, 1][standing]


def test_failing_and_unknown_queues_share_three_quarters() -> None:
    schedule = Schedule(Bounds(connections=16))
    known(schedule, QueueHealth.FAILING, *range(1, 9))
    offered(schedule, *map(due, range(1, 9)), *map(due, range(101, 120)))
    assert taken(schedule) == [1, 2, 3, 4, *range(101, 109)]


def test_queues_that_answer_have_room_whatever_hangs() -> None:
    schedule = Schedule(Bounds(connections=16))
    known(schedule, QueueHealth.QUICK, *range(1, 5))
    offered(schedule, *(due(100 + i, tries=i % 2) for i in range(1000)))
    assert len(taken(schedule)) == 12
    offered(schedule, *map(due, range(1, 5)))
    assert taken(schedule) == [1, 2, 3, 4]


def test_a_place_that_is_given_back_is_taken_again() -> None:
    schedule = Schedule(Bounds(connections=4))
    offered(schedule, *(due(queue, tries=1) for queue in range(5)))
    assert taken(schedule) == [0]
    schedule.finish(0, has_failed=True, took_ms=1)
    assert taken(schedule) == [1]


def test_places_in_line_are_shared_alike() -> None:
    schedule = Schedule(Bounds(waiting=16))
    known(schedule, QueueHealth.QUICK, *range(100, 120))
    assert sum(offered(schedule, *(due(queue, tries=1) for queue in range(20)))) == 4
    assert sum(offered(schedule, *(due(queue) for queue in range(20, 40)))) == 8
    assert sum(offered(schedule, *(due(queue) for queue in range(100, 120)))) == 4
    assert schedule.waiting == 16


def test_outcomes_that_are_not_durable_stop_what_is_new() -> None:
    schedule = Schedule(Bounds(waiting=8))
    for queue in range(8):
        known(schedule, QueueHealth.QUICK, queue)
    for queue in range(8):
        offered(schedule, due(queue))
        assert taken(schedule) == [queue]
        schedule.finish(queue, has_failed=False, took_ms=1)
    assert offered(schedule, due(100)) == [True]
    assert taken(schedule) == []
    assert schedule.next_at() is None
    schedule.free(3)
    assert taken(schedule) == [100]


# Hosts


def test_a_host_gets_so_many_tries_a_second() -> None:
    schedule = Schedule(Bounds(host=HostRates(requests_per_s=10)))
    found: dict[int, int] = {}
    for now in range(NOW, NOW + 5000, 50):
        offered(schedule, *(due(queue, host="one") for queue in range(200) if queue not in found), now=now)
        for queue in taken(schedule, now):
            found[queue] = now
            schedule.finish(queue, has_failed=False, took_ms=1)
            schedule.free(queue)
    for start in range(NOW, NOW + 5000, 500):
        within = sum(start <= at < start + 1000 for at in found.values())
        assert within <= 10 + 10 * HOST_BURST_MS // 1000
    assert len(found) == pytest.approx(10 * 5 + 10, abs=2)


def test_a_host_with_many_endpoints_keeps_no_other_waiting() -> None:
    schedule = Schedule(Bounds(host=HostRates(requests_per_s=10), waiting=64))
    known(schedule, QueueHealth.QUICK, *range(1, 11))
    offered(schedule, *(due(queue, host="one") for queue in range(1000, 3000)))
    assert schedule.waiting <= (HOST_BURST_MS + HOST_AHEAD_MS) // 100 + 1
    offered(schedule, *map(due, range(1, 11)))
    assert set(range(1, 11)) <= set(taken(schedule))


def test_the_names_of_hosts_are_one_whatever_their_case_and_port() -> None:
    schedule = Schedule(Bounds(host=HostRates(requests_per_s=0.001)))
    urls = [f"https://{name}/x{i}" for i, name in enumerate(("a.example", "A.example:8443", "a.EXAMPLE:443"))]
    found = [schedule.offer(DueBatch(i, 1, bytes(32), url, 0, 1), NOW) for i, url in enumerate(urls)]
    assert found == [True, False, False]


def test_when_a_host_may_be_called_again() -> None:
    schedule = Schedule(Bounds(host=HostRates(requests_per_s=2)))
    assert schedule.next_at() is None
    offered(schedule, *(due(queue, host="one") for queue in range(4)))
    assert taken(schedule) == [0, 1, 2]
    assert schedule.next_at() == NOW + 500
    assert taken(schedule, NOW + 499) == []
    assert taken(schedule, NOW + 500) == [3]


def test_hosts_are_forgotten_once_they_may_be_called() -> None:
    schedule = Schedule(Bounds(host=HostRates(requests_per_s=1000), known=10))
    for queue in range(1000):
        now = NOW + queue * 10
        offered(schedule, due(queue), now=now)
        taken(schedule, now)
        settle(schedule, queue)
    assert len(schedule._hosts) <= 12


# Retries


def test_the_time_to_the_next_try_doubles_up_to_a_limit() -> None:
    schedule = Schedule(Bounds(tries=12))
    found = [schedule.retry_at(due(1, tries=tries), NOW, 0) for tries in range(12)]
    waits = [at - NOW for at in found if at is not None]
    assert waits == [1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 300000, 300000]
    assert found[11] is None


def test_the_tenth_try_is_the_last() -> None:
    schedule = Schedule(Bounds())
    assert schedule.retry_at(due(1, tries=8), NOW, 0.5) is not None
    assert schedule.retry_at(due(1, tries=9), NOW, 0.5) is None
    assert schedule.retry_at(due(1, tries=50), NOW, 0.5) is None


@given(st.integers(0, 8), st.floats(0, 1, exclude_max=True))
def test_jitter_takes_at_most_a_fifth(tries: int, jitter: float) -> None:
    schedule = Schedule(Bounds())
    latest, found = schedule.retry_at(due(1, tries=tries), NOW, 0), schedule.retry_at(due(1, tries=tries), NOW, jitter)
    assert latest is not None
    assert found is not None
    assert (latest - NOW) * 4 // 5 <= found - NOW <= latest - NOW


# Everything together


class Waiting(Struct):
    """A batch in the store."""

    push_seq: int
    next_try: int
    tries: int = 0


class Model(RuleBasedStateMachine):
    """A store, endpoints of all kinds, and a schedule between them."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds = Bounds(
            connections=8,
            unsent_bytes=64 * OVERHEAD,
            waiting=32,
            known=16,
            tries=3,
            host=HostRates(requests_per_s=50.0),
        )
        self.schedule = Schedule(self.bounds)
        self.now = NOW
        self.store: dict[int, list[Waiting]] = defaultdict(list)
        self.made: dict[int, int] = defaultdict(int)
        self.flying: dict[int, DueBatch] = {}
        self.telling: dict[int, DueBatch] = {}
        self.fresh: dict[int, list[int]] = defaultdict(list)
        """The first tries of each queue's batches, in the order in which they were sent."""

    @rule(queue=st.integers(1, 40), count=st.integers(1, 3))
    def make(self, queue: int, count: int) -> None:
        for _ in range(count):
            self.made[queue] += 1
            self.store[queue].append(Waiting(self.made[queue], self.now))

    @rule(ms=st.integers(0, 2000))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(size=st.integers(0, 20 * OVERHEAD))
    def look(self, size: int) -> None:
        for queue in sorted(self.store):
            ready = [batch for batch in self.store[queue] if batch.next_try <= self.now]
            if ready:
                first = min(ready, key=lambda batch: (batch.next_try, batch.push_seq))
                host = f"host{queue % 7}"
                self.schedule.offer(due(queue, first.push_seq, first.tries, size, host), self.now)

    @rule()
    def send(self) -> None:
        while (one := self.schedule.take(self.now)) is not None:
            assert one.queue not in self.flying
            assert one.queue not in self.telling
            batch = next(batch for batch in self.store[one.queue] if batch.push_seq == one.push_seq)
            assert batch.next_try <= self.now
            if not batch.tries:
                self.fresh[one.queue].append(one.push_seq)
            self.flying[one.queue] = one

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), has_failed=st.booleans(), took_ms=st.sampled_from([1, 10_000]), jitter=st.floats(0, 0.99))
    def answer(self, data: st.DataObject, has_failed: bool, took_ms: int, jitter: float) -> None:
        queue = data.draw(st.sampled_from(sorted(self.flying)))
        one = self.flying.pop(queue)
        retry_at = self.schedule.retry_at(one, self.now, jitter) if has_failed else None
        assert retry_at is None or retry_at > self.now
        self.schedule.finish(queue, has_failed=has_failed, took_ms=took_ms)
        batch = next(batch for batch in self.store[queue] if batch.push_seq == one.push_seq)
        if retry_at is None:
            self.store[queue].remove(batch)
        else:
            batch.tries, batch.next_try = batch.tries + 1, retry_at
        self.telling[queue] = one

    @rule()
    def keep(self) -> None:
        for queue in self.telling:
            self.schedule.free(queue)
        self.telling.clear()

    @invariant()
    def first_tries_are_in_order(self) -> None:
        assert all(pushed == sorted(set(pushed)) for pushed in self.fresh.values())

    @invariant()
    def shares_hold(self) -> None:
        by_standing = [0, 0, 0]
        for flight in self.schedule._flights.values():
            by_standing[flight.health] += not flight.is_over
        assert sum(by_standing) == len(self.flying) == self.schedule.calling <= 8
        assert by_standing[1] + by_standing[2] <= 6
        assert by_standing[2] <= 2
        assert self.schedule._bytes.used <= self.bounds.unsent_bytes

    @invariant()
    def it_holds_no_more_than_it_may(self) -> None:
        schedule = self.schedule
        assert schedule.waiting == len(schedule._in_line) == sum(map(len, schedule._lines)) <= 32
        assert len(schedule._flights) == len(self.flying) + len(self.telling) <= 32
        assert len(schedule._known) <= 16
        assert len(schedule._hosts) <= 32

    def teardown(self) -> None:
        """Let all endpoints answer; then every batch must be delivered."""
        for _ in range(10_000):
            self.keep()
            if not any(self.store.values()):
                break
            self.look(100)
            self.send()
            for queue, one in list(self.flying.items()):
                del self.flying[queue]
                self.schedule.finish(queue, has_failed=False, took_ms=1)
                self.store[queue] = [batch for batch in self.store[queue] if batch.push_seq != one.push_seq]
                self.telling[queue] = one
            self.now += 1000
        assert not any(self.store.values())
        assert self.schedule.calling == self.schedule._bytes.used == self.schedule.waiting == 0


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2000), st.integers(1, 40), st.randoms(use_true_random=False))
def test_live_queues_go_at_once_whatever_the_number_of_dead_ones(dead: int, live: int, random: object) -> None:
    """The dead queues hang for ever: none of their tries ends."""
    schedule = Schedule(Bounds(connections=64))
    known(schedule, QueueHealth.QUICK, *range(live))
    queues = [due(10_000 + i, tries=i % 3) for i in range(dead)] + [due(queue) for queue in range(live)]
    random.shuffle(queues)  # type: ignore[attr-defined]
    went: set[int] = set()
    for turn in range(-(-live // 16)):
        offered(schedule, *queues, now=NOW + turn)
        for queue in taken(schedule, NOW + turn):
            if queue < 10_000:
                went.add(queue)
                settle(schedule, queue)
        queues = [one for one in queues if one.queue not in went]
    assert went == set(range(live))


def test_a_thousand_endpoints_half_of_them_dead_and_a_hundred_thousand_batches_take_no_memory() -> None:
    """Memory grows with the number of queues, up to bounds, not with the waiting batches or with time."""
    schedule = Schedule(Bounds(max_retry_ms=4000))
    left = {queue: [Waiting(push_seq, NOW) for push_seq in range(1, 101)] for queue in range(1000)}
    now, sent, largest = NOW, 0, 0
    while any(left[queue] for queue in range(0, 1000, 2)):
        for queue, batches in left.items():
            ready = [batch for batch in batches[:8] if batch.next_try <= now]
            if ready:
                schedule.offer(due(queue, ready[0].push_seq, ready[0].tries), now)
        while (one := schedule.take(now)) is not None:
            is_dead = one.queue % 2 == 1
            batch = next(batch for batch in left[one.queue] if batch.push_seq == one.push_seq)
            batch.tries += 1
            batch.next_try = schedule.retry_at(one, now, 0.5) or 0
            if not is_dead or not batch.next_try:
                left[one.queue].remove(batch)
            settle(schedule, one.queue, has_failed=is_dead)
            sent += not is_dead
        largest = max(largest, held(schedule))
        now += 250
    assert sent == 50_000
    assert largest < 1 * MIB


def held(schedule: Schedule) -> int:
    """Return the size of an object in bytes, with everything that it refers to."""
    lines = [entry for line in schedule._lines for entry in line]
    parts: list[object] = [
        schedule._known,
        schedule._in_line,
        schedule._flights,
        schedule._hosts._names._clocks._until,
        schedule._hosts._names._count,
        *schedule._lines,
        *lines,
    ]
    parts += [part for entry in lines for part in (entry[2], entry[2].url)] + list(schedule._flights.values())
    return sum(map(sys.getsizeof, parts))
