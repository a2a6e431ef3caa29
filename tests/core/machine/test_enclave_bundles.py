"""The state machine: bundles, timestamps, and that it changes no values outside."""

from copy import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enc.core.errors import (
    Expired,
    InvalidCommit,
    Unavailable,
)
from enc.core.machine import enclave
from enc.core.machine.early_tree import MAX_PENDING
from enc.core.machine.enclave import apply, checkpoint_root, next_timestamp, state_hash
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import EMPTY_HASH, log_leaf
from enc.core.trees.bundle import events_root, split
from enc.core.trees.merkle_log import Edge
from enc.core.trees.state_key import LIFECYCLE_KEY, identity_key
from tests.core.machine.enclave_town import MIGRATED, PAUSED, everything, opened, town
from tests.core.stored import memory_of
from tests.core.world import (
    LIFETIME,
    START,
    World,
    about,
    move,
    person,
)

# Bundles


def counts(world: World) -> list[int]:
    return [bundle.count for bundle in world.memory.bundles]


def test_a_bundle_closes_at_its_size() -> None:
    world = town(size=3)
    world.send("bob", "note")
    assert (counts(world), opened(world).count) == ([], 2)
    world.send("bob", "note")
    assert (counts(world), world.state.bundle) == ([3], None)
    world.send("bob", "note")
    assert (counts(world), opened(world).count) == ([3], 1)


def test_bundles_of_one_close_at_once_from_the_manifest_on() -> None:
    world = town(size=1)
    assert counts(world) == [1]
    world.send("bob", "note")
    assert counts(world) == [1, 1]


@pytest.mark.parametrize(("at", "closed"), [(4999, []), (5000, [2]), (5001, [2])])
def test_an_event_at_the_deadline_of_the_first_opens_the_next_bundle(at: int, closed: list[int]) -> None:
    world = town()
    world.send("bob", "note", at=4000)
    world.send("bob", "note", at=at)
    assert counts(world) == closed
    assert opened(world).first_seq == (2 if closed else 0)


def test_a_bundle_that_closes_before_an_event_holds_the_state_before_it() -> None:
    world = town()
    before = world.state_hash
    shared = world.send("bob", "Shared", {"key": "k", "value": 1}, at=5000)
    assert world.memory.bundles[0].state_hash == before != world.state_hash
    assert world.memory.bundles[0].events_root == world.events[0].id
    assert world.shared("k") == shared.content_hash


def test_a_bundle_that_closes_after_an_event_holds_the_state_after_it() -> None:
    world = town(size=2)
    world.send("bob", "Shared", {"key": "k", "value": 1})
    assert world.memory.bundles[0].state_hash == world.state_hash == world.state.root
    assert world.memory.bundles[0].events_root == events_root([event.id for event in world.events])
    assert world.state.pending == {}


def test_migrate_closes_its_bundle_at_once() -> None:
    world = town()
    world.send("bob", "note")
    world.send("alice", "Migrate", world.migrate("node2"))
    assert (counts(world), world.state.bundle) == ([3], None)
    world.send("bob", "note")
    assert opened(world).sequencer == person("node2").public


def test_a_forced_migrate_closes_the_trailing_bundle_and_then_its_own() -> None:
    world = town()
    world.send("bob", "Shared", {"key": "k", "value": 1})
    before = world.state_hash
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    assert counts(world) == [2, 1]
    assert [bundle.index for bundle in world.step.closed] == [0, 1]
    assert [bundle.first_seq for bundle in world.step.closed] == [0, 2]
    assert [bundle.state_hash for bundle in world.step.closed] == [before, world.state_hash]


def test_the_log_has_one_leaf_for_each_bundle() -> None:
    world = town(size=2)
    assert world.state.log.root() == EMPTY_HASH
    for i in range(9):
        world.send("bob", "Own", {"key": "k", "value": i})
    leaves = [log_leaf(bundle.events_root, bundle.state_hash) for bundle in world.memory.bundles]
    assert len(leaves) == 5
    assert world.state.log == Edge().extend(leaves)[0]
    assert [bundle.index for bundle in world.memory.bundles] == list(range(5))


def test_the_checkpoint_counts_the_open_bundle_as_closed() -> None:
    world = town(size=3)
    world.send("bob", "Own", {"key": "k", "value": 1})
    root = checkpoint_root(world.state, world.memory)
    leaf = log_leaf(events_root([event.id for event in world.events]), world.state_hash)
    assert root == Edge().append(leaf)[0].root() != world.state.log.root()
    world.send("bob", "note")
    assert checkpoint_root(world.state, world.memory) == world.state.log.root()


@pytest.mark.parametrize(("at", "sealed"), [(0, False), (4999, False), (5000, True), (90_000, True)])
def test_a_bundle_is_sealed_from_its_deadline_on(at: int, sealed: bool) -> None:
    world = town()
    world.send("bob", "note", at=10)
    before = world.state
    transition = world.seal(at)
    if not sealed:
        assert (transition, world.state) == (None, before)
        return
    assert (counts(world), world.state.bundle) == ([2], None)
    assert (world.state.min_timestamp, world.state.seq) == (START + 5000, 1)
    assert world.state.log.root() == checkpoint_root(before, world.memory)


def test_without_an_open_bundle_there_is_nothing_to_seal() -> None:
    world = town(size=1)
    assert world.seal(90_000) is None


def test_sealing_twice_is_sealing_once() -> None:
    world = town()
    world.seal(5000)
    assert world.seal(90_000) is None


def test_a_sealed_bundle_takes_no_later_event() -> None:
    world = town()
    world.seal(6000)
    world.send("bob", "note", at=5000)
    assert (counts(world), opened(world).first_seq) == ([1], 1)


def test_a_sealed_bundle_keeps_the_checkpoint_that_a_migrate_names() -> None:
    world = town()
    world.send("bob", "note")
    content = world.migrate("node2")
    world.seal(5000)
    assert world.migrate("node2") == content
    world.send("alice", "Migrate", content, at=5000)
    assert counts(world) == [2, 1]


gaps = st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from(["note", "Own", "Migrate"])), max_size=25)


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 6), timeout=st.integers(1, 60), steps=gaps)
def test_sealing_gives_the_log_of_the_literal_rule(size: int, timeout: int, steps: list[tuple[int, bool, str]]) -> None:
    world, clock = town(size=size, timeout=timeout), 0
    for i, (gap, seals, type_) in enumerate(steps):
        clock += gap
        if seals:
            world.seal(clock)
        content = {"note": str(i), "Own": {"key": "k", "value": i}, "Migrate": world.migrate("node2")}[type_]
        commit = world.commit("alice", type_, content, at=clock)
        at = next_timestamp(world.state, commit, START + clock) - START
        world.send("alice", type_, content, at=at)
    literal = Replay()
    for event in world.events:
        literal.add(event)
    closed = len(memory_of(literal).bundles)
    assert world.memory.bundles[:closed] == memory_of(literal).bundles
    assert len(world.memory.bundles) - closed in (0, 1)
    assert checkpoint_root(world.state, world.memory) == literal.checkpoint_root()
    assert world.state_hash == literal.state_hash()
    bundles = [
        (bundle.first_seq, bundle.count, bundle.events_root()) for bundle in split(world.events, world.policy.bundle)
    ]
    assert [(b.first_seq, b.count, b.events_root) for b in world.memory.bundles] == bundles[: len(world.memory.bundles)]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_flushing_what_is_pending_changes_no_root(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> World:
        world = town(size=40)
        for i in range(12):
            world.send("bob", "Own", {"key": "k", "value": i})
            note = world.send("bob", "note")
            world.send("bob", "Update", "new", tags=about(note))
            world.send("alice", "Move", move(f"guest {i}", "OUTSIDER", "GUEST"))
        return world

    plain = run()
    monkeypatch.setattr(enclave, "MAX_PENDING", limit)
    flushed = run()
    assert len(flushed.state.pending) <= limit < len(plain.state.pending)
    assert flushed.events == plain.events
    assert flushed.memory.bundles == plain.memory.bundles
    assert flushed.state_hash == plain.state_hash
    assert checkpoint_root(flushed.state, flushed.memory) == checkpoint_root(plain.state, plain.memory)


def test_a_state_carries_no_more_than_max_pending() -> None:
    world = town(size=65_536)
    operations = [{"type": "Move", **move(f"guest {i}", "OUTSIDER", "GUEST")} for i in range(150)]
    world.send("alice", "AC_Bundle", {"operations": operations})
    assert len(world.state.pending) == 153
    world.send("alice", "AC_Bundle", {"operations": [{**o, "from": "GUEST", "to": "MEMBER"} for o in operations[:100]]})
    assert len(world.state.pending) == 153
    more = [{"type": "Move", **move(f"visitor {i}", "OUTSIDER", "GUEST")} for i in range(104)]
    world.send("alice", "AC_Bundle", {"operations": more[:103]})
    assert len(world.state.pending) == MAX_PENDING == 256
    world.send("alice", "AC_Bundle", {"operations": more[103:]})
    assert world.state.pending == {}
    assert [world.bitmask(name) for name in ("guest 0", "guest 149", "visitor 103")] == [1, 2, 2]


def test_a_transition_names_the_leaves_that_the_event_changed() -> None:
    world = town(size=3)
    assert set(world.step.leaves) == {identity_key(person(name).public) for name in ("alice", "bob", "carol")}
    world.send("bob", "note")
    assert (world.step.leaves, world.step.flushed) == ({}, False)
    world.send("alice", "Pause")
    assert (world.step.leaves, world.step.flushed) == ({LIFECYCLE_KEY: PAUSED}, True)
    world.send("alice", "Migrate", world.migrate("node2"))
    assert (world.step.leaves, world.step.flushed) == ({LIFECYCLE_KEY: MIGRATED}, True)
    world.send("alice", "Resume")
    assert (world.step.leaves, world.step.flushed) == ({LIFECYCLE_KEY: None}, False)
    sealed = world.seal(90_000)
    assert sealed is not None
    assert (sealed.leaves, world.step.flushed) == ({}, True)


# Time


def test_a_timestamp_is_the_clock_or_the_floor() -> None:
    world = town()
    commit = world.commit("bob", "note", at=0)
    world.send("bob", "note", at=300)
    for clock, timestamp in [(0, 300), (299, 300), (300, 300), (301, 301)]:
        assert next_timestamp(world.state, commit, START + clock) == START + timestamp
    assert next_timestamp(None, commit, START + 7) == START + 7
    world.seal(5000)
    assert next_timestamp(world.state, commit, START + 301) == START + 5000


def test_no_event_is_given_a_timestamp_that_replay_would_refuse_for_its_exp() -> None:
    """A clock that was set back between admission and sequencing must not make a log that no node can import."""
    commit = town().commit("bob", "note")
    earliest = commit.exp - 3_660_000
    assert next_timestamp(None, commit, earliest) == earliest
    with pytest.raises(InvalidCommit, match="more than an hour ahead"):
        next_timestamp(None, commit, earliest - 1)


def test_a_timestamp_more_than_60_s_after_exp_is_expired() -> None:
    world = town()
    commit = world.commit("bob", "note", at=0)
    last = commit.exp + 60_000
    assert next_timestamp(world.state, commit, last) == last
    with pytest.raises(Expired):
        next_timestamp(world.state, commit, last + 1)
    with pytest.raises(Expired):
        next_timestamp(None, commit, last + 1)


def test_a_floor_beyond_exp_makes_a_commit_expired_too() -> None:
    world = town()
    commit = world.commit("bob", "note", at=0)
    world.send("bob", "note", at=LIFETIME + 60_001)
    with pytest.raises(Expired):
        next_timestamp(world.state, commit, START + LIFETIME + 1)


def test_a_log_more_than_60_s_ahead_of_the_clock_is_unavailable_until_the_clock_is_there() -> None:
    world = town()
    world.send("bob", "note", at=100_000)
    commit = world.commit("bob", "note", at=100_000)
    assert next_timestamp(world.state, commit, START + 40_000) == START + 100_000
    with pytest.raises(Unavailable) as caught:
        next_timestamp(world.state, commit, START + 39_999)
    assert caught.value.context == {"retry_after_ms": 60_001}


# Purity


def test_judge_changes_nothing() -> None:
    world = town()
    note = world.send("alice", "note")
    state, pending = world.state, dict(world.state.pending)
    memory = copy(vars(world.memory))
    for type_, (content, tags) in everything(world, note).items():
        world.code("alice", type_, content, tags=tags)
        world.code("otto", type_, content, tags=tags)
    assert world.state is state
    assert world.state.pending == pending
    assert vars(world.memory) == memory


def test_judging_twice_gives_the_same_effects() -> None:
    world = town()
    note = world.send("alice", "note")
    for type_, (content, tags) in everything(world, note).items():
        if not world.code("alice", type_, content, tags=tags):
            commit = world.commit("alice", type_, content, tags=tags)
            assert world.judge(commit) == world.judge(commit)


def test_an_old_state_still_serves_two_futures() -> None:
    world = town(size=4)
    world.send("bob", "Own", {"key": "k", "value": 0})
    state, pending, root = world.state, dict(world.state.pending), world.state_hash
    futures = []
    for value in (1, 2):
        world.state, now = state, []
        for i in range(5):
            now.append(world.send("bob", "Own", {"key": "k", "value": [value, i]}))
        futures.append((world.state, now))
        assert state.pending == pending
        assert state_hash(state, world.memory) == root
    for after, now in futures:
        replay = Replay()
        for event in [*world.events[:2], *now]:
            replay.add(event)
        assert replay.state == after
        assert state_hash(after, world.memory) == replay.state_hash()
    assert futures[0][0].log != futures[1][0].log


def test_applying_the_same_event_twice_to_one_state_gives_the_same_transition() -> None:
    world = town(size=2)
    state, memory = world.state, EnclaveMemory()
    event = world.send("bob", "Own", {"key": "k", "value": 0})
    assert apply(state, event, world.effects, memory) == apply(state, event, world.effects, memory) == world.step
