"""Turns by measured cost: counted work, no clock."""

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from enc.core.errors import MisuseError, RateLimited, Unavailable
from enc.runtime.fair_queue import LEAST_COST, FairQueue, Sender, Turn

A, B, C = ("a",), ("b",), ("c",)


def serve(queue: FairQueue[float], times: int) -> list[Sender]:
    """Serve jobs one after the other; each job is its own cost. Return their senders."""
    served = list[Sender]()
    for _ in range(times):
        turn = queue.take()
        if turn is None:
            break
        served.append(turn.sender)
        queue.finish(turn, turn.item)
    return served


def filled(jobs: Iterable[tuple[Sender, float]], *, levels: int = 1) -> FairQueue[float]:
    queue = FairQueue[float](10_000, 10_000, levels=levels)
    for sender, cost in jobs:
        assert queue.put(sender, cost) is None
    return queue


def test_an_empty_queue_has_no_turn() -> None:
    queue = FairQueue[float](1, 1)
    assert (queue.take(), len(queue), queue.senders) == (None, 0, 0)


def test_the_jobs_of_one_sender_keep_their_order() -> None:
    queue = FairQueue[str](10, 10)
    for name in "abc":
        queue.put(A, name)
    taken = [queue.take() for _ in range(3)]
    assert [turn.item for turn in taken if turn is not None] == ["a", "b", "c"]


def test_equal_costs_are_served_by_turns() -> None:
    queue = filled([(A, 1)] * 4 + [(B, 1)] * 4)
    assert serve(queue, 8) == [A, B] * 4


def test_a_cheap_job_waits_for_one_expensive_job_of_another_at_most() -> None:
    queue = filled([(A, 100)] * 50)
    serve(queue, 3)
    for _ in range(20):
        queue.put(B, 1)
        assert serve(queue, 1) == [B]
        serve(queue, 1)


def test_expensive_jobs_get_no_more_work_done_than_cheap_ones() -> None:
    queue = filled([(A, 10)] * 100 + [(B, 1)] * 1000)
    count = Counter(serve(queue, 550))
    assert abs(count[A] * 10 - count[B]) <= 20


def test_the_cost_of_a_job_counts_when_its_sender_comes_back() -> None:
    queue = filled([(A, 10), (B, 1), (B, 1), (B, 1)])
    assert serve(queue, 1) == [A]
    queue.put(A, 10)  # the queue of this sender was empty meanwhile
    assert serve(queue, 3) == [B, B, B]


def test_a_sender_has_no_credit_from_before() -> None:
    queue = filled([(A, 1)] * 100)
    serve(queue, 50)
    for _ in range(50):
        queue.put(B, 1)
    assert Counter(serve(queue, 20))[A] >= 9


def test_a_sender_that_was_in_debt_has_no_credit_later() -> None:
    queue = filled([(B, 1000), *[(A, 1)] * 9000])
    serve(queue, 1900)
    for _ in range(5000):
        queue.put(B, 1)
    first = Counter(serve(queue, 4000))
    assert first[A] >= 1900


@pytest.mark.parametrize("busy", [1, 2, 3])
def test_a_sender_of_cheap_jobs_waits_for_one_job_of_each_other_at_most(busy: int) -> None:
    queue = filled([((number,), 20) for number in range(busy) for _ in range(1000)])
    serve(queue, busy)
    for _ in range(300):
        queue.put(B, 2)
        assert B in serve(queue, busy + 1)
        serve(queue, 1)


def test_new_senders_cannot_keep_an_expensive_one_from_its_turn() -> None:
    queue = filled([(A, 50), (A, 50), (B, 1)])
    served = serve(queue, 2)[1:]
    for number in range(1000):
        queue.put((number,), 1)
        served += serve(queue, 1)
        if A in served:
            break
    assert 50 <= served.index(A) <= 250


def test_a_sender_whose_job_runs_comes_after_others() -> None:
    """The cost of a running job is not known yet: the cost of the last one is assumed."""
    queue = filled([(A, 10)] * 5)
    serve(queue, 1)
    first = queue.take()
    queue.put(B, 1)
    second = queue.take()
    assert first is not None
    assert second is not None
    assert (first.sender, second.sender) == (A, B)


def test_an_assumed_cost_is_corrected() -> None:
    queue = filled([(A, 1000), *[(A, 1)] * 20, *[(B, 1)] * 3000])
    serve(queue, 2010)
    assert Counter(serve(queue, 20)) == {A: 10, B: 10}


def test_no_job_is_free() -> None:
    queue = filled([(A, 0)] * 100 + [(B, LEAST_COST)] * 100)
    assert Counter(serve(queue, 100)) == {A: 50, B: 50}


# Levels


def test_an_address_shares_its_turns_among_its_identities() -> None:
    jobs: list[tuple[Sender, float]] = [(("a", number), 1.0) for number in range(100)]
    queue = filled([*jobs, *[(("b", 0), 1.0)] * 50, *[(("a", 0), 1.0)] * 50], levels=2)
    served = serve(queue, 100)
    assert Counter(address for address, _ in served) == {"a": 50, "b": 50}
    assert len({sender for sender in served if sender[0] == "a"}) == 50


def test_an_identity_behind_a_busy_address_waits_for_its_share() -> None:
    queue = filled([(("a", 1), 10.0)] * 100, levels=2)
    serve(queue, 10)
    queue.put(("a", 2), 1.0)
    assert serve(queue, 1) == [("a", 2)]


def test_a_sender_has_as_many_keys_as_the_queue_has_levels() -> None:
    with pytest.raises(MisuseError):
        FairQueue[int](1, 1, levels=2).put(A, 1)
    with pytest.raises(MisuseError):
        FairQueue[int](0, 1)


# Jobs in steps


def test_a_job_that_was_put_back_is_before_its_senders_fresh_jobs() -> None:
    queue = FairQueue[str](10, 10)
    queue.put(A, "long")
    queue.put(A, "next")
    turn = queue.take()
    assert turn is not None
    queue.put_back(A, "rest of long")
    queue.finish(turn, 1)
    rest = [queue.take() for _ in range(2)]
    assert [turn.item for turn in rest if turn] == ["rest of long", "next"]


def test_a_long_job_in_steps_lets_others_in_between() -> None:
    queue = filled([(A, 1)])
    served = list[Sender]()
    for number in range(10):
        if number == 4:
            queue.put(B, 1)
        turn = queue.take()
        assert turn is not None
        served.append(turn.sender)
        queue.finish(turn, 1)
        if turn.sender == A:
            queue.put_back(A, 1)
    assert served.index(B) in (4, 5)
    assert Counter(served) == {A: 9, B: 1}


def test_a_job_that_was_put_back_is_always_accepted() -> None:
    queue = FairQueue[str](1, 1)
    queue.put(A, "long")
    turn = queue.take()
    assert turn is not None
    queue.put(B, "other")
    queue.put_back(A, "rest")
    queue.finish(turn, 1)
    assert len(queue) == 2
    with pytest.raises(Unavailable):
        queue.put(C, "no room")


def test_a_job_is_moved_to_an_identity_and_can_still_be_displaced() -> None:
    queue = FairQueue[str](3, 3, levels=2)
    for name in ("a1", "a2", "a3"):
        queue.put(("a", None), name)
    for _ in range(3):
        turn = queue.take()
        assert turn is not None
        queue.move(("a", turn.item), turn.item)
        queue.finish(turn, 1)
    assert len(queue) == 3
    assert queue.put(("b", None), "b1") in ("a1", "a2", "a3")


# Bounds


def test_a_sender_has_a_bounded_number_of_jobs() -> None:
    queue = FairQueue[int](10, 3)
    for number in range(3):
        queue.put(A, number)
    with pytest.raises(RateLimited, match="too many requests of this sender are waiting") as e:
        queue.put(A, 3)
    assert e.value.context == {"retry_after_ms": 1000}
    queue.put(B, 0)
    assert len(queue) == 4


def test_the_bound_of_an_address_covers_all_its_identities() -> None:
    queue = FairQueue[int](10, 3, levels=2)
    for number in range(3):
        queue.put(("a", number), 0)
    with pytest.raises(RateLimited):
        queue.put(("a", 9), 0)
    assert queue.put(("b", 9), 0) is None


def test_a_full_queue_gives_a_newcomer_a_place_of_the_largest_sender() -> None:
    queue = FairQueue[str](6, 4)
    for name in ("a1", "a2", "a3", "a4"):
        queue.put(A, name)
    queue.put(B, "b1")
    queue.put(B, "b2")
    assert queue.put(C, "c1") == "a4"
    assert queue.put(C, "c2") == "a3"
    with pytest.raises(Unavailable, match="too many requests are waiting") as e:
        queue.put(C, "c3")  # now everyone has two
    assert e.value.context == {"retry_after_ms": 1000}
    left = [turn.item for _ in range(6) if (turn := queue.take()) is not None]
    assert sorted(left) == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_the_largest_identity_of_the_largest_address_gives_up_a_place() -> None:
    queue = FairQueue[str](4, 4, levels=2)
    queue.put(("a", 1), "a1")
    for name in ("x", "y", "z"):
        queue.put(("a", 2), name)
    assert queue.put(("b", 1), "b1") == "z"


def test_a_rejected_sender_is_not_remembered() -> None:
    queue = FairQueue[int](1, 1)
    queue.put(A, 1)
    for number in range(100):
        with pytest.raises(Unavailable):
            queue.put((number,), 1)
    assert queue.senders == 1


def test_an_idle_queue_remembers_nobody() -> None:
    queue = filled([((number,), 1 + number % 7) for number in range(100)])
    serve(queue, 100)
    assert (len(queue), queue.senders) == (0, 0)


def test_senders_without_jobs_are_forgotten_while_others_wait() -> None:
    queue, random = filled([(A, 1)] * 5000), Random(1)
    most = 0
    for number in range(4000):
        queue.put((number,), random.choice([0.01, 1, 100]))
        serve(queue, 2)
        most = max(most, queue.senders)
    assert most < 200


class RandomUse:
    """Random operations on a queue, counted beside it."""

    def __init__(self, random: Random) -> None:
        self.random, self.queue = random, FairQueue[int](20, 6, levels=2)
        self.waiting, self.running = set[int](), dict[int, Turn[int]]()

    def put(self, number: int) -> None:
        try:
            lost = self.queue.put((self.random.randrange(5), self.random.randrange(3)), number)
        except (RateLimited, Unavailable):
            return
        self.waiting.add(number)
        self.waiting.discard(-1 if lost is None else lost)

    def take(self) -> bool:
        turn = self.queue.take()
        if turn is not None:
            self.waiting.remove(turn.item)
            self.running[turn.item] = turn
        return turn is not None

    def finish(self) -> None:
        turn = self.running.pop(self.random.choice(list(self.running)))
        self.queue.finish(turn, self.random.random())
        if self.random.random() < 0.3:
            self.waiting.add(turn.item)
            self.queue.put_back((turn.sender[0], self.random.randrange(3)), turn.item)


@pytest.mark.parametrize("seed", range(20))
def test_random_use_loses_no_job_and_counts_right(seed: int) -> None:
    use = RandomUse(Random(seed))
    for number in range(500):
        if use.random.random() < 0.5:
            use.put(number)
        elif use.running and use.random.random() < 0.5:
            use.finish()
        else:
            use.take()
        assert len(use.queue) == len(use.waiting)
    while use.take():
        pass
    assert not use.waiting
    for turn in use.running.values():
        use.queue.finish(turn, 1)
    assert use.queue.senders == 0


def test_threads_share_a_queue() -> None:
    queue = FairQueue[int](100_000, 100_000)

    def work(thread: int) -> int:
        total = 0
        for number in range(500):
            queue.put((number % 7,), thread * 500 + number)
            turn = queue.take()
            if turn is not None:
                total += turn.item
                queue.finish(turn, 1)
        return total

    with ThreadPoolExecutor(4) as threads:
        total = sum(threads.map(work, range(4)))
    while (left := queue.take()) is not None:
        total += left.item
        queue.finish(left, 1)
    assert total == sum(range(2000))
    assert queue.senders == 0


# Jobs that run at the same time


def test_a_sender_runs_no_more_jobs_than_it_may() -> None:
    queue = FairQueue[str](20, 20, max_running=2)
    for i in range(4):
        queue.put(A, f"a{i}")
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert (queue.take(), len(queue)) == (None, 2)
    queue.put(B, "b0")
    other = queue.take()
    assert other is not None
    assert (other.item, queue.take()) == ("b0", None)
    queue.put(A, "a4")
    assert queue.take() is None
    queue.finish(first, 1)
    third = queue.take()
    assert third is not None
    assert (third.item, queue.take()) == ("a2", None)
    for turn in (second, other, third):
        queue.finish(turn, 1)
    last = [queue.take(), queue.take()]
    assert [turn.item for turn in last if turn is not None] == ["a3", "a4"]
    for each in last:
        assert each is not None
        queue.finish(each, 1)
    assert (len(queue), queue.senders) == (0, 0)


def test_the_limit_is_of_the_outermost_key() -> None:
    queue = FairQueue[int](20, 20, levels=2, max_running=2)
    for i in range(4):
        queue.put(("a", i), i)
    assert [turn is not None for turn in (queue.take(), queue.take(), queue.take())] == [True, True, False]
