"""The sender and endpoints that are not confirmed, that are gone, or that get too much."""

from itertools import pairwise

import pytest
from msgspec import structs

from enc.node.push import outcomes
from enc.node.push import sender as module
from enc.node.push.challenge_limits import FAILURE_MS, FAILURES
from enc.node.push.host_limits import HOST_BURST_MS, HostRates
from enc.node.push.schedule import Bounds
from enc.node.push.sender import NO_KEY, NOT_ANSWERED
from enc.runtime.checked_http_async import EndpointAnswer
from tests.core.world import START
from tests.node.sender_world import SenderWorld

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
ASKING = Bounds(confirmed_ms=30 * DAY_MS, first_retry_ms=1000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0)


def refuses(queue: int, answer: bytes) -> EndpointAnswer:
    return EndpointAnswer("status 404")


def test_batches_go_out_after_the_challenge() -> None:
    world = SenderWorld({1: 3, 2: 1})
    world.run(lambda: world.is_empty, ASKING)
    assert sorted(world.asked) == [1, 2]
    assert [push_seq for queue, push_seq in world.posted if queue == 1] == [1, 2, 3]
    assert [(result.error, result.held_until) for result in world.challenged] == [("", 0)] * 2


def test_a_thousand_endpoints_of_a_host_that_never_answers_get_a_few_challenges_and_no_push() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 1001), 1))
    world.reply, world.step_ms = refuses, 20_000
    world.run(lambda: world.now > START + HOUR_MS, ASKING)
    assert world.posted == []
    assert 5 <= len(world.asked) <= 8
    assert len(set(world.asked)) == len(world.asked)


def test_a_host_that_many_enclaves_name_gets_few_challenges_too() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 101), 1))
    world.reply, world.step_ms, world.registrar = refuses, 5000, lambda queue: queue
    world.run(lambda: world.now > START + HOUR_MS, ASKING)
    assert world.posted == []
    assert FAILURES < len(world.asked) <= FAILURES + HOUR_MS // FAILURE_MS + 1


def test_endpoints_that_answer_are_confirmed_soon_whatever_their_number() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 201), 1))
    world.run(lambda: world.is_empty, ASKING)
    assert len(world.asked) == 200
    assert world.now < START + 10_000


@pytest.mark.parametrize(
    ("body", "error"),
    [(b"", NOT_ANSWERED), (b"{}", NOT_ANSWERED), (None, "status 500")],
)
def test_another_answer_confirms_nothing(body: bytes | None, error: str) -> None:
    world = SenderWorld({1: 1})
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

    world = SenderWorld({1: 1})
    world.reply = reply
    world.run(lambda: len(world.challenged) == 2, ASKING)
    assert [result.error for result in world.challenged] == ["status 503", NOT_ANSWERED]


def test_an_identity_that_is_no_key_is_not_asked_and_costs_its_host_nothing() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 100), 1))
    world.has_key = False
    world.run(lambda: len(world.challenged) >= 99, ASKING)
    assert world.asked == []
    assert {result.error for result in world.challenged} == {NO_KEY}


def test_a_confirmation_ends_after_its_time() -> None:
    world = SenderWorld({1: 2})
    world.confirmed[1] = START - ASKING.confirmed_ms + 10 if ASKING.confirmed_ms else 0
    world.step_ms = 5
    world.run(lambda: world.is_empty, ASKING)
    assert (world.asked, world.posted) == ([1], [(1, 1), (1, 2)])


async def fails(queue: int, push_seq: int) -> str:
    return "status 500"


def old(world: SenderWorld, age_ms: int, *queues: int) -> None:
    """Let these queues' endpoints have been confirmed some time ago."""
    for queue in queues:
        world.confirmed[queue], world.confirmed_to[queue] = START - age_ms, world.address(queue)


def test_a_confirmation_is_renewed_from_half_of_its_time_on() -> None:
    world = SenderWorld({1: 2, 2: 2})
    old(world, 15 * DAY_MS + 1, 1)
    old(world, 14 * DAY_MS, 2)
    world.run(lambda: world.is_empty, ASKING)
    assert world.asked == [1]
    assert len(world.posted) == 4


def test_deliveries_go_on_while_renewals_fail() -> None:
    world = SenderWorld({1: 300})
    old(world, 16 * DAY_MS, 1)
    world.reply, world.step_ms = refuses, 100
    world.run(lambda: world.is_empty, ASKING)
    assert len(world.posted) == 300
    assert 2 <= len(world.asked) <= 6, "with growing pauses"
    assert all(result.is_confirmed for result in world.challenged)


def test_a_confirmation_ends_if_it_is_not_renewed_in_time() -> None:
    world = SenderWorld({1: 5})
    old(world, 30 * DAY_MS, 1)
    world.reply, world.step_ms = refuses, 1000
    world.run(lambda: len(world.asked) == 3, ASKING)
    assert world.posted == []
    assert not any(result.is_confirmed for result in world.challenged)


@pytest.mark.parametrize("age_ms", [16 * DAY_MS, 40 * DAY_MS])
def test_strangers_do_not_delay_renewals(age_ms: int) -> None:
    world = SenderWorld(dict.fromkeys(range(1, 300), 1))
    old(world, age_ms, 299)
    world.reply = lambda queue, answer: EndpointAnswer("", answer) if queue == 299 else refuses(queue, answer)
    world.step_ms, world.registrar = 10, lambda queue: queue
    world.run(lambda: not world.store[299], ASKING)
    assert world.asked.count(299) == 1
    assert world.now < START + 60_000


def test_an_enclave_with_a_confirmed_endpoint_that_takes_batches_does_not_wait_for_strangers() -> None:
    """Also after a restart, when nothing is known of earlier challenges."""
    world = SenderWorld(dict.fromkeys(range(1, 302), 1))
    old(world, 0, 300)
    world.reply = lambda queue, answer: EndpointAnswer("", answer) if queue > 299 else refuses(queue, answer)
    world.held[301] = START + 10_000
    world.step_ms, world.registrar = 10, lambda queue: min(queue, 300)
    world.run(lambda: not world.store[301], ASKING)
    assert world.now < START + 60_000


def test_a_renewal_that_fails_at_another_address_ends_the_confirmation() -> None:
    world = SenderWorld({1: 1})
    old(world, 16 * DAY_MS, 1)
    world.address, world.reply = lambda queue: "192.0.2.9", refuses
    world.run(lambda: bool(world.challenged), ASKING)
    assert not world.challenged[0].is_confirmed
    assert world.posted == []


def test_an_endpoint_that_fails_gets_fewer_requests_whatever_the_number_of_its_batches() -> None:
    world = SenderWorld({1: 1000})
    world.answer, world.step_ms = fails, 100
    old(world, 0, 1)
    world.reply = refuses
    world.run(lambda: bool(world.challenged), ASKING)
    assert len(world.posted) == 10, "as many as a single batch would get"
    times = [result.at for result in world.settled]
    assert all(later - at >= 1000 << k for k, (at, later) in enumerate(pairwise(times)))
    assert [result.must_confirm for result in world.settled] == [False] * 9 + [True]
    assert all(result.next_try is not None for result in world.settled), "no batch is dead"


def test_without_challenges_an_endpoint_that_fails_is_tried_less_and_less() -> None:
    world = SenderWorld({1: 1000})
    world.answer, world.step_ms = fails, 1000
    world.run(lambda: world.now > START + HOUR_MS, Bounds(confirmed_ms=None))
    assert len(world.posted) <= 22
    assert not any(result.must_confirm for result in world.settled)


def test_one_batch_that_fails_stops_no_others() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 500" if push_seq == 3 else ""

    world = SenderWorld({1: 30})
    world.answer, world.step_ms = answer, 10
    world.run(lambda: len(world.store[1]) == 1, ASKING)
    assert world.now < START + 10_000


def test_a_failure_at_another_address_ends_the_confirmation() -> None:
    world = SenderWorld({1: 3})
    old(world, 0, 1)
    world.address, world.answer, world.reply = lambda queue: "192.0.2.9", fails, refuses
    world.run(lambda: bool(world.challenged), ASKING)
    assert [result.must_confirm for result in world.settled] == [True]
    assert len(world.posted) == 1


def test_a_failure_at_an_address_where_the_host_took_a_batch_ends_no_confirmation() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 500" if push_seq == 2 else ""

    world = SenderWorld({1: 2})
    old(world, 0, 1)
    world.address, world.answer = lambda queue: "192.0.2.9", answer
    world.run(lambda: len(world.settled) == 3, ASKING)
    assert [(result.error, result.must_confirm) for result in world.settled[:2]] == [("", False), ("status 500", False)]


def test_names_that_were_confirmed_and_then_lead_to_a_third_party_send_it_little() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 301), 20))
    old(world, 0, *range(1, 301))
    world.names, world.address = 40, lambda queue: "192.0.2.9"
    world.answer, world.reply, world.step_ms = fails, refuses, 50
    world.run(lambda: world.now > START + 60_000, structs.replace(ASKING, host=HostRates(requests_per_s=100.0)))
    assert len(world.posted) == 300, "one for each endpoint"
    assert len(world.asked) <= FAILURES + 1


def test_for_development_challenges_are_repeated_soon() -> None:
    world = SenderWorld({1: 1})
    world.step_ms = 100
    late = START + HOUR_MS
    world.reply = lambda queue, answer: EndpointAnswer("", answer) if world.now > late else refuses(queue, b"")
    world.run(lambda: world.is_empty, structs.replace(ASKING, max_hold_ms=3000))
    assert world.now < late + 10_000
    assert all(result.held_until - result.at <= 3000 for result in world.challenged)


@pytest.mark.parametrize("error", ["status 404", "status 410"])
def test_for_development_a_suspension_is_short(error: str) -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return error if world.now < START + 60_000 else ""

    world = SenderWorld({1: 1})
    world.answer, world.step_ms = answer, 100
    world.run(lambda: world.is_empty, structs.replace(ASKING, max_hold_ms=3000))
    assert world.now < START + 70_000


def test_an_endpoint_that_answers_410_gets_nothing_more() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 410"

    world = SenderWorld({1: 3})
    world.answer, world.step_ms = answer, 1000
    world.run(lambda: world.now > START + HOUR_MS, ASKING)
    assert (world.asked, world.posted) == ([1], [(1, 1)])
    (result,) = world.settled
    assert result.suspend_until == result.at + outcomes.GONE_MS
    assert len(world.store[1]) == 3


def test_an_endpoint_that_answers_404_gets_a_few_more() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 404"

    world = SenderWorld({1: 9})
    world.answer, world.step_ms = answer, 100
    world.run(lambda: world.now > START + 10 * 60_000, ASKING)
    assert (world.asked, len(world.posted)) == ([1], outcomes.MAX_MISSING)
    last = world.settled[-1]
    assert last.suspend_until == last.at + outcomes.MISSING_MS
    assert len(world.store[1]) == 9


def test_an_answer_404_between_others_stops_nothing() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 404" if len(world.posted) % 4 else ""

    world = SenderWorld({1: 9})
    world.answer = answer
    world.run(lambda: world.is_empty, Bounds(first_retry_ms=1, tries=100))
    assert all(result.suspend_until is None for result in world.settled)


def test_a_challenge_to_an_endpoint_that_is_gone_is_repeated_after_a_day() -> None:
    world = SenderWorld({1: 1})
    world.reply = lambda queue, answer: EndpointAnswer("status 410")
    world.run(lambda: bool(world.challenged), ASKING)
    (result,) = world.challenged
    assert result.held_until == result.at + outcomes.GONE_MS


def test_a_host_gets_so_many_bytes_a_second() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 21), 5))
    world.size, world.step_ms = 750_000, 50
    world.run(lambda: world.is_empty, Bounds(host=HostRates(bytes_per_s=1_000_000)))
    sent = len(world.posted) * 1_000_000
    assert len(world.posted) == 100
    assert world.now - START >= sent / 1000 - HOST_BURST_MS - 1000


def test_names_that_lead_to_one_address_share_its_bytes() -> None:
    world = SenderWorld(dict.fromkeys(range(1, 21), 5))
    world.size, world.step_ms, world.names = 750_000, 50, 20
    world.run(lambda: world.is_empty, Bounds(host=HostRates(bytes_per_s=1_000_000)))
    assert len(world.posted) == 100
    assert world.now - START >= 100_000 - HOST_BURST_MS - 1000
