"""Limits of requests and bytes to one host and one address, and of challenges."""

from enc.node.push import challenge_limits
from enc.node.push.challenge_limits import ChallengeLimits, ChallengeReservation, pause_ms
from enc.node.push.host_limits import HOST_BURST_MS, HostLimits, HostRates
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
        assert limits.reached(reservation, "192.0.2.1", NOW) is (name == "a")
        known.note(name, "192.0.2.1")
        limits.release(reservation)
    assert limits.ready_at("a") == limits.ready_at("b") == NOW + 4000 - HOST_BURST_MS
    later = NOW + 4000
    reservation = limits.reserve("b", 10, later)
    assert reservation.address == "192.0.2.1"
    assert limits.reached(reservation, "192.0.2.1", later)
    assert limits.reached(reservation, "192.0.2.2", later), "a name may move to an address that is free"


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
    assert sent == challenge_limits.FAILURES + 59
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
        if limits.reached(reservation, "192.0.2.1", NOW):
            sent += 1
            limits.fail(reservation, NOW)
        else:
            limits.cancel(reservation)
            assert (limits.ready_at(f"host{i}", i) or 0) > NOW
    assert sent == challenge_limits.FAILURES


def test_what_is_remembered_of_challenges_is_bounded() -> None:
    limits, known = challenges(10)
    for i in range(1000):
        reservation = limits.reserve(f"host{i}", i, NOW)
        known.note(f"host{i}", f"address{i}")
        limits.reached(reservation, f"address{i}", NOW)
        limits.fail(reservation, NOW)
    assert len(limits) <= 10
    assert len(known) == 10
