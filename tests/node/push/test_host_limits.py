"""Limits of requests and bytes to one host and one address, and of challenges."""

import pytest

from enc.node.push import challenge_limits
from enc.node.push.challenge_limits import ChallengeLimits, ChallengeReservation, pause_ms
from enc.node.push.host_limits import HOST_BURST_MS, HostLimits, HostRates, Reservation
from enc.node.push.known_addresses import KnownAddresses
from enc.node.push.rate_clocks import RateClocks

NOW = 1_000_000


def hosts(most: int = 100, **rates: float) -> tuple[HostLimits, KnownAddresses]:
    known = KnownAddresses(most)
    return HostLimits(HostRates(**rates), known, most), known  # type: ignore[arg-type]


def challenges(most: int = 100) -> tuple[ChallengeLimits, KnownAddresses]:
    known = KnownAddresses(most)
    return ChallengeLimits(1000, known, most), known


def test_a_clock_allows_a_burst_and_then_its_rate() -> None:
    clocks = RateClocks(1000, 10)
    for _ in range(3):
        assert clocks.ready_at("a") <= NOW
        clocks.charge("a", NOW, 500)
    assert clocks.ready_at("a") == NOW + 500
    clocks.refund("a", 500)
    assert clocks.ready_at("a") == NOW
    assert clocks.ready_at("b") <= 0


def test_clocks_are_bounded_and_those_that_passed_are_forgotten_first() -> None:
    clocks = RateClocks(0, 10)
    clocks.charge("busy", NOW, 1e9)
    for i in range(1000):
        clocks.charge(f"k{i}", NOW + i, 1)
    assert len(clocks) <= 10
    assert clocks.ready_at("busy") == NOW + 1e9
    for i in range(1000):
        clocks.charge(f"b{i}", NOW, 1e9)
    assert len(clocks) <= 10


def test_a_host_has_so_many_requests_at_a_time() -> None:
    limits, _ = hosts(at_a_time=2)
    first, _ = limits.reserve("one", 1, NOW), limits.reserve("one", 1, NOW)
    assert limits.ready_at("one") is None
    assert limits.ready_at("two") is not None
    limits.release(first)
    assert limits.ready_at("one") is not None
    assert len(limits) == 1


def test_bytes_are_charged_to_the_address_that_was_reached() -> None:
    limits, known = hosts(bytes_per_s=1000)
    for name in ("a", "b"):
        reservation = limits.reserve(name, 4000, NOW)
        assert limits.may_connect(reservation, "192.0.2.1", NOW) is (name == "a")
        known.note(name, "192.0.2.1")
        limits.release(reservation)
    assert limits.ready_at("a") == limits.ready_at("b") == NOW + 4000 - HOST_BURST_MS
    later = NOW + 4000
    reservation = limits.reserve("b", 10, later)
    assert reservation.address == "192.0.2.1"
    assert limits.may_connect(reservation, "192.0.2.1", later)
    assert limits.may_connect(reservation, "192.0.2.2", later), "a name may move to an address that is free"


@pytest.mark.parametrize("rates", [{"requests_per_s": 10.0}, {"at_a_time": 10}])
def test_names_share_the_requests_of_the_address_that_they_lead_to(rates: dict[str, float]) -> None:
    limits, known = hosts(1000, **rates)
    allowed, places = 0, list[Reservation]()
    for i in range(500):
        reservation = limits.reserve(f"host{i}", 1, NOW)
        known.note(f"host{i}", "192.0.2.1")
        allowed += limits.may_connect(reservation, "192.0.2.1", NOW)
        places.append(reservation)
    assert allowed == 10 + ("requests_per_s" in rates)
    assert all((at := limits.ready_at(f"host{i}")) is None or at > NOW for i in range(500))
    for place in places:
        limits.release(place)
    assert limits.ready_at("host1") is not None
    assert not limits._addresses._count


def test_a_host_that_moved_costs_its_former_address_nothing() -> None:
    limits, known = hosts(requests_per_s=10.0)
    for _ in range(100):
        known.note("a", "192.0.2.1")
        reservation = limits.reserve("a", 1, NOW)
        limits.may_connect(reservation, "192.0.2.2", NOW)
        limits.release(reservation)
    known.note("b", "192.0.2.1")
    assert (limits.ready_at("b") or NOW) <= NOW
    known.note("b", "192.0.2.2")
    assert (limits.ready_at("b") or NOW) > NOW


def test_each_connection_to_an_address_is_charged() -> None:
    limits, _ = hosts(requests_per_s=10.0, at_a_time=5)
    reservation = limits.reserve("a", 1, NOW)
    for address in ("192.0.2.1", "192.0.2.2"):
        assert limits.may_connect(reservation, address, NOW)
    limits.release(reservation)
    assert not limits._addresses._count
    assert all(
        limits._addresses.ready_at(address) == NOW + 100 - HOST_BURST_MS for address in ("192.0.2.1", "192.0.2.2")
    )


def failing(limits: ChallengeLimits, host: str, registrar: int, now: float) -> bool:
    """Challenge an endpoint that does not answer, if the limits allow it now."""
    at = limits.ready_at(host, registrar)
    if at is None or at > now:
        return False
    limits.fail(limits.reserve(host, registrar, now), now)
    return True


def test_the_pause_grows_with_each_failure_in_a_row() -> None:
    assert [pause_ms(n, 1000, 100_000) for n in range(1, 7)] == [1000, 4000, 16_000, 64_000, 100_000, 100_000]
    assert pause_ms(10_000, 1000, 100_000) == 100_000
    limits, _ = challenges()
    sent = [now for now in range(NOW, NOW + 3_600_000, 1000) if failing(limits, "one", 1, now)]
    assert [now - NOW for now in sent] == [0, 1000, 5000, 21_000, 85_000, 341_000, 1_365_000]


def test_one_challenge_at_a_time_until_one_was_answered() -> None:
    limits, _ = challenges()
    reservation = limits.reserve("one", 1, NOW)
    assert limits.ready_at("one", 1) is None
    assert limits.ready_at("one", 2) is not None
    limits.succeed(reservation)
    for most in (2, 4, 8, challenge_limits.FAILURES):
        running = list[ChallengeReservation]()
        while (at := limits.ready_at("one", 1)) is not None and at <= NOW:
            running.append(limits.reserve("one", 1, NOW))
        assert len(running) == most
        for each in running:
            limits.succeed(each)
    reservation, _ = limits.reserve("one", 1, NOW), limits.reserve("one", 1, NOW)
    limits.fail(reservation, NOW)
    assert limits.ready_at("one", 1) is None, "one at a time again"


def test_what_was_not_sent_costs_nothing() -> None:
    limits, _ = challenges()
    for _ in range(100):
        at = limits.ready_at("one", 1)
        assert at is not None and at <= NOW  # noqa: PT018
        limits.cancel(limits.reserve("one", 1, NOW))


def test_enclaves_share_a_host_s_allowance() -> None:
    limits, _ = challenges()
    hour = range(NOW, NOW + 3_600_000, 10_000)
    sent = sum(failing(limits, "one", registrar, now) for now in hour for registrar in range(50))
    assert challenge_limits.FAILURES + 55 <= sent <= challenge_limits.FAILURES + 59
    assert failing(limits, "two", 99, NOW + 3_600_000)


def test_hosts_share_an_enclave_s_allowance() -> None:
    limits, _ = challenges(10_000)
    hour = range(NOW, NOW + 3_600_000, 10_000)
    sent = sum(failing(limits, f"host{now}-{i}", 1, now) for now in hour for i in range(50))
    assert sent == challenge_limits.ENCLAVE_FAILURES + 359


def test_names_share_the_allowance_of_the_address_that_they_lead_to() -> None:
    limits, known = challenges(1000)
    sent = 0
    for i in range(200):
        reservation = limits.reserve(f"host{i}", i, NOW)
        known.note(f"host{i}", "192.0.2.1")
        if limits.may_connect(reservation, "192.0.2.1", NOW):
            sent += 1
            limits.fail(reservation, NOW)
        else:
            limits.cancel(reservation)
            assert (limits.ready_at(f"host{i}", i) or 0) > NOW
    assert sent == challenge_limits.FAILURES


def test_a_host_s_address_is_charged_before_the_host_is_resolved() -> None:
    limits, known = challenges(1000)
    for i in range(200):
        known.note(f"host{i}", "192.0.2.1")
    taken = [
        i for i in range(200) if (limits.ready_at(f"host{i}", i) or 0) <= NOW and limits.reserve(f"host{i}", i, NOW)
    ]
    assert len(taken) == challenge_limits.FAILURES


def test_an_enclave_that_has_not_failed_at_a_host_goes_before_those_that_have() -> None:
    limits, _ = challenges(10_000)
    hours = range(NOW, NOW + 10 * 3_600_000, 10_000)
    assert sum(failing(limits, "one", registrar, now) for now in hours for registrar in range(200)) > 600
    later = hours[-1] + 10_000
    for fresh in range(1000, 1003):
        assert (limits.ready_at("one", fresh) or 0) <= later
        limits.reserve("one", fresh, later)


def answered(limits: ChallengeLimits, known: KnownAddresses, host: str, registrar: int, address: str) -> None:
    reservation = limits.reserve(host, registrar, NOW)
    known.note(host, address)
    assert limits.may_connect(reservation, address, NOW)
    known.prove(host, address)
    limits.succeed(reservation)


def test_enclaves_whose_endpoints_answer_at_a_host_do_not_wait_for_others() -> None:
    limits, known = challenges(1000)
    answered(limits, known, "one", 1, "192.0.2.1")
    for registrar in range(100, 200):
        failing(limits, "one", registrar, NOW)
    assert (limits.ready_at("one", 2) or 0) > NOW
    assert (limits.ready_at("one", 1) or 0) <= NOW
    reservation = limits.reserve("one", 1, NOW)
    assert limits.may_connect(reservation, "192.0.2.1", NOW)
    limits.fail(reservation, NOW)
    assert (limits.ready_at("one", 1) or 0) == NOW + 1000, "its own pause"


def test_an_enclave_whose_endpoint_answered_shares_the_limits_of_another_address() -> None:
    limits, known = challenges(1000)
    answered(limits, known, "one", 1, "192.0.2.1")
    for name in range(100, 200):
        other = limits.reserve(f"name{name}", name, NOW)
        if limits.may_connect(other, "192.0.2.9", NOW):
            limits.fail(other, NOW)
    reservation = limits.reserve("one", 1, NOW)
    assert not limits.may_connect(reservation, "192.0.2.9", NOW)
    limits.cancel(reservation)
    assert limits.may_connect(limits.reserve("one", 1, NOW), "192.0.2.8", NOW)
    assert limits._hosts.ready_at("one") > NOW - (challenge_limits.FAILURES - 1) * challenge_limits.FAILURE_MS


def test_an_endpoint_without_a_failure_skips_the_pause_of_its_enclave_once_an_hour() -> None:
    limits, _ = challenges()
    for now in range(NOW, NOW + 1_000_000, 1000):
        failing(limits, "one", 1, now)
    now = NOW + 1_000_000
    assert (limits.ready_at("one", 1) or 0) > now
    assert (limits.ready_at("one", 1, is_new=True) or 0) <= now
    limits.fail(limits.reserve("one", 1, now, is_new=True), now)
    assert limits.ready_at("one", 1, is_new=True) == now + challenge_limits.MAX_PAUSE_MS


def test_for_development_there_is_only_a_short_pause() -> None:
    limits = ChallengeLimits(1000, KnownAddresses(100), 100, 3000)
    sent = [now - NOW for now in range(NOW, NOW + 10_000, 500) if failing(limits, "one", 1, now)]
    assert sent == [0, 1000, 4000, 7000]
    assert all(failing(limits, "one", registrar, NOW) for registrar in range(100, 200))


def test_what_is_remembered_of_challenges_is_bounded() -> None:
    limits, known = challenges(10)
    for i in range(1000):
        reservation = limits.reserve(f"host{i}", i, NOW)
        known.note(f"host{i}", f"address{i}")
        limits.may_connect(reservation, f"address{i}", NOW)
        limits.fail(reservation, NOW)
        known.prove(f"host{i}", f"address{i}")
    assert len(limits) <= 10
    assert len(known) == 10
