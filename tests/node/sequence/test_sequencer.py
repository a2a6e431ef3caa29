"""The sequencer: each batch is one transaction, and receipts and events go out only after it is on disk."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import Duplicate, EncError, EnclaveNotFound, Expired, Unauthorized, Unavailable
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.receipt import parse_receipt
from enc.core.machine import enclave as machine
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.core.rules.policy_types import Policy
from enc.node.limits.quota import Quota, StorageRules
from enc.node.limits.restrictions import Restrictions
from enc.node.sequence import sealing
from enc.node.sequence import state_cache as directory_module
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.checkpoint import MAX_HOLD_MS
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.sequence.state_cache import StateCache
from enc.node.store.restrictions import Restriction
from enc.node.store.sqlite import store as sqlite_store_module
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from enc.testing.memory_store import MemoryStore
from tests.core.world import START, person
from tests.node.store_host import MANIFEST, NODE, Host


@pytest.fixture
def host() -> Host:
    return Host(MemoryStore())


def test_a_batch_is_ordered_as_it_came_and_each_sees_the_ones_before(host: Host) -> None:
    enclave = host.create()
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
    enclave = host.create()
    commit = host.commit(enclave, "alice", "message", "once")
    (receipt,) = host.run(commit)
    for again in (host.run(commit), host.run(commit, commit)):
        for outcome in again:
            assert isinstance(outcome, Duplicate)
            assert parse_receipt(compact_json(outcome.context["receipt"])) == receipt
    assert len(host.store.events(enclave, 0, 10)) == 2


def test_a_duplicate_within_one_batch(host: Host) -> None:
    enclave = host.create()
    commit = host.commit(enclave, "alice", "message", "once")
    receipt, again = host.run(commit, commit)
    assert isinstance(receipt, Receipt)
    assert isinstance(again, Duplicate)


def test_a_duplicate_by_another_signature_gets_no_receipt(host: Host) -> None:
    enclave = host.create()
    args = (person("alice"), enclave, "message", "once", host.now + 60_000)
    host.run(build_commit(*args))
    (again,) = host.run(build_commit(*args, alg="ecdsa"))
    assert isinstance(again, Duplicate)
    assert again.context == {}


def test_a_manifest_twice_is_a_duplicate_and_another_exists(host: Host) -> None:
    enclave = host.create()
    first = host.store.events(enclave, 0, 1)[0]
    same = build_manifest(person("alice"), first.content or "", first.exp)
    later = build_manifest(person("alice"), first.content or "", first.exp + 1)
    assert [o.code for o in host.run(same, later) if isinstance(o, EncError)] == ["DUPLICATE", "ENCLAVE_EXISTS"]


def test_time_never_falls_and_a_late_commit_expires(host: Host) -> None:
    enclave = host.create()
    old = host.commit(enclave, "alice", "message", "in time")
    host.now += 200_000
    (outcome,) = host.run(old)
    assert isinstance(outcome, Expired)
    event = host.send(enclave, "alice", "message", "now")
    host.now -= 30_000
    assert host.send(enclave, "alice", "message", "a little earlier").timestamp == event.timestamp


def test_a_clock_set_back_stops_sequencing_also_after_a_restart(host: Host) -> None:
    enclave = host.create()
    host.send(enclave, "alice", "message", "now")
    restarted = Host(host.store)
    for each in (host, restarted):
        each.now = START - 120_000
        (outcome,) = each.run(each.commit(enclave, "alice", "message", "then"))
        assert isinstance(outcome, Unavailable)
        assert outcome.context["retry_after_ms"] > 0


def test_idle_bundles_are_sealed_and_heads_signed(host: Host) -> None:
    enclave = host.create()
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


def sealed(host: Host, enclaves: list[bytes]) -> int:
    host.run()
    return sum(host.store.head(each) is not None for each in enclaves)


def test_after_a_slice_of_sealing_commits_come_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    enclaves = [host.create(meta={"n": n}) for n in range(3)]
    host.now += 2_000
    monkeypatch.setattr(sealing, "SEAL_S", -1.0)
    monkeypatch.setattr(sealing, "SEAL_PAUSE_S", 1e9)
    assert sealed(host, enclaves) == 0
    monkeypatch.setattr(sealing, "SEAL_S", 1e9)
    assert sealed(host, enclaves) == 0
    host.sequencer._sealer._due = 0
    assert sealed(host, enclaves) == 3


def unload(host: Host, *enclaves: bytes) -> None:
    """Drop the states from memory, and all that refers to their rules."""
    host.steps.clear()
    for enclave in enclaves:
        host.sequencer._states.forget(enclave)
        assert enclave not in host.sequencer._states


def test_to_seal_bundles_of_enclaves_that_left_memory_no_rules_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(SqliteStore(tmp_path / "enc.db"))
    enclaves = [host.create(meta={"n": n}) for n in range(3)]
    unload(host, *enclaves[:2])
    host.now += 2_000
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store_module, "parse_manifest", None)
        assert sealed(host, enclaves) == 3
        assert all(each not in host.sequencer._states for each in enclaves[:2])
    for enclave in enclaves:
        assert host.send(enclave, "alice", "message", "later").seq == 1
        loaded = host.store.load(enclave)
        assert loaded is not None
        assert loaded.log.size == 1
        assert loaded.bundle is not None


def test_a_state_that_was_loaded_while_its_bundle_was_sealed_is_loaded_again(tmp_path: Path) -> None:
    host = Host(SqliteStore(tmp_path / "enc.db"))
    enclave, states = host.create(), host.sequencer._states
    unload(host, enclave)
    load, calls = host.store.load, list[bytes]()

    def slow_load(enclave: bytes, policy: Policy | None = None) -> EnclaveState | None:
        loaded = load(enclave, policy)
        calls.append(enclave)
        if len(calls) == 1:
            host.now += 2_000
            assert sealed(host, [enclave]) == 1
        return loaded

    host.store.load = slow_load  # type: ignore[method-assign]
    state = states.get(enclave)
    assert state is not None
    assert state.log.size == 1


def test_nothing_is_told_before_it_is_written() -> None:
    order: list[str] = []

    class Watched(MemoryStore):
        def write(self, steps: Sequence[Step], clock: int) -> None:
            order.append("write")
            super().write(steps, clock)

    host = Host(Watched())
    host.sequencer._deliver = lambda outcomes: order.append("deliver")
    host.sequencer._publish = lambda steps: order.append("publish")
    host.create()
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
    enclave = host.create()
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

        def overdue(self, clock: int, limit: int) -> list[bytes]:
            if self.broken:
                raise Unavailable("no disk")
            return super().overdue(clock, limit)

    store = Failing()
    host = Host(store)
    enclave = host.create()
    commit = host.commit(enclave, "alice", "message", "one")
    store.broken = True
    assert [type(outcome) for outcome in host.run(commit)] == [Unavailable]
    store.broken = False
    assert [o.seq for o in host.run(commit) if isinstance(o, Receipt)] == [1]


def test_idle_enclaves_leave_memory_and_come_back(host: Host) -> None:
    directory = StateCache(host.store, capacity=2)
    host.sequencer = Sequencer(host.store, NODE, lambda: host.now, deliver=host.outcomes.extend, states=directory)
    enclaves = [host.create(meta={"n": i}) for i in range(5)]
    assert len(directory) == 2
    for enclave in enclaves:
        assert host.send(enclave, "alice", "message", "still here").seq == 1


def test_heavy_manifests_leave_memory_sooner(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "MAX_WEIGHT", 5_000)
    directory = StateCache(host.store)
    host.sequencer = Sequencer(host.store, NODE, lambda: host.now, deliver=host.outcomes.extend, states=directory)
    light = [host.create(meta={"n": i}) for i in range(3)]
    assert len(directory) == 3
    heavy = host.create(meta={"text": "x" * 3_900, "half": 0.5})
    assert len(directory) == 1
    for enclave in (*light, heavy):
        assert host.send(enclave, "alice", "message", "still here").seq == 1


def test_a_reader_that_loaded_before_a_write_does_not_put_the_old_state_back(host: Host) -> None:
    enclave = host.create()
    directory = StateCache(host.store)
    old = directory.get(enclave)
    host.send(enclave, "alice", "message", "later")
    new = host.store.load(enclave)
    assert old is not None
    assert new is not None
    directory.put(new)
    assert directory.put(old) is new
    assert directory.get(enclave) is new


def test_a_state_that_was_read_before_a_write_does_not_follow_one_that_left_memory(host: Host) -> None:
    enclave, states = host.create(), host.sequencer._states
    states.forget(enclave)
    load, calls = host.store.load, list[bytes]()

    def slow_load(enclave: bytes, policy: Policy | None = None) -> EnclaveState | None:
        calls.append(enclave)
        loaded = load(enclave, policy)
        if len(calls) == 1:
            host.send(enclave, "alice", "message", "meanwhile")
            states._states.clear()  # it is evicted
            states._weights.clear()
        return loaded

    host.store.load = slow_load  # type: ignore[method-assign]
    state = states.get(enclave)
    assert state is not None
    assert state.seq == 1


def test_the_store_may_fail_before_anything_is_judged(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    enclave = host.create()
    commit = host.commit(enclave, "alice", "message", "one")

    def fail(commits: object) -> None:
        raise Unavailable("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(host.store, "committed_among", fail)
        assert [type(outcome) for outcome in host.run(commit)] == [Unavailable]
    assert [o.seq for o in host.run(commit) if isinstance(o, Receipt)] == [1]


def test_a_held_enclave_takes_nothing_but_a_migrate_until_the_hold_is_over(host: Host) -> None:
    enclave, other = host.create(), host.create(meta={"n": 1})
    found = host.sequencer.checkpoint(enclave, 5_000)
    assert found.seq == 0
    (held,) = host.run(host.commit(enclave, "alice", "message", "now"))
    assert isinstance(held, Unavailable)
    assert 0 < held.context["retry_after_ms"] <= 5_000
    assert host.send(other, "alice", "message", "elsewhere").seq == 1
    host.now += 5_000
    assert host.send(enclave, "alice", "message", "after").seq == 1
    root = host.sequencer.checkpoint(enclave, 30_000).ct_root
    content = {"new_sequencer": person("other node").public.hex(), "prev_seq": 1, "ct_root": root.hex()}
    assert host.send(enclave, "alice", "Migrate", content).seq == 2


def test_a_hold_is_never_longer_than_its_maximum(host: Host) -> None:
    enclave = host.create()
    host.sequencer.checkpoint(enclave, 10 * MAX_HOLD_MS)
    host.now += MAX_HOLD_MS
    assert host.send(enclave, "alice", "message", "after").seq == 1


def test_a_probe_writes_and_fails_where_the_store_or_the_clock_does(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.create()
    created, host.now = host.now, host.now + 1_000
    host.sequencer.probe()
    assert host.store.clock() == created, "only what is written needs a time"

    def fail(steps: object, clock: int) -> None:
        raise Unavailable("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(host.store, "write", fail)
        with pytest.raises(Unavailable):
            host.sequencer.probe()
    host.now -= 120_000
    with pytest.raises(Unavailable):
        host.sequencer.probe()


def test_a_call_runs_on_the_sequencers_thread_and_its_error_comes_back() -> None:
    sequencer = Sequencer(MemoryStore(), NODE, lambda: START, deliver=lambda outcomes: None)
    sequencer.start()
    assert sequencer.call(lambda: threading.current_thread().name).result(10) == "sequencer"
    with pytest.raises(EnclaveNotFound):
        sequencer.call(lambda: sequencer.checkpoint(bytes(32), 0)).result(10)
    sequencer.stop()


def test_what_does_not_begin_in_time_never_runs() -> None:
    sequencer = Sequencer(MemoryStore(), NODE, lambda: START, deliver=lambda outcomes: None)
    ran = list[str]()
    with pytest.raises(Unavailable, match="nothing was changed"):
        sequencer.wait_for(lambda: ran.append("late"), 0)  # its thread does not run yet
    sequencer.start()
    sequencer.wait_for(lambda: ran.append("in time"), 10)
    sequencer.stop()
    assert ran == ["in time"]


def test_calls_after_the_stop_are_unavailable() -> None:
    sequencer = Sequencer(MemoryStore(), NODE, lambda: START, deliver=lambda outcomes: None)
    sequencer.start()
    late = list["Future[None]"]()

    def stop_and_call() -> None:
        sequencer._queue.put(None)
        late.append(sequencer.call(lambda: None))

    sequencer._queue.put(stop_and_call)
    sequencer.stop()
    with pytest.raises(Unavailable, match="shutting down"):
        late[0].result(1)
    with pytest.raises(Unavailable, match="shutting down"):
        sequencer.call(lambda: None).result(1)


def test_an_enclave_that_cannot_be_sealed_stops_no_other(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = host.create(), host.create(meta={"n": 1})
    seal = machine.seal

    def fail(state: Any, now: int, space: Any) -> Any:
        if state.enclave == broken:
            raise KeyError("a node of its tree is missing")
        return seal(state, now, space)

    monkeypatch.setattr(machine, "seal", fail)
    host.now += 2_000
    assert host.send(sound, "alice", "message", "goes on").seq == 1
    assert host.store.head(sound) is not None
    assert host.store.head(broken) is None


def test_a_clock_that_stands_behind_seals_nothing(host: Host) -> None:
    enclave = host.create()
    host.store.write([], host.now + 200_000)
    host.sequencer = Sequencer(host.store, NODE, lambda: host.now, deliver=host.outcomes.extend)
    host.now += 100_000
    host.run()
    assert host.store.head(enclave) is None
    host.now += 40_000
    host.run()
    assert host.store.head(enclave) is not None


def test_quotas_hold_inside_a_batch_too(host: Host) -> None:
    quota = Quota(enclaves=1, events=4, bytes=0)
    host.sequencer = Sequencer(
        host.store,
        NODE,
        lambda: host.now,
        deliver=host.outcomes.extend,
        settings=SequencerSettings(storage=StorageRules(quota=quota)),
    )
    enclave = host.create()
    second = build_manifest(person("alice"), compact_json({**MANIFEST, "meta": {"n": 2}}), host.now + 60_000)
    (refused,) = host.run(second)
    assert isinstance(refused, Unauthorized)
    assert "enclaves" in refused.message
    outcomes = host.run(*(host.commit(enclave, "alice", "message", str(i)) for i in range(5)))
    assert [isinstance(o, Receipt) for o in outcomes] == [True, True, True, False, False]
    assert host.send(enclave, "bob", "note", "others have their own").seq == 4


def test_what_the_operator_forbids_holds_for_commits_that_were_admitted_before(host: Host) -> None:
    held, gone, other = host.create(), host.create(meta={"n": 2}), host.create(meta={"n": 3})
    known = Restrictions()
    settings = SequencerSettings(restrictions=known)
    deliver = host.outcomes.extend
    host.sequencer = Sequencer(host.store, NODE, lambda: host.now, deliver=deliver, settings=settings)
    people = [(held, "alice"), (gone, "alice"), (other, "alice"), (other, "bob")]
    commits = [host.commit(enclave, name, "note", "admitted") for enclave, name in people]
    known.add(Restriction(kind="suspension", target=held.hex(), made_at=0, reason="abuse"))
    known.add(Restriction(kind="purge", target=gone.hex(), made_at=0))
    known.add(Restriction(kind="ban", target=person("bob").public.hex(), made_at=0))
    codes = [getattr(outcome, "code", "") for outcome in host.run(*commits)]
    assert codes == ["ENCLAVE_SUSPENDED", "ENCLAVE_PURGED", "", "BANNED"]


def test_a_quota_of_bytes_counts_contents(host: Host) -> None:
    enclave = host.create()
    used = host.store.usage(person("alice").public).bytes
    quota = Quota(bytes=used + 10)
    host.sequencer = Sequencer(
        host.store,
        NODE,
        lambda: host.now,
        deliver=host.outcomes.extend,
        settings=SequencerSettings(storage=StorageRules(quota=quota)),
    )
    first, second, third = (host.commit(enclave, "alice", "message", text) for text in ("12345", "äöü!", "1"))
    outcomes = host.run(first, second, third)
    assert [isinstance(o, Receipt) for o in outcomes] == [True, False, True]


def test_the_thread_takes_what_many_submit_and_finishes_before_it_stops() -> None:
    store, outcomes, now = MemoryStore(), list[CommitOutcome](), START
    sequencer = Sequencer(store, NODE, lambda: now, deliver=outcomes.extend)
    manifest = build_manifest(person("alice"), compact_json(MANIFEST), now + 60_000)
    sequencer.start()
    sequencer.submit([AdmittedCommit(manifest)])

    def submit(name: str) -> None:
        for i in range(50):
            commit: Any = build_commit(person(name), manifest.enclave, "note", f"{name} {i}", now + 60_000)
            sequencer.submit([AdmittedCommit(commit, name)])

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
