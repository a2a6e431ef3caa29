"""Evidence from a log, checked without anything else: what convicts, what only shows, what is invalid."""

import msgspec
import pytest
from msgspec.structs import replace

from enc.client import check_evidence
from enc.client.evidence.log_evidence import log_parts, order_parts, single_parts
from enc.client.evidence.verdict import Verdict
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.fault import FaultKind
from enc.core.primitives.hashing import log_leaf, sha256
from enc.core.primitives.types import Event
from enc.core.trees.bundle import events_root, prove_membership
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from tests.client.evidence.logs import MANIFEST, NODE, bare, claim, evidence, head, log, proved, refused
from tests.core.registry_world import Registry, node_entry
from tests.core.world import START, World, person, pub, withheld

# Heads


def test_a_head_with_another_root_convicts(world: World) -> None:
    wrong = head(world, 2, sha256(b"wrong"))
    verdict = log(world, "head_not_on_log", 7, bare(world), head=wrong)
    assert verdict.convicts
    assert "15 events: each with its author's signature" in verdict.proved[0]
    refused(lambda: log(world, "head_not_on_log", 7, head=head(world, 2)), "the head matches the log")
    refused(lambda: log(world, "head_not_on_log", 6, head=wrong), "has another size")
    refused(lambda: log(world, "head_not_on_log", 7, bare(world)[:5], head=wrong), "has another size")
    refused(lambda: log(world, "head_not_on_log", 7, head=wrong, by="node2"), "not signed by this sequencer")
    forged = replace(wrong, bound_sig=bytes(64))
    refused(lambda: log(world, "head_not_on_log", 7, head=forged), "bound_sig is not")
    refused(lambda: log(world, "wrong_log_root", 7), "neither a head nor a checkpoint")


def test_nobody_is_convicted_by_a_head_that_names_no_enclave(world: World) -> None:
    unbound = replace(head(world, 2, sha256(b"wrong")), bound_sig=None)
    verdict = log(world, "head_not_on_log", 7, head=unbound)
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert any("names no enclave" in each for each in verdict.not_proved)
    refused(lambda: log(world, "head_not_on_log", 7, head=unbound, by="node2"), "not signed by this sequencer")


def test_nobody_is_convicted_by_a_log_that_was_cut(world: World) -> None:
    """An honest head of four bundles, and events that end within the fourth."""
    sealed = World(MANIFEST)
    for i in range(15):
        sealed.send("alice", "message", f"number {i}")
    verdict = log(world, "wrong_log_root", 13, sealed.events[:14], head=head(sealed, 4))
    assert not verdict.convicts
    assert verdict.holds
    assert any("no event after 13" in each for each in verdict.not_proved)


def test_nobody_is_convicted_by_an_event_that_the_node_did_not_sign(world: World) -> None:
    forged = [*bare(world)[:3], finalize(world.events[3], person("node2"), world.events[3].timestamp, 3)]
    forged[3] = replace(forged[3], sequencer=NODE.public)
    verdict = log(world, "head_not_on_log", 7, [*forged, *bare(world)[4:]], head=head(world, 2))
    assert not verdict.convicts
    assert any("event 3" in each for each in verdict.not_proved)


def test_a_checkpoint_is_nobodys_word(world: World) -> None:
    verdict = log(world, "wrong_log_root", 14, checkpoint=(14, bytes(32)))
    assert (verdict.convicts, verdict.holds) == (False, True)


# Whom a log convicts


@pytest.fixture(scope="module")
def admitted() -> World:
    """Return an honest log, in which event 2 lets bob write."""
    made = World(MANIFEST)
    made.send("alice", "message", "hello")
    made.send("alice", "Move", {"target": pub("bob"), "from": "OUTSIDER", "to": "MEMBER"})
    for i in range(9):
        made.send("bob", "message", f"number {i}")
    return made


def doctored(world: World, how: str) -> list[Event]:
    """Return an honest log, altered by someone who wants the node convicted of event 3."""
    events = list(world.events)
    if how == "left out":
        return [*events[:2], *events[3:]]
    if how == "moved":
        return [*events[:2], *events[3:5], events[2], *events[5:]]
    if how == "erased":
        events[2] = erase(events[2])
    if how == "stranger":
        events[2] = finalize(world.commit("alice", "message", "hi", at=2), person("eve"), events[2].timestamp, 2)
    return events


@pytest.mark.parametrize("how", ["left out", "moved", "erased", "stranger"])
def test_nobody_is_convicted_by_a_log_that_others_changed(admitted: World, how: str) -> None:
    events = doctored(admitted, how)
    verdict = log(admitted, "unauthorised_event", 3, events)
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert any("that the log is" in each for each in verdict.not_proved)


@pytest.mark.parametrize(("how", "size", "seq"), [("left out", 2, 8), ("moved", 2, 7), ("stranger", 3, 6)])
def test_nobody_is_convicted_by_a_head_beside_such_a_log(admitted: World, how: str, size: int, seq: int) -> None:
    verdict = log(admitted, "head_not_on_log", seq, doctored(admitted, how), head=head(admitted, size))
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_nobody_is_convicted_by_an_event_of_another_enclave(admitted: World) -> None:
    """The node signed the event for that seq, but of another log."""
    other = World({**MANIFEST, "bundle": {"size": 5, "timeout": 1000}})
    other.send("alice", "message", "there")
    other.send("alice", "message", "and there")
    events = [*admitted.events[:2], other.events[2], *admitted.events[3:]]
    verdict = log(admitted, "unauthorised_event", 2, events)
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_nobody_is_convicted_by_a_stranger_who_closes_a_bundle(admitted: World) -> None:
    event = admitted.events[6]
    early = finalize(admitted.commit("alice", "message", "no", at=6), person("eve"), event.timestamp, 6)
    verdict = log(admitted, "head_not_on_log", 5, [*admitted.events[:6], early], head=head(admitted, 2))
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_nobody_is_convicted_by_a_log_that_another_went_on_with(world: World) -> None:
    """An owner continued elsewhere from an older copy: the node's own head is not on that log."""
    copy = World(MANIFEST)
    for i in range(5):
        copy.send("alice", "message", f"number {i}")
    assert copy.events == world.events[:6]
    copy.send("alice", "Migrate", copy.migrate("node2"), node="node2", takeover=True)
    for i in range(9):
        copy.send("alice", "message", f"there {i}", node="node2")
    verdict = log(copy, "head_not_on_log", 6, head=head(world, 3))
    assert (verdict.convicts, verdict.holds) == (False, True)
    cut = log(copy, "head_not_on_log", 5, head=head(world, 2))
    assert (cut.convicts, cut.holds) == (False, True)
    wrong = log(copy, "head_not_on_log", 10, head=head(copy, 4, sha256(b"x"), by="node2"), by="node2")
    assert wrong.convicts


def test_a_sequencer_is_bound_by_its_own_head_over_what_another_signed(world: World) -> None:
    """The Migrate that gave it the log is the former sequencer's word, who may sign a second one."""
    moved = World(MANIFEST)
    moved.send("alice", "Migrate", moved.migrate("node2"))
    moved.send("alice", "message", "there", node="node2")
    event = finalize(moved.commit("carol", "message", "hello"), person("node2"), START + moved.next, 3)
    events = [*moved.events, event]
    alone = log(moved, "unauthorised_event", 3, events, by="node2")
    assert (alone.convicts, alone.holds) == (False, True)
    assert any(f"{pub('node')} signed event 0" in each for each in alone.not_proved)
    own = head(moved, 1, by="node2")
    assert log(moved, "unauthorised_event", 3, events, by="node2", anchor=own).convicts
    loose = replace(own, bound_sig=None)
    assert not log(moved, "unauthorised_event", 3, events, by="node2", anchor=loose).convicts
    others = head(moved, 1)
    refused(lambda: log(moved, "unauthorised_event", 3, events, by="node2", anchor=others), "not signed by this")
    wrong = head(moved, 1, sha256(b"x"), by="node2")
    refused(lambda: log(moved, "unauthorised_event", 3, events, by="node2", anchor=wrong), "anchor: the log has")
    rest = finalize(moved.commit("alice", "message", "no move"), NODE, moved.events[1].timestamp, 1)
    framed = log(moved, "sequencer_change", 2, [moved.events[0], rest, moved.events[2]], by="node2")
    assert (framed.convicts, framed.holds) == (False, True)


def test_a_sequencer_is_bound_by_the_migrate_with_which_it_took_the_log(world: World) -> None:
    """It signed the checkpoint root of everything before."""
    moved = World(MANIFEST)
    moved.send("alice", "message", "before")
    moved.send("alice", "Migrate", moved.migrate("node2"), node="node2", takeover=True)
    event = finalize(moved.commit("carol", "message", "hello"), person("node2"), START + moved.next, 3)
    assert log(moved, "unauthorised_event", 3, [*moved.events, event], by="node2").convicts


def test_a_log_in_evidence_has_a_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.client.evidence.check_log_evidence.MAX_EVENTS", 14)
    refused(lambda: log(world, "gap", 3), "over 14 events")


# What the node proved


def test_a_bundle_that_the_rule_does_not_draw_convicts(world: World) -> None:
    state = world.memory.bundles[1].state_hash
    short, over = claim(world, 1, [event.id for event in world.events[4:7]], state)
    assert log(world, "wrong_bundle_boundary", 7, head=over, claim=short).convicts
    refused(lambda: log(world, "wrong_bundle_boundary", 6, head=over, claim=short), "another fault than claimed")
    refused(lambda: log(world, "wrong_state_root", 7, head=over, claim=short), "another fault than claimed")
    refused(lambda: log(world, "wrong_bundle_boundary", 7, head=head(world, 3), claim=short), "not under the head")
    refused(lambda: log(world, "wrong_bundle_boundary", 7, head=over), "is missing")
    right, honest = claim(world, 1, [event.id for event in world.events[4:8]], state)
    refused(lambda: log(world, "wrong_bundle_boundary", 7, head=honest, claim=right), "matches the log")


def test_nobody_is_convicted_by_a_bundle_that_was_cut(world: World) -> None:
    right, honest = claim(world, 1, [event.id for event in world.events[4:8]], world.memory.bundles[1].state_hash)
    refused(lambda: log(world, "wrong_bundle_boundary", 6, world.events[:6], head=honest, claim=right), "missing")
    ids = [event.id for event in world.events[4:8]]
    early = replace(right, seq=5, membership=prove_membership(ids, 1))
    refused(
        lambda: log(world, "wrong_bundle_boundary", 6, world.events[:6], head=honest, claim=early), "matches the log"
    )


def test_a_state_that_nobody_made_convicts(world: World) -> None:
    wrong, over = claim(world, 1, [event.id for event in world.events[4:8]], sha256(b"a state"))
    assert log(world, "wrong_state_root", 7, bare(world), head=over, claim=wrong).convicts


# What others can make of an honest node's statements


def test_an_entry_of_a_registry_without_its_content_convicts_nobody() -> None:
    registry = Registry()
    registry.send("alice", "Reg_Node", node_entry("alice"))
    registry.send("alice", "Reg_Node", node_entry("alice", "https://other.example"))
    events = list(registry.events)
    events[1] = erase(events[1])
    refused(lambda: log(registry, "unauthorised_event", 1, events), "no unauthorised_event at 1")
    verdict = log(registry, "erasure_without_cause", 1, events)
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert "missing from this copy" in verdict.proved[1]


def test_a_manifest_without_its_content_convicts_nobody(world: World) -> None:
    events = [erase(world.events[0]), *world.events[1:]]
    refused(lambda: log(world, "unauthorised_event", 0, events), "no unauthorised_event at 0")
    assert not log(world, "erasure_without_cause", 0, events).convicts


def test_a_state_without_a_content_convicts_nobody(slotted: World) -> None:
    """Also without the content of the very last event of the bundle."""
    honest, over = proved(slotted, 1)
    events = list(slotted.events)
    events[6] = erase(events[6])
    refused(lambda: log(slotted, "wrong_state_root", 6, events, head=over, claim=honest), "cannot be determined")
    refused(lambda: log(slotted, "wrong_state_root", 6, head=over, claim=honest), "matches the log")


def test_another_size_in_an_honest_proof_convicts_nobody(slotted: World) -> None:
    """The padded tree of three events is also one of four, and that of four also one of three."""
    honest, over = proved(slotted, 1)
    wide = replace(honest, membership=replace(honest.membership, size=4))
    for seq in range(4, 9):
        call = lambda seq=seq: log(slotted, "wrong_bundle_boundary", seq, head=over, claim=wide)  # noqa: E731
        refused(call, "matches the log|another fault")
    whole = World({**MANIFEST, "bundle": {"size": 8, "timeout": 1000}})
    for i in range(12):
        whole.send("alice", "message", f"number {i}")
    open_ = whole.events[:8]
    honest, over = proved(whole, 0)
    narrow = replace(honest, seq=5, membership=replace(prove_membership([e.id for e in open_], 5), size=7))
    for cut in (whole.events, whole.events[:8], whole.events[:7]):
        refused(lambda cut=cut: log(whole, "wrong_bundle_boundary", 7, cut, head=over, claim=narrow), "claim")  # type: ignore[misc]


def test_an_event_that_is_repeated_later_convicts_nobody(slotted: World) -> None:
    again = [*slotted.events, slotted.events[5]]
    verdict = log(slotted, "unauthorised_event", 5, again)
    assert (verdict.convicts, verdict.holds) == (False, True)
    honest, over = proved(slotted, 1)
    other = replace(honest, seq=5, membership=prove_membership([event.id for event in slotted.events[4:7]], 1))
    refused(lambda: log(slotted, "wrong_bundle_boundary", 4, again, head=over, claim=other), "matches the log")


def test_nobody_is_convicted_by_events_out_of_place_beyond_the_head(slotted: World) -> None:
    again = [*slotted.events, slotted.events[2]]
    verdict = log(slotted, "reordering", 2, again, head=head(slotted, 2))
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_an_event_that_pads_its_bundle_may_be_repeated_by_anybody(slotted: World) -> None:
    """The head of an honest log has the root of this one too."""
    plain = World(MANIFEST)
    for i in range(6):
        plain.send("alice", "message", f"number {i}")
    for i in range(5):
        plain.send("alice", "message", f"later {i}", at=5000 + i)
    again = [*plain.events[:7], *plain.events[6:]]
    verdict = log(plain, "reordering", 6, again, head=head(plain, 3))
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert any("that pads its bundle" in each for each in verdict.not_proved)


def test_an_owner_and_a_new_node_do_not_convict_the_one_they_left(world: World) -> None:
    """A forced move from an older copy, and the next event of the node that knew nothing of it."""
    copy = World(MANIFEST)
    for i in range(8):
        copy.send("alice", "message", f"number {i}")
    assert copy.events == world.events[:9]
    copy.send("alice", "Migrate", copy.migrate("node2"), node="node2", takeover=True)
    verdict = log(copy, "old_sequencer", 10, [*copy.events, world.events[10]])
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_a_former_sequencer_does_not_convict_the_next_one(world: World) -> None:
    """It signs the Migrate again, of a later time."""
    moved = World(MANIFEST)
    moved.send("alice", "Migrate", moved.migrate("node2"))
    moved.send("alice", "message", "there", node="node2")
    late = finalize(moved.events[1], NODE, moved.events[1].timestamp + 500, 1)
    verdict = log(moved, "falling_timestamp", 2, [moved.events[0], late, moved.events[2]], by="node2")
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_a_copied_manifest_and_the_log_that_replaced_it_convict_nobody(world: World) -> None:
    """Someone sent the new node a copy of the Manifest before the owner moved the enclave there."""
    moved = World(MANIFEST)
    moved.send("alice", "Migrate", moved.migrate("node2"), node="node2", takeover=True)
    for i in range(6):
        moved.send("alice", "message", f"there {i}", node="node2")
    copy = World(MANIFEST, node="node2").events[0]
    assert copy.enclave == moved.state.enclave
    events = [copy, *moved.events[1:]]
    verdict = log(moved, "sequencer_change", 1, events, by="node2")
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert any("a copy of the Manifest" in each for each in verdict.not_proved)


def test_a_head_of_a_copied_manifest_convicts_nobody() -> None:
    """The node signed it before the owner moved the enclave there by force."""
    copy, world = World(MANIFEST, node="node2"), World(MANIFEST)
    copy.seal(5000)
    for i in range(6):
        world.send("alice", "message", f"number {i}")
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    world.send("alice", "message", "there", node="node2")
    end = world.memory.bundles[0].count - 1
    anchor = head(world, len(world.memory.bundles), by="node2")
    verdict = log(world, "head_not_on_log", end, head=head(copy, 1, by="node2"), anchor=anchor, by="node2")
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert verdict.not_proved == (
        "that the head is of this log: anyone may have sent the accused a copy of the Manifest before",
    )


# The log itself


def test_what_the_rules_refuse_convicts_who_took_it(world: World) -> None:
    event = finalize(world.commit("carol", "message", "hello"), NODE, START + world.next, 15)
    events = [*bare(world), erase(event)]
    assert log(world, "unauthorised_event", 15, events).convicts
    refused(lambda: log(world, "unauthorised_event", 14, events), "no unauthorised_event at 14")
    refused(lambda: log(world, "gap", 15, events), "no gap at 15")
    refused(lambda: log(world, "unauthorised_event", 15, events, by="node2"), "another sequencer's")


def test_a_gap_convicts_with_a_head_over_it(world: World) -> None:
    events = [*bare(world)[:6], *bare(world)[7:]]
    alone = log(world, "gap", 6, events)
    assert (alone.convicts, alone.holds) == (False, True)
    bundles = [events[:4], events[4:8], events[8:12]]
    state = world.memory.bundles[0].state_hash
    leaves = [log_leaf(events_root([event.id for event in each]), state) for each in bundles]
    over = sign_head(NODE, world.state.enclave, START, 3, Edge().extend(leaves)[0].root())
    assert log(world, "gap", 6, events, head=over).convicts
    assert not log(world, "gap", 6, events, head=head(world, 3)).convicts


def test_a_content_that_is_gone_convicts_nobody(world: World) -> None:
    events = list(world.events)
    events[5] = erase(events[5])
    verdict = log(world, "erasure_without_cause", 5, events)
    assert (verdict.convicts, verdict.holds) == (False, True)
    refused(lambda: log(world, "erasure_without_cause", 4, events), "no erasure_without_cause at 4")


def test_a_withheld_content_is_no_fault_and_one_whose_statement_was_removed_convicts_nobody(world: World) -> None:
    events = list(world.events)
    events[5] = withheld(events[5])
    refused(lambda: log(world, "erasure_without_cause", 5, events), "no erasure_without_cause at 5")
    events[5] = withheld(world.events[5], "bob")
    verdict = log(world, "erasure_without_cause", 5, events)
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_a_log_that_cannot_be_read(world: World) -> None:
    parts = log_parts("gap", 3, world.events)
    for bad in ("%%%", "aGVsbG8=", parts["log"][:-40]):
        refused(lambda bad=bad: check_evidence(evidence(world, {**parts, "log": bad})), "evidence")  # type: ignore[misc]
    refused(lambda: check_evidence(evidence(world, {**parts, "fault": "sin"})), "fault")


# One event, and two


def test_an_event_that_does_not_check_convicts_nobody(world: World) -> None:
    def alone(fault: FaultKind, event: Event, by: str = "node") -> Verdict:
        line = msgspec.json.encode(wire_event(event))
        return check_evidence(evidence(world, single_parts(fault, line, 2), "event", by))

    good = world.events[3]
    bad = replace(good, sig=bytes(64))
    assert alone("invalid_signature", bad).holds
    assert not alone("invalid_signature", bad).convicts
    assert alone("altered_content", replace(good, content="other")).holds
    refused(lambda: alone("altered_content", bad), "another fault than claimed")
    refused(lambda: alone("invalid_signature", good), "the event is valid")
    refused(lambda: alone("invalid_signature", bad, by="node2"), "another enclave or sequencer")
    unreadable = evidence(world, single_parts("altered_content", b"{", 2), "event")
    assert check_evidence(unreadable).holds
    worse = evidence(world, single_parts("invalid_signature", b"{", 2), "event")
    refused(lambda: check_evidence(worse), "cannot be read")


def test_a_time_that_falls_convicts(world: World) -> None:
    def pair(first: Event, then: Event, by: str = "node") -> Verdict:
        return check_evidence(evidence(world, order_parts(first, then), "order", by))

    good, later = world.events[3], world.events[4]
    fallen = finalize(later, NODE, good.timestamp - 1, 4)
    assert pair(good, fallen).convicts
    refused(lambda: pair(good, later), "do not fall")
    refused(lambda: pair(fallen, good), "do not fall")
    refused(lambda: pair(good, fallen, by="node2"), "another sequencer's")
    refused(lambda: pair(good, replace(fallen, seq_sig=bytes(64))), "seq_sig")
    anybodys = pair(finalize(good, person("eve"), later.timestamp + 9, 3), later)
    assert (anybodys.convicts, anybodys.holds) == (False, True)
