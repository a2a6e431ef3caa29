"""The sender and endpoints that are not confirmed, that are gone, or that get too much."""

import pytest

from enc.node.push import outcomes
from enc.node.push import sender as module
from enc.node.push.challenge_limits import FAILURE_MS, FAILURES
from enc.node.push.host_limits import HOST_BURST_MS, HostRates
from enc.node.push.schedule import Bounds
from enc.node.push.sender import NO_KEY, NOT_ANSWERED
from enc.runtime.checked_http_async import EndpointAnswer
from tests.core.world import START
from tests.node.push.test_sender import World

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ASKING = Bounds(confirmed_ms=30 * DAY_MS, first_retry_ms=1000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0)


def refuses(queue: int, answer: bytes) -> EndpointAnswer:
    return EndpointAnswer("status 404")


def test_batches_go_out_after_the_challenge() -> None:
    world = World({1: 3, 2: 1})
    world.run(lambda: world.is_empty, ASKING)
    assert sorted(world.asked) == [1, 2]
    assert [push_seq for queue, push_seq in world.posted if queue == 1] == [1, 2, 3]
    assert [(result.error, result.held_until) for result in world.challenged] == [("", 0)] * 2


def test_a_thousand_endpoints_of_a_host_that_never_answers_get_a_few_challenges_and_no_push() -> None:
    world = World(dict.fromkeys(range(1, 1001), 1))
    world.reply, world.step_ms = refuses, 20_000
    world.run(lambda: world.now > START + HOUR_MS, ASKING)
    assert world.posted == []
    assert 5 <= len(world.asked) <= 8
    assert len(set(world.asked)) == len(world.asked)


def test_a_host_that_many_enclaves_name_gets_few_challenges_too() -> None:
    world = World(dict.fromkeys(range(1, 101), 1))
    world.reply, world.step_ms, world.registrar = refuses, 5000, lambda queue: queue
    world.run(lambda: world.now > START + HOUR_MS, ASKING)
    assert world.posted == []
    assert FAILURES < len(world.asked) <= FAILURES + HOUR_MS // FAILURE_MS + 1


def test_endpoints_that_answer_are_confirmed_soon_whatever_their_number() -> None:
    world = World(dict.fromkeys(range(1, 201), 1))
    world.run(lambda: world.is_empty, ASKING)
    assert len(world.asked) == 200
    assert world.now < START + 10_000


@pytest.mark.parametrize(
    ("body", "error"),
    [(b"", NOT_ANSWERED), (b"{}", NOT_ANSWERED), (None, "status 500")],
)
def test_another_answer_confirms_nothing(body: bytes | None, error: str) -> None:
    world = World({1: 1})
    world.reply = lambda queue, answer: EndpointAnswer("status 500") if body is None else EndpointAnswer("", body)
    world.run(lambda: len(world.challenged) == 3, ASKING)
    assert world.posted == []
    assert [result.error for result in world.challenged] == [error] * 3
    assert all(result.held_until > result.at for result in world.challenged)


def test_the_answer_to_another_challenge_confirms_nothing() -> None:
    seen: list[bytes] = []

    def reply(queue: int, answer: bytes) -> EndpointAnswer:
        seen.append(answer)
        return EndpointAnswer("", seen[0]) if len(seen) > 1 else EndpointAnswer("status 503")

    world = World({1: 1})
    world.reply = reply
    world.run(lambda: len(world.challenged) == 2, ASKING)
    assert [result.error for result in world.challenged] == ["status 503", NOT_ANSWERED]


def test_an_identity_that_is_no_key_is_not_asked_and_costs_its_host_nothing() -> None:
    world = World(dict.fromkeys(range(1, 100), 1))
    world.has_key = False
    world.run(lambda: len(world.challenged) >= 99, ASKING)
    assert world.asked == []
    assert {result.error for result in world.challenged} == {NO_KEY}


def test_a_confirmation_ends_after_its_time() -> None:
    world = World({1: 2})
    world.confirmed[1] = START - ASKING.confirmed_ms + 10 if ASKING.confirmed_ms else 0
    world.step_ms = 5
    world.run(lambda: world.is_empty, ASKING)
    assert (world.asked, world.posted) == ([1], [(1, 1), (1, 2)])


def test_an_endpoint_that_answers_410_gets_nothing_more() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 410"

    world = World({1: 3})
    world.answer, world.step_ms = answer, 1000
    world.run(lambda: world.now > START + HOUR_MS, ASKING)
    assert (world.asked, world.posted) == ([1], [(1, 1)])
    (result,) = world.settled
    assert result.suspend_until == result.at + outcomes.GONE_MS
    assert len(world.store[1]) == 3


def test_an_endpoint_that_answers_404_gets_a_few_more() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 404"

    world = World({1: 9})
    world.answer, world.step_ms = answer, 100
    world.run(lambda: world.now > START + 10 * 60_000, ASKING)
    assert (world.asked, len(world.posted)) == ([1], outcomes.MAX_MISSING)
    last = world.settled[-1]
    assert last.suspend_until == last.at + outcomes.MISSING_MS
    assert len(world.store[1]) == 9


def test_an_answer_404_between_others_stops_nothing() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 404" if len(world.posted) % 4 else ""

    world = World({1: 9})
    world.answer = answer
    world.run(lambda: world.is_empty, Bounds(first_retry_ms=1, tries=100))
    assert all(result.suspend_until is None for result in world.settled)


def test_a_challenge_to_an_endpoint_that_is_gone_is_repeated_after_a_day() -> None:
    world = World({1: 1})
    world.reply = lambda queue, answer: EndpointAnswer("status 410")
    world.run(lambda: bool(world.challenged), ASKING)
    (result,) = world.challenged
    assert result.held_until == result.at + outcomes.GONE_MS


def test_a_host_gets_so_many_bytes_a_second() -> None:
    world = World(dict.fromkeys(range(1, 21), 5))
    world.size, world.step_ms = 750_000, 50
    world.run(lambda: world.is_empty, Bounds(host=HostRates(bytes_per_s=1_000_000)))
    sent = len(world.posted) * 1_000_000
    assert len(world.posted) == 100
    assert world.now - START >= sent / 1000 - HOST_BURST_MS - 1000


def test_names_that_lead_to_one_address_share_its_bytes() -> None:
    world = World(dict.fromkeys(range(1, 21), 5))
    world.size, world.step_ms, world.names = 750_000, 50, 20
    world.run(lambda: world.is_empty, Bounds(host=HostRates(bytes_per_s=1_000_000)))
    assert len(world.posted) == 100
    assert world.now - START >= 100_000 - HOST_BURST_MS - 1000
