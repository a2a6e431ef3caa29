"""What a replay records of a log, and how a node's proofs are compared with it."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from enc.core.log.event import finalize
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.claim import Claim
from enc.core.machine.observed_roots import ObservedBundle, ObservedRoot, ObservedRoots, contradiction, is_run
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event
from enc.core.trees.bundle import events_root
from tests.client.evidence.logs import MANIFEST, NODE, claim, edge
from tests.core.world import World, person

WRONG = sha256(b"a state")


@pytest.fixture(scope="module")
def world() -> World:
    """Return a log with bundles of events 0 to 3, 4 to 6 (closed by the time of event 7) and 7 to
    10, and two more events.
    """
    made = World(MANIFEST)
    for i in range(6):
        made.send("alice", "message", f"number {i}")
    for i in range(6):
        made.send("alice", "message", f"later {i}", at=5000 + i)
    assert [(bundle.first_seq, bundle.count) for bundle in made.memory.bundles] == [(0, 4), (4, 3), (7, 4)]
    return made


def observed(
    events: Sequence[Event], sizes: Sequence[int] = (), claims: Sequence[Claim] = (), drawn: Mapping[int, int] = {}
) -> ObservedRoots:
    marks = ObservedRoots(sizes, claims)
    replay = AuditReplay(events[0].enclave, on_step=marks.step, node_bundle_sizes=drawn)
    for event in events:
        replay.add(event)
    replay.finish()
    marks.end(replay)
    return marks


def root(world: World, size: int) -> bytes:
    return edge(world, size)[0].root()


def test_the_roots_at_the_sizes_asked_for(world: World) -> None:
    """Bundle 0 is closed by its own last event, bundle 1 by the next."""
    marks = observed(world.events, (1, 2))
    assert marks.at(1) == ObservedRoot(root(world, 1), 3, NODE.public, 4, True, 3)
    assert marks.at(2) == ObservedRoot(root(world, 2), 6, NODE.public, 7, True, 7)
    assert set(marks.roots) == {1, 2}


def test_a_bundle_that_is_open_at_the_end_is_recorded_as_far_as_it_goes(world: World) -> None:
    marks = observed(world.events, (4,))
    mark = marks.at(4)
    assert mark is not None
    assert (mark.seq, mark.sequencer, mark.end, mark.is_closed) == (12, NODE.public, 13, False)
    assert observed(world.events, (3,)).at(4) is None
    assert set(observed(world.events[:11], (3, 4)).roots) == {3}


def test_a_bundle_that_another_key_closes_is_not_closed_by_the_rule(world: World) -> None:
    strange = finalize(world.events[2], person("eve"), world.events[2].timestamp, 2)
    mark = observed([*world.events[:2], strange], (1,)).at(1)
    assert mark is not None
    assert (mark.seq, mark.end, mark.is_closed) == (1, 2, False)


def test_a_bundle_that_the_node_closed_early_is_recorded(world: World) -> None:
    mark = observed(world.events, (1,), drawn={0: 2}).at(1)
    assert mark is not None
    assert (mark.seq, mark.end, mark.is_closed, mark.closed_by) == (1, 2, True, 2)


def drawn(world: World, index: int, first: int, end: int, state: bytes | None = None) -> Claim:
    ids = [event.id for event in world.events[first:end]]
    return claim(world, index, ids, world.memory.bundles[index].state_hash if state is None else state)[0]


def found(world: World, made: Claim, cut: int = 99) -> tuple[str, int] | None:
    """Return kind and seq of the contradiction between a claim and the log up to an event."""
    marks = observed(world.events[:cut], claims=[made])
    against = contradiction(made, marks.bundles[made.index], marks.places[made.seq].at)
    return None if against is None else against[:2]


def test_the_bundles_and_events_that_claims_are_about(world: World) -> None:
    made = drawn(world, 1, 4, 7)
    marks = observed(world.events, claims=[made])
    bundle = world.memory.bundles[1]
    assert marks.bundles == {1: ObservedBundle(4, 4, 3, 6, bundle.events_root, bundle.state_hash, True, 7)}
    assert (marks.places[6].id, marks.places[6].at) == (world.events[6].id, 6)
    open_ = observed(world.events[:6], claims=[made]).bundles[1]
    ids = [event.id for event in world.events[4:6]]
    assert (open_.first_seq, open_.first_at, open_.count, open_.last_seq) == (4, 4, 2, 5)
    assert (open_.events_root, open_.is_closed) == (events_root(ids), False)


def test_where_a_wrong_bundle_departs_from_the_log_s(world: World) -> None:
    assert found(world, drawn(world, 0, 0, 4)) is None
    assert found(world, drawn(world, 0, 0, 3)) == ("wrong_bundle_boundary", 3)
    assert found(world, drawn(world, 0, 0, 6)) == ("wrong_bundle_boundary", 4)
    assert found(world, drawn(world, 2, 8, 11)) == ("wrong_bundle_boundary", 7)
    assert found(world, drawn(world, 2, 6, 10)) == ("wrong_bundle_boundary", 6)


def test_an_open_bundle_contradicts_only_what_ends_before_it_does(world: World) -> None:
    assert found(world, drawn(world, 2, 7, 9), cut=10) == ("wrong_bundle_boundary", 9)
    assert found(world, drawn(world, 2, 7, 10), cut=10) is None
    assert found(world, drawn(world, 2, 7, 11), cut=11) is None
    assert found(world, drawn(world, 2, 8, 9), cut=10) is None  # the log may lack what is before


def test_a_state_contradicts_only_a_closed_bundle(world: World) -> None:
    assert found(world, drawn(world, 2, 7, 11, WRONG)) == ("wrong_state_root", 10)
    ids = [event.id for event in world.events[7:10]]
    open_ = claim(world, 2, ids, WRONG)[0]
    assert found(world, open_, cut=10) is None


def test_a_run_of_events_is_a_bundle_by_number_and_root(world: World) -> None:
    """The padded tree of three events is also one of four."""
    made = drawn(world, 1, 4, 7)
    ids = [event.id for event in world.events[4:7]]
    wide = replace(made, membership=replace(made.membership, size=4))
    assert is_run(ids, made)
    assert not is_run(ids, wide)
    assert not is_run(ids[::-1], made)
    assert not is_run(ids[:2], made)
