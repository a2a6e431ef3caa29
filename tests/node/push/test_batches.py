"""Push batches are made once an interval, old ones are deleted, and a fault there does not stop the sequencer."""

import threading
from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.node.push import batches as module
from enc.node.push.batches import BatchRetention, PushBatcher
from enc.node.sequence.sequencer import Sequencer
from enc.node.store.push_interface import BatchLimits, DeliveryResult
from enc.testing.memory_store import MemoryStore
from tests.node.push_host import all_batches, create, listen, queued, say
from tests.node.store_host import NODE, Host


@pytest.fixture
def host() -> Host:
    return Host(MemoryStore())


def test_batches_are_made_once_an_interval(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    room, start = PushBatcher(host.store, 1000), host.now

    def made(at: int) -> int:
        say(host, enclave, 1)
        room.run_if_due(start + at)
        return len(all_batches(host.store, "vera"))

    assert [made(at) for at in (0, 1, 999, 1000, 1500, 2000)] == [1, 1, 1, 2, 2, 3]
    assert made(-5000) == 4  # the clock was set back
    assert [made(at) for at in (-4500, -4000)] == [4, 5]


def test_while_there_is_more_it_goes_on_at_once_and_by_its_limits(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    room = PushBatcher(host.store, 1000, BatchLimits(events=2, rows=3))
    say(host, enclave, 7)
    counts = []
    for _ in range(5):
        room.run_if_due(host.now)
        counts.append([run.count for batch in all_batches(host.store, "vera") for run in batch.runs])
    assert counts[0] == [2, 1]
    assert counts[1:] == [[2, 1, 2, 1], [2, 1, 2, 1, 1], [2, 1, 2, 1, 1], [2, 1, 2, 1, 1]]


def test_settled_batches_are_kept_for_their_time(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RETIRED", 1)
    enclave = create(host)
    listen(host, enclave, "vera")
    room = PushBatcher(host.store, 1, keeping=BatchRetention(delivered=100_000, dead=300_000))
    for _ in range(4):
        say(host, enclave, 1)
        room.run_if_due(host.now)
    (report,) = host.store.queue_reports()
    at = host.now
    host.store.record_results(
        [
            DeliveryResult(report.queue, 1, at),
            DeliveryResult(report.queue, 2, at, "x"),
            DeliveryResult(report.queue, 3, at),
        ]
    )

    def kept(later: int) -> list[int]:
        for _ in range(3):
            room.run_if_due(at + later)
        return [batch.push_seq for batch in all_batches(host.store, "vera")]

    assert kept(99_000) == [1, 2, 3, 4]
    assert kept(99_000 + module.RETIRE_MS) == [2, 4]  # both queues, though one round takes one
    assert kept(299_000) == [2, 4]
    assert kept(299_000 + module.RETIRE_MS) == [4]


def test_batches_for_an_endpoint_that_is_not_confirmed_die_after_a_time(host: Host) -> None:
    queued(host, 2)
    room = PushBatcher(host.store, keeping=BatchRetention(unconfirmed=100_000, dead=100_000))
    room.run_if_due(host.now + 99_000)
    assert host.store.queue_reports()[0].waiting == 2
    room.run_if_due(host.now + 100_000 + module.RETIRE_MS)
    (report,) = host.store.queue_reports()
    assert (report.waiting, report.dead) == (0, 2)
    room.run_if_due(host.now + 200_000 + 2 * module.RETIRE_MS)
    assert host.store.queue_reports()[0].dead == 0


@pytest.mark.parametrize("error", [Unavailable("full"), RuntimeError("damaged")])
def test_a_fault_is_told_and_tried_again(host: Host, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(*args: Any) -> bool:
        calls.append(args)
        raise error

    monkeypatch.setattr(host.store, "fan_out", fail)
    monkeypatch.setattr(host.store, "delete_settled", fail)
    room = PushBatcher(host.store, 1000)
    for at in (0, 500, 1000):
        room.run_if_due(host.now + at)
    assert len(calls) == 3  # make batches twice, retire once


def test_on_the_sequencers_thread_batches_follow_by_themselves(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    room, made = PushBatcher(host.store, 1), threading.Event()

    def run_if_due(now: int) -> None:
        room.run_if_due(now)
        if all_batches(host.store, "vera"):
            made.set()

    say(host, enclave, 1)
    sequencer = Sequencer(host.store, NODE, lambda: host.now, deliver=lambda outcomes: None, maintain=run_if_due)
    sequencer.start()
    assert made.wait(30)
    sequencer.stop()
