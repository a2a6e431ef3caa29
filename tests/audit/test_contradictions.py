"""Proofs of a node against its log: which of them contradict it, and which one is reported."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from enc.audit import contradictions
from enc.audit.collected_heads import CollectedHead
from enc.audit.contradictions import Contradiction, first_contradiction
from enc.audit.finding import Finding
from enc.core.errors import InvalidCommit
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.claim import Claim
from enc.core.machine.observed_roots import ObservedRoots
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import TreeHead
from enc.core.trees.bundle import prove_membership
from tests.client.evidence.logs import MANIFEST, NODE, claim, head
from tests.core.world import START, World

WRONG = sha256(b"a state")
Proved = tuple[Claim, TreeHead]


@pytest.fixture(scope="module")
def world() -> World:
    """Return a log of three bundles of four events, and three more events."""
    made = World(MANIFEST)
    for i in range(14):
        made.send("alice", "message", f"number {i}")
    return made


def drawn(world: World, index: int, first: int, end: int) -> Proved:
    """Return what the node would prove of a bundle that holds these events."""
    ids = [event.id for event in world.events[first:end]]
    return claim(world, index, ids, world.memory.bundles[index].state_hash)


def found(world: World, *proved: Proved, signer: bytes | None = NODE.public, cut: int = 99) -> Contradiction | None:
    marks = ObservedRoots((), [made for made, _ in proved])
    replay = AuditReplay(world.state.enclave, on_step=marks.step)
    for event in world.events[:cut]:
        replay.add(event)
    marks.end(replay)

    def ids(first: int, count: int) -> Sequence[bytes]:
        assert first >= 0
        return [event.id for event in world.events[first : first + count]]

    held = [(CollectedHead(head=over, source="bob", claim=made), signer) for made, over in proved]
    return first_contradiction(held, marks.bundles, marks.places, ids)


def test_a_bundle_that_the_rule_does_not_draw(world: World) -> None:
    made, over = drawn(world, 1, 4, 7)
    what = "the node put 3 events from 4 on into bundle 1; by the rule it holds 4 from 4 on"
    held = CollectedHead(head=over, source="bob", claim=made)
    contradiction = found(world, (made, over))
    assert contradiction == Contradiction(
        kind="wrong_bundle_boundary",
        index=1,
        seq=7,
        what=what,
        size=3,
        state_hash=made.leaf.state_hash,
        held=held,
        signer=NODE.public,
    )
    assert contradiction.finding(world.state.enclave, "a.enc") == Finding(
        kind="wrong_bundle_boundary",
        enclave=world.state.enclave,
        seq=7,
        what=what,
        path="a.enc",
        sequencer=NODE.public,
        heads=(held,),
        before=1,
        timestamp=START,
    )


def test_a_wrong_state_is_found_without_the_bundle_s_events(world: World) -> None:
    ids = [event.id for event in world.events[4:8]]
    made, over = claim(world, 1, ids, WRONG)
    for size in (4, 3):  # anyone may have written another size into the proof
        first = replace(prove_membership(ids, 0), size=size)
        contradiction = found(world, (replace(made, seq=4, membership=first), over))
        assert contradiction is not None
        assert (contradiction.kind, contradiction.seq, contradiction.state_hash) == ("wrong_state_root", 7, WRONG)


def test_the_contradiction_about_the_earliest_bundle_is_reported(world: World) -> None:
    later, earlier = drawn(world, 2, 8, 11), drawn(world, 0, 0, 3)
    for order in ((later, earlier), (earlier, later)):
        contradiction = found(world, *order)
        assert contradiction is not None
        assert (contradiction.index, contradiction.seq) == (0, 3)


def test_what_is_no_contradiction(world: World) -> None:
    made, over = drawn(world, 1, 4, 7)
    assert found(world, drawn(world, 1, 4, 8)) is None
    assert found(world, (made, over), signer=None) is None
    assert found(world, (made, head(world, 3))) is None
    assert found(world, (made, over), cut=4) is None  # neither the bundle nor the event is in the log
    assert found(world, (made, over), cut=6) is None  # the event is not
    assert found(world, (replace(made, seq=2), over), cut=4) is None  # the bundle is not
    assert first_contradiction([(CollectedHead(head=over, source="bob"), NODE.public)], {}, {}, lambda *_: ()) is None


def test_a_wrong_bundle_has_exactly_the_log_s_events(world: World) -> None:
    """Only sixteen are compared with the log."""
    made, over = drawn(world, 1, 4, 9)
    another = replace(made, membership=replace(made.membership, size=6))
    assert found(world, (another, over)) is None
    assert found(world, (another, over), (made, over)) is not None
    assert found(world, *[(another, over)] * 15, (made, over)) is not None
    assert found(world, *[(another, over)] * 16, (made, over)) is None


def test_a_wrong_bundle_does_not_begin_before_the_log(world: World) -> None:
    ids = [WRONG, *(event.id for event in world.events[:2])]
    assert found(world, claim(world, 0, ids, world.memory.bundles[0].state_hash)) is None


def test_so_many_events_of_a_bundle_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    World({**MANIFEST, "bundle": {"size": contradictions.MAX_SIZE, "timeout": 1000}})
    with pytest.raises(InvalidCommit, match=r"^bundle\.size"):
        World({**MANIFEST, "bundle": {"size": contradictions.MAX_SIZE + 1, "timeout": 1000}})
    made = drawn(world, 1, 4, 9)
    monkeypatch.setattr(contradictions, "MAX_SIZE", 5)
    assert found(world, made) is not None
    monkeypatch.setattr(contradictions, "MAX_SIZE", 4)
    assert found(world, made) is None
