"""A clock that was set back, or that jumped ahead: what is refused, for how long, and what is recorded."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from enc.core.errors import Unavailable
from enc.node.sequence.clock_guard import SETTLE_S, ClockGuard
from enc.node.sequence.sequencer import Sequencer
from enc.testing.clock import START, Clock
from tests.node.imports.import_orders import moved
from tests.node.moving import archive_of, done, failure
from tests.node.served import NODE, SMALL, Enclave, Served, good, health, sqlite

HOUR, MINUTE = 3_600_000, 60_000
SETTLE_MS = round(SETTLE_S * 1000)


class Guarded:
    """A guard over a clock that the test sets, checked once a second as by an idle sequencer."""

    def __init__(self, highest: int = 0) -> None:
        self.clock = Clock()
        self.guard = ClockGuard(highest, lambda: self.clock.monotonic)
        self.works()

    def works(self) -> bool:
        try:
            self.guard.check(self.clock.now)
        except Unavailable:
            return False
        return True

    def wait(self, ms: int) -> list[bool]:
        """Let the time pass; return whether the clock was trusted at each second."""
        seen = []
        for _ in range(ms // 1000):
            self.clock.tick(1000)
            seen.append(self.works())
        return seen


def test_a_clock_that_goes_as_it_should_is_trusted() -> None:
    assert all(Guarded().wait(HOUR))


def test_a_clock_that_goes_a_little_wrong_is_trusted() -> None:
    guarded = Guarded()
    for _ in range(100):
        guarded.clock.now += MINUTE // 2
        assert all(guarded.wait(2000))


def test_a_jump_is_distrusted_until_it_is_set_back() -> None:
    guarded = Guarded()
    guarded.clock.now += 10 * HOUR
    assert guarded.guard.has_jumped(guarded.clock.now), "at once, also for other threads"
    assert guarded.guard.is_wrong(guarded.clock.now)
    assert not any(guarded.wait(MINUTE))
    guarded.clock.now -= 10 * HOUR
    assert all(guarded.wait(MINUTE))


def test_a_jump_of_a_minute_is_trusted_and_one_of_more_is_not() -> None:
    guarded = Guarded()
    guarded.clock.now += MINUTE
    assert guarded.works()
    guarded.clock.now += MINUTE + 1
    assert not guarded.works()


def test_a_jump_that_lasts_is_trusted_in_the_end() -> None:
    guarded = Guarded()
    guarded.clock.now += 10 * HOUR
    assert not any(guarded.wait(SETTLE_MS - 1000))
    assert all(guarded.wait(MINUTE)[2:])
    guarded.clock.now += 10 * HOUR
    assert not guarded.works(), "the next one is a jump again"


@pytest.mark.parametrize("back", [10 * HOUR, 11 * HOUR])
def test_a_clock_that_jumps_about_is_not_trusted_meanwhile(back: int) -> None:
    guarded = Guarded(highest=START)
    guarded.clock.now += 10 * HOUR
    assert not any(guarded.wait(SETTLE_MS // 2))
    guarded.clock.now -= back
    assert guarded.works() == (back == 10 * HOUR)
    guarded.clock.now += back
    assert not any(guarded.wait(SETTLE_MS - 1000)), "the time counts from the last jump"


def test_a_clock_that_was_set_back_and_is_corrected_has_not_jumped() -> None:
    guarded = Guarded()
    guarded.clock.now -= 10 * HOUR
    assert all(guarded.wait(MINUTE)), "nothing is recorded yet"
    guarded.clock.now += 10 * HOUR
    assert all(guarded.wait(MINUTE))


def test_a_machine_that_starts_with_a_wrong_clock_is_corrected_at_once() -> None:
    guarded = Guarded(highest=START + 100 * HOUR)
    assert not any(guarded.wait(MINUTE))
    guarded.clock.now += 100 * HOUR
    assert all(guarded.wait(MINUTE))


def test_without_a_monotonic_clock_only_what_is_recorded_counts() -> None:
    guard = ClockGuard(START)
    guard.check(START + 10 * HOUR)
    assert not guard.is_wrong(START + 10 * HOUR)
    guard.check(START - MINUTE)
    with pytest.raises(Unavailable):
        guard.check(START - MINUTE - 1)


def test_only_recorded_times_keep_a_clock_from_being_set_back() -> None:
    guard = ClockGuard(START)
    guard.check(START + 2 * HOUR)
    guard.check(START)
    guard.record(START + 2 * HOUR)
    guard.record(START)
    with pytest.raises(Unavailable) as caught:
        guard.check(START)
    assert caught.value.context["retry_after_ms"] == 2 * HOUR


def test_each_change_is_logged_once() -> None:
    guarded = Guarded()
    with capture_logs() as logs:
        for _ in range(2):
            guarded.clock.now += HOUR
            assert not any(guarded.wait(5000))
            guarded.clock.now -= HOUR
            assert all(guarded.wait(5000))
    jumped = {"event": "clock_jumped", "log_level": "error", "by_ms": HOUR}
    assert logs == [jumped, jumped]


# In a node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    with closing(sqlite(tmp_path)) as store, Served(store=store) as node:
        yield node


@pytest.fixture
def enclave(node: Served) -> Enclave:
    return node.create(SMALL)


def test_a_clock_that_jumped_and_was_corrected_stops_nothing(node: Served, enclave: Enclave) -> None:
    """Before, a health check recorded the wrong time, and the node stood still until it was over."""
    shown = node.store.clock()
    node.clock.now += 24 * HOUR
    assert health(node) == (503, "failing")
    assert "has jumped ahead by 86400 s" in node.get("/health").json()["reason"]
    error = enclave.refused("bob", "message", "x", exp=node.clock.now + MINUTE)
    assert (error.code, error.context) == ("UNAVAILABLE", {"retry_after_ms": 60_000})
    assert enclave.refused("bob", "message", "x", exp=node.clock.now - 23 * HOUR).code == "UNAVAILABLE", "not EXPIRED"
    node.clock.now -= 24 * HOUR
    assert health(node) == (200, "ok")
    assert node.store.clock() == shown
    assert enclave.send("bob", "message", "x").seq == 1


def test_a_health_check_and_an_idle_node_record_no_time(node: Served, enclave: Enclave) -> None:
    shown = node.store.clock()
    for _ in range(3):
        node.clock.tick(MINUTE // 2)
        assert health(node) == (200, "ok")
        node.settle()
    assert shown <= node.store.clock() <= shown + 5000, "at most the deadline of the bundle"
    node.clock.now -= HOUR  # as far as the clock never should have gone
    assert health(node) == (503, "failing")


def test_a_closed_bundle_records_its_deadline_and_an_event_the_time(node: Served, enclave: Enclave) -> None:
    created = node.store.clock()
    node.clock.tick(MINUTE)
    node.settle()
    assert node.store.clock() == created + 5000
    enclave.send("bob", "message", "x")
    assert node.store.clock() == node.clock.now


def test_a_hold_records_the_time(node: Served, enclave: Enclave) -> None:
    node.clock.tick(2 * MINUTE)
    enclave.ask("alice", "Checkpoint", hold=1)
    assert node.store.clock() == node.clock.now
    node.clock.now -= MINUTE + 1
    assert health(node) == (503, "failing")


def test_nothing_is_erased_or_closed_by_a_clock_that_jumped(node: Served, enclave: Enclave) -> None:
    due = str(node.clock.now + HOUR)
    enclave.send("bob", "message", "short", ("auto-delete", due))
    node.clock.now += 2 * HOUR
    node.settle()
    node.clock.now -= 2 * HOUR
    assert [item["event"]["content"] for item in enclave.query("bob", type="message")] == ["short"]
    assert good(node.get(f"/{enclave.id.hex()}/sth"))["ts"] == 0
    node.clock.tick(2 * HOUR)
    node.settle()
    assert [item["event"]["content"] for item in enclave.query("bob", type="message")] != ["short"]


def test_an_import_needs_a_clock_that_is_right_and_records_the_time(node: Served, enclave: Enclave) -> None:
    made = moved()
    order = made.events[-1], archive_of(made.events)
    node.clock.now += HOUR
    assert failure(node, order[0], archive=order[1])["message"].startswith("this node's clock has jumped ahead")
    node.clock.now -= HOUR
    node.clock.tick(2 * MINUTE)
    assert done(node, order[0], archive=order[1])
    node.clock.now -= MINUTE + 1
    assert health(node) == (503, "failing")


def test_a_node_s_sequencer_has_a_monotonic_clock(node: Served) -> None:
    assert isinstance(node.node.sequencer, Sequencer)
    assert Sequencer(node.store, NODE, lambda: START, deliver=lambda outcomes: None).is_clock_wrong(START) is False
