"""The sequencer: one batch, one transaction, and nobody hears before the disk has it."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from enc.core.commit import build_commit, build_manifest
from enc.core.encoding import compact_json
from enc.core.errors import Duplicate, EncError, EnclaveNotFound, Expired, Unauthorized, Unavailable
from enc.core.receipt import parse_receipt
from enc.core.types import Receipt
from enc.node import sequencer as module
from enc.node.sequencer import Outcome, Sequencer, Ticket
from enc.node.store.base import Step
from enc.node.store.memory import MemoryStore
from tests.core.world import START, person

from .test_store import MANIFEST, NODE, Host


@pytest.fixture
def host() -> Host:
    return Host(MemoryStore())


def test_a_batch_is_ordered_as_it_came_and_each_sees_the_ones_before(host: Host) -> None:
    enclave = host.found()
    first = host.commit(enclave, "alice", "message", "one")
    refused = host.commit(enclave, "eve", "message", "two")
    last = host.commit(enclave, "alice", "message", "three")
    outcomes = host.run(first, refused, last)
    assert [o.seq if isinstance(o, Receipt) else o.code for o in outcomes] == [1, "UNAUTHORIZED", 2]
    assert isinstance(outcomes[1], Unauthorized)


def test_an_enclave_and_its_first_events_may_come_in_one_batch(host: Host) -> None:
    manifest = build_manifest(person("alice"), compact_json(MANIFEST), host.now + 60_000)
    note = build_commit(person("bob"), manifest.enclave, "note", "at once", host.now + 60_000)
    assert [o.seq for o in host.run(manifest, note) if isinstance(o, Receipt)] == [0, 1]


def test_an_unknown_enclave(host: Host) -> None:
    (outcome,) = host.run(host.commit(bytes(32), "alice", "message"))
    assert isinstance(outcome, EnclaveNotFound)


def test_a_duplicate_gets_the_receipt_of_the_first(host: Host) -> None:
    enclave = host.found()
    commit = host.commit(enclave, "alice", "message", "once")
    (receipt,) = host.run(commit)
    for again in (host.run(commit), host.run(commit, commit)):
        for outcome in again:
            assert isinstance(outcome, Duplicate)
            assert parse_receipt(compact_json(outcome.context["receipt"])) == receipt
    assert len(host.store.events(enclave, 0, 10)) == 2


def test_a_duplicate_within_one_batch(host: Host) -> None:
    enclave = host.found()
    commit = host.commit(enclave, "alice", "message", "once")
    receipt, again = host.run(commit, commit)
    assert isinstance(receipt, Receipt)
    assert isinstance(again, Duplicate)


def test_a_duplicate_by_another_signature_gets_no_receipt(host: Host) -> None:
    enclave = host.found()
    args = (person("alice"), enclave, "message", "once", host.now + 60_000)
    host.run(build_commit(*args))
    (again,) = host.run(build_commit(*args, alg="ecdsa"))
    assert isinstance(again, Duplicate)
    assert again.context == {}


def test_a_manifest_twice_is_a_duplicate_and_another_exists(host: Host) -> None:
    enclave = host.found()
    first = host.store.events(enclave, 0, 1)[0]
    same = build_manifest(person("alice"), first.content or "", first.exp)
    later = build_manifest(person("alice"), first.content or "", first.exp + 1)
    assert [o.code for o in host.run(same, later) if isinstance(o, EncError)] == ["DUPLICATE", "ENCLAVE_EXISTS"]


def test_time_never_falls_and_a_late_commit_expires(host: Host) -> None:
    enclave = host.found()
    old = host.commit(enclave, "alice", "message", "in time")
    host.now += 200_000
    (outcome,) = host.run(old)
    assert isinstance(outcome, Expired)
    event = host.send(enclave, "alice", "message", "now")
    host.now -= 30_000
    assert host.send(enclave, "alice", "message", "a little earlier").timestamp == event.timestamp


def test_a_clock_set_back_stops_sequencing_also_after_a_restart(host: Host) -> None:
    enclave = host.found()
    host.send(enclave, "alice", "message", "now")
    restarted = Host(host.store)
    for each in (host, restarted):
        each.now = START - 120_000
        (outcome,) = each.run(each.commit(enclave, "alice", "message", "then"))
        assert isinstance(outcome, Unavailable)
        assert outcome.context["retry_after_ms"] > 0


def test_idle_bundles_are_sealed_and_heads_signed(host: Host) -> None:
    enclave = host.found()
    host.now = START + 999
    host.run()
    assert host.store.head(enclave) is None
    host.now = START + 1000
    host.run()
    head = host.store.head(enclave)
    assert head is not None
    assert head.ts == 1
    host.run()
    assert host.store.head(enclave) == head


def test_nothing_is_told_before_it_is_written() -> None:
    order: list[str] = []

    class Watched(MemoryStore):
        def write(self, steps: Sequence[Step], clock: int) -> None:
            order.append("write")
            super().write(steps, clock)

    host = Host(Watched())
    host.sequencer._deliver = lambda outcomes: order.append("deliver")
    host.sequencer._publish = lambda steps: order.append("publish")
    host.found()
    assert order == ["write", "deliver", "publish"]


def test_a_failed_write_is_told_to_all_and_published_to_none() -> None:
    class Failing(MemoryStore):
        broken = False

        def write(self, steps: Sequence[Step], clock: int) -> None:
            if self.broken:
                raise Unavailable("no disk")
            super().write(steps, clock)

    store = Failing()
    host = Host(store)
    enclave = host.found()
    published = len(host.steps)
    commits = [host.commit(enclave, "alice", "message", str(i)) for i in range(3)]
    store.broken = True
    assert [type(outcome) for outcome in host.run(*commits)] == [Unavailable] * 3
    assert len(host.steps) == published
    store.broken = False
    assert [o.seq for o in host.run(*commits) if isinstance(o, Receipt)] == [1, 2, 3]


def test_a_store_that_cannot_be_read_is_told_to_all_and_the_sequencer_goes_on() -> None:
    class Failing(MemoryStore):
        broken = False

        def overdue(self, clock: int) -> list[bytes]:
            if self.broken:
                raise Unavailable("no disk")
            return super().overdue(clock)

    store = Failing()
    host = Host(store)
    enclave = host.found()
    commit = host.commit(enclave, "alice", "message", "one")
    store.broken = True
    assert [type(outcome) for outcome in host.run(commit)] == [Unavailable]
    store.broken = False
    assert [o.seq for o in host.run(commit) if isinstance(o, Receipt)] == [1]


def test_idle_enclaves_leave_memory_and_come_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LIVE", 2)
    enclaves = [host.found(meta={"n": i}) for i in range(5)]
    assert len(host.sequencer._live) <= 2
    for enclave in enclaves:
        assert host.send(enclave, "alice", "message", "still here").seq == 1


def test_the_thread_takes_what_many_submit_and_finishes_before_it_stops() -> None:
    store, outcomes, now = MemoryStore(), list[Outcome](), START
    sequencer = Sequencer(store, NODE, lambda: now, deliver=outcomes.extend)
    manifest = build_manifest(person("alice"), compact_json(MANIFEST), now + 60_000)
    sequencer.start()
    sequencer.submit(Ticket(manifest))

    def submit(name: str) -> None:
        for i in range(50):
            commit: Any = build_commit(person(name), manifest.enclave, "note", f"{name} {i}", now + 60_000)
            sequencer.submit(Ticket(commit, name))

    threads = [threading.Thread(target=submit, args=(name,)) for name in ("alice", "bob", "carol")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sequencer.stop()
    assert len(outcomes) == 151
    assert sorted(o.seq for _, o in outcomes if isinstance(o, Receipt)) == list(range(151))
    mine = [o.seq for ticket, o in outcomes if ticket.sender == "bob" and isinstance(o, Receipt)]
    assert mine == sorted(mine)
