"""What the verdict on a log in evidence says, word by word, and where exactly it stops to convict."""

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from enc.client import check_evidence
from enc.client.evidence.log_evidence import log_parts, order_parts, single_parts
from enc.client.evidence.verdict import KEY_OWNER, Verdict
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.claim import Claim
from enc.core.machine.enclave import checkpoint_root
from enc.core.primitives.hashing import log_leaf, sha256
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.bundle import events_root
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from tests.client.evidence.logs import MANIFEST, NODE, claim, evidence, head, log, refused
from tests.core.world import START, World, person, pub
from tests.core.world_v1 import EXAMPLE, initial, manifest

KEY = NODE.public.hex()
WHO = (
    "who did it: the sequencer signs an author's signature, not the content, so anyone who held this copy of the log "
    "may have altered it; compare it with another copy"
)
UNCOVERED = "that the node shows this log to others: no signed head covers it"
UNKNOWN = "who caused it: under the head, the log is in order, or an event that pads its bundle is repeated"
WRONG = sha256(b"wrong")


def whole(events: int) -> str:
    return f"the log from its Manifest on, {events} events: each with its author's signature and its sequencer's"


def rejected(world: World, seq: int, type_: str = "Move") -> Event:
    """Return an event that the node took though the rules refuse it; a Move's effects are unknown."""
    content = {"target": pub("carol"), "from": "OUTSIDER", "to": "MEMBER"}
    time = world.events[seq].timestamp if seq < len(world.events) else START + world.next
    return finalize(world.commit("carol", type_, content if type_ == "Move" else "hi"), NODE, time, seq)


# One event, and two


def test_what_an_event_that_does_not_check_shows(world: World) -> None:
    def alone(event: Event, enclave: bytes = world.state.enclave) -> Verdict:
        parts = single_parts("altered_content", msgspec.json.encode(wire_event(event)), 2)
        return check_evidence(replace(evidence(world, parts, "event"), enclave=enclave))

    shown = "in the given log, event 3 of this enclave is an event that does not verify"
    altered = replace(world.events[3], content="other")
    verdict = alone(altered)
    assert verdict == Verdict(False, (shown, verdict.proved[1]), (WHO,), holds=True)
    assert verdict.proved[1].startswith("hash: ")
    refused(lambda: alone(altered, sha256(b"another enclave")), "belongs to another enclave or sequencer")


def test_what_a_line_that_cannot_be_read_shows(world: World) -> None:
    verdict = check_evidence(evidence(world, single_parts("altered_content", b"{", 2), "event"))
    assert verdict == Verdict(False, verdict.proved, (WHO,), holds=True)
    assert verdict.proved[0].startswith("a line of the log cannot be read as an event: ")


def test_what_two_events_show(world: World) -> None:
    def pair(first: Event, then: Event) -> Verdict:
        return check_evidence(evidence(world, order_parts(first, then), "order"))

    def at(seq: int, time: int, by: str = "node") -> Event:
        return finalize(world.events[seq], person(by), START + time, seq)

    signed = f"signed event 3 of this enclave with time {START + 9}"
    fell = f"{KEY} signed event 4 with time {START + 8}, 1 ms before it: no honest sequencer does"
    assert pair(at(3, 9), at(4, 8)) == Verdict(True, (f"{KEY} {signed}", fell), (KEY_OWNER,))
    first, anyone = f"{pub('eve')} {signed}", "that the first event is in the log: anyone can sign one"
    assert pair(at(3, 9, "eve"), at(4, 8)) == Verdict(False, (first, fell), (anyone,), holds=True)
    refused(lambda: pair(at(3, 9), at(4, 9)), "do not fall")
    refused(lambda: pair(at(5, 9), at(4, 8)), "do not fall")
    refused(lambda: pair(at(3, 9), finalize(world.events[4], NODE, START + 8, 3)), "do not fall")


def test_two_events_of_another_enclave_show_nothing(world: World) -> None:
    first, then = world.events[3], finalize(world.events[4], NODE, world.events[3].timestamp - 1, 4)
    other = replace(evidence(world, order_parts(first, then), "order"), enclave=sha256(b"another enclave"))
    refused(lambda: check_evidence(other), "belongs to another enclave")


# Faults of the log itself


def test_what_an_event_that_the_rules_refuse_shows(world: World) -> None:
    events = [*world.events, rejected(world, 15, "message")]
    finding = "event 15: the rules reject this message: "
    verdict = log(world, "unauthorised_event", 15, events)
    signed = f"{KEY} signed it for this place: no honest sequencer does"
    assert verdict == Verdict(True, (whole(16), verdict.proved[1], signed), (KEY_OWNER,), holds=True)
    assert verdict.proved[1].startswith(finding)
    cut = log(world, "unauthorised_event", 15, [*events[:9], *events[10:]])
    complete = "that the log is complete: event 9 is not at its seq"
    assert cut == Verdict(False, (whole(15), verdict.proved[1], f"{KEY} signed it"), (complete,), holds=True)


def test_what_an_event_that_does_not_verify_leaves_open(world: World) -> None:
    events = [*world.events[:3], replace(world.events[3], sig=bytes(64)), *world.events[4:]]
    verdict = log(world, "unauthorised_event", 15, [*events, rejected(world, 15, "message")])
    count = "the log from its Manifest on, 16 events, of which not all verify"
    left = "event 3 of the log, which does not verify, or belongs to another enclave"
    assert verdict == Verdict(False, (count, *verdict.proved[1:]), (left,), holds=True)


def test_events_of_version_1_verify_by_its_rules() -> None:
    made = World(manifest(EXAMPLE, initial(alice="Owner Member")))
    late = finalize(made.commit("carol", "Pause"), NODE, START + made.next, 1)
    verdict = log(made, "unauthorised_event", 1, [*made.events, late])
    assert verdict.convicts
    assert verdict.proved[0] == whole(2)


def test_what_a_content_that_is_gone_leaves_open(world: World) -> None:
    events = [*world.events[:5], erase(world.events[5]), *world.events[6:]]
    verdict = log(world, "erasure_without_cause", 5, events)
    who = "who erased it: contents are not signed by the node that serves them"
    assert verdict == Verdict(False, (whole(15), verdict.proved[1]), (who,), holds=True)


def test_a_log_is_given_in_strict_base64(world: World) -> None:
    parts = log_parts("erasure_without_cause", 5, [*world.events[:5], erase(world.events[5])])
    assert check_evidence(evidence(world, parts)).holds
    broken = evidence(world, {**parts, "log": parts["log"][:8] + "\n" + parts["log"][8:]})
    refused(lambda: check_evidence(broken), "not base64")


def test_an_anchor_is_of_a_size_that_the_log_has(world: World) -> None:
    beyond = sign_head(NODE, world.state.enclave, START, 9, WRONG)
    events = [*world.events, rejected(world, 15, "message")]
    refused(lambda: log(world, "unauthorised_event", 15, events, anchor=beyond), "anchor: the log has another root")


# Events out of place, under a head


def over(world: World, events: Sequence[Event], size: int) -> TreeHead:
    """Return the head that the node would sign for these events, in bundles of four."""
    state = world.memory.bundles[0].state_hash
    bundles = (events[4 * i : 4 * i + 4] for i in range(size))
    leaves = [log_leaf(events_root([event.id for event in each]), state) for each in bundles]
    return sign_head(NODE, world.state.enclave, START, size, Edge().extend(leaves)[0].root())


def test_what_a_gap_shows_with_and_without_a_head(world: World) -> None:
    events = [*world.events[:6], *world.events[7:]]
    alone = log(world, "gap", 6, events)
    finding = alone.proved[1]
    assert finding.startswith("event 6: ")
    assert alone == Verdict(False, (whole(14), finding), (UNCOVERED,), holds=True)
    signed = f"{KEY} signed a head of 3 bundles that matches this log"
    covered = log(world, "gap", 6, events, head=over(world, events, 3))
    assert covered == Verdict(True, (whole(14), finding, signed), (KEY_OWNER,), holds=True)
    for size in (1, 9):  # a head of the log before the gap, or of a log that is not shown
        short = sign_head(NODE, world.state.enclave, START, 9, WRONG) if size == 9 else over(world, events, size)
        assert log(world, "gap", 6, events, head=short) == alone


def test_a_head_that_ends_with_the_misplaced_event_is_not_enough(world: World) -> None:
    events = [*world.events[:2], world.events[3], world.events[2], *world.events[4:]]
    last = log(world, "reordering", 2, events, head=over(world, events, 1))
    assert (last.convicts, last.not_proved) == (False, (UNCOVERED,))
    assert log(world, "reordering", 2, events, head=over(world, events, 2)).convicts


def test_what_a_repeated_event_leaves_open(world: World) -> None:
    made = World(MANIFEST)
    for i in range(6):
        made.send("alice", "message", f"number {i}")
    for i in range(5):
        made.send("alice", "message", f"later {i}", at=5000 + i)
    again = [*made.events[:7], *made.events[6:]]
    verdict = log(made, "reordering", 6, again, head=head(made, 3))
    assert (verdict.convicts, verdict.not_proved) == (False, (UNKNOWN,))


# Heads


def test_what_a_head_with_another_root_shows(world: World) -> None:
    right, wrong = head(world, 2), head(world, 2, WRONG)
    signed = f"{KEY} signed a head of 2 bundles of this enclave with root {wrong.r.hex()}"
    has = f"the log, event by event, has {right.r.hex()} at that size, after event 7"
    convicted = Verdict(True, (whole(15), signed, has), (KEY_OWNER,), holds=True)
    assert log(world, "head_not_on_log", 7, head=wrong) == convicted
    loose = "that the head belongs to this enclave: it names no enclave"
    unbound = log(world, "head_not_on_log", 7, head=replace(wrong, bound_sig=None))
    assert unbound == Verdict(False, (whole(15), signed, has), (loose,), holds=True)
    refused(lambda: log(world, "head_not_on_log", 7, world.events[:3], head=wrong), "has another size")


def test_two_logs_of_which_one_is_not_a_prefix_differ_anywhere(world: World) -> None:
    """The finding names the first event that differs; the head is over some later one."""
    wrong = head(world, 2, WRONG)
    assert log(world, "broken_consistency", 5, head=wrong) == log(world, "head_not_on_log", 7, head=wrong)
    refused(lambda: log(world, "broken_consistency", 5, head=head(world, 2)), "the head matches the log")


def test_no_head_is_judged_by_a_root_that_cannot_be_computed(world: World) -> None:
    """What a rejected Move would have changed is unknown."""
    events = [*world.events, rejected(world, 15), finalize(world.commit("alice", "message"), NODE, START + 99, 16)]
    refused(lambda: log(world, "head_not_on_log", 15, events, head=head(world, 4, WRONG)), "cannot be determined")
    assert log(world, "head_not_on_log", 11, events, head=head(world, 3, WRONG)).convicts
    early = [*world.events[:5], rejected(world, 5), *world.events[6:]]
    refused(lambda: log(world, "head_not_on_log", 7, early, head=head(world, 2, WRONG)), "cannot be determined")


def test_what_a_checkpoint_shows(world: World) -> None:
    right = checkpoint_root(world.state, world.memory)
    verdict = log(world, "wrong_log_root", 14, checkpoint=(14, bytes(32)))
    gives = f"the archive gives {bytes(32).hex()} as checkpoint at 14; its log has {right.hex()}"
    who = "who wrote it: an archive's checkpoint is not signed"
    assert verdict == Verdict(False, (whole(15), gives), (who,), holds=True)
    assert log(world, "wrong_log_root", 14, checkpoint=(13, right)).holds
    refused(lambda: log(world, "wrong_log_root", 14, checkpoint=(14, right)), "that is not the log's")
    refused(lambda: log(world, "wrong_log_root", -1, checkpoint=(14, right)), "seq")
    headless = log_parts("wrong_log_root", 14, world.events[1:], checkpoint=(14, right))
    refused(lambda: check_evidence(evidence(world, headless)), "that is not the log's")


# A former sequencer's head


@pytest.fixture(scope="module")
def moved() -> World:
    """Return a log that left the node with event 5; bundle 1 holds events 4 and 5, bundle 2 the next four."""
    made = World(MANIFEST)
    for i in range(4):
        made.send("alice", "message", f"number {i}")
    made.send("alice", "Migrate", made.migrate("node2"))
    for i in range(8):
        made.send("alice", "message", f"there {i}", node="node2")
    return made


def test_what_a_former_sequencer_s_head_shows(moved: World) -> None:
    last = moved.memory.bundles[2].first_seq + moved.memory.bundles[2].count - 1
    verdict = log(moved, "old_sequencer", last, head=head(moved, 3))
    became = "the log became another sequencer's with event 6"
    signed = f"{KEY} signed a head of 3 bundles that matches this log up to event {last}"
    later = "that no later Migrate gave the enclave back to it: a current sequencer may sign older sizes"
    assert verdict == Verdict(False, (whole(14), became, signed), (later,), holds=True)
    beyond = sign_head(NODE, moved.state.enclave, START, 9, WRONG)
    refused(lambda: log(moved, "old_sequencer", last, head=beyond), "has another size")


def test_a_head_whose_last_event_began_the_next_term_is_too_late() -> None:
    """With bundles of one event, a head of seven ends with the new sequencer's first event."""
    made = World({**MANIFEST, "bundle": {"size": 1, "timeout": 1000}})
    for i in range(4):
        made.send("alice", "message", f"number {i}")
    made.send("alice", "Migrate", made.migrate("node2"))
    made.send("alice", "message", "there", node="node2")
    assert log(made, "old_sequencer", 6, head=head(made, 7)).holds
    refused(lambda: log(made, "old_sequencer", 5, head=head(made, 6)), "or still is")


# Claims


def test_a_claim_needs_its_head_its_bundle_and_its_event(world: World) -> None:
    wrong, signed = claim(world, 2, [event.id for event in world.events[8:12]], WRONG)
    refused(lambda: log(world, "wrong_state_root", 11, claim=wrong), "is missing")
    refused(lambda: log(world, "wrong_state_root", 11, world.events[:10], head=signed, claim=wrong), "is missing")
    early = replace(wrong, seq=5)
    refused(lambda: log(world, "wrong_state_root", 11, world.events[:6], head=signed, claim=early), "is missing")


def test_what_a_bundle_that_the_rule_does_not_draw_shows(world: World) -> None:
    short, signed = claim(world, 1, [event.id for event in world.events[4:7]], world.memory.bundles[1].state_hash)
    verdict = log(world, "wrong_bundle_boundary", 7, head=signed, claim=short)
    drawn = "the node put 3 events from 4 on into bundle 1; by the rule it holds 4 from 4 on"
    under = f"{KEY} signed a head of 3 bundles that covers: {drawn}"
    assert verdict == Verdict(True, (whole(15), under), (KEY_OWNER,), holds=True)


def sized(made: Claim, size: int) -> Claim:
    return replace(made, membership=replace(made.membership, size=size))


def test_a_wrong_bundle_counts_only_with_exactly_its_events(world: World) -> None:
    """Anyone can write another size into the proof of a padded bundle."""
    state = world.memory.bundles[1].state_hash
    long, signed = claim(world, 1, [event.id for event in world.events[4:9]], state)
    assert log(world, "wrong_bundle_boundary", 8, head=signed, claim=long).convicts
    refused(
        lambda: log(world, "wrong_bundle_boundary", 8, head=signed, claim=sized(long, 6)),
        "does not hold exactly these events",
    )


def test_a_wrong_state_convicts_whatever_size_someone_writes_into_the_proof(slotted: World) -> None:
    ids = [event.id for event in slotted.events[4:7]]
    wrong, signed = claim(slotted, 1, ids, WRONG)
    for made in (wrong, sized(wrong, 4)):
        assert log(slotted, "wrong_state_root", 6, head=signed, claim=made).convicts


def test_a_state_is_judged_up_to_the_first_event_whose_effects_are_unknown(slotted: World) -> None:
    wrong, signed = claim(slotted, 1, [event.id for event in slotted.events[4:7]], WRONG)
    late = [*slotted.events, rejected(slotted, len(slotted.events))]
    assert log(slotted, "wrong_state_root", 6, late, head=signed, claim=wrong).convicts


def test_a_bundle_is_judged_whatever_is_known_of_the_state(world: World) -> None:
    short, signed = claim(world, 1, [event.id for event in world.events[4:7]], world.memory.bundles[1].state_hash)
    events = [*world.events[:2], rejected(world, 2), *world.events[3:]]
    assert log(world, "wrong_bundle_boundary", 7, events, head=signed, claim=short).convicts


def test_a_bundle_that_is_open_at_the_end_is_judged_by_the_event_after_the_claimed_ones(world: World) -> None:
    """That event shows that the bundle goes on, so it must be at its seq."""
    short, signed = claim(world, 2, [event.id for event in world.events[8:10]], world.memory.bundles[2].state_hash)
    assert log(world, "wrong_bundle_boundary", 10, world.events[:11], head=signed, claim=short).convicts
    cut = [*world.events[:10], world.events[11]]
    verdict = log(world, "wrong_bundle_boundary", 10, cut, head=signed, claim=short)
    assert (verdict.convicts, verdict.not_proved) == (False, ("that the log is complete: event 10 is not at its seq",))


def test_a_claimed_event_of_a_stranger_behind_the_bundle_binds_nobody(world: World) -> None:
    strange = finalize(world.commit("alice", "message", "hi"), person("eve"), world.events[8].timestamp, 8)
    ids, state = [event.id for event in [*world.events[4:8], strange]], world.memory.bundles[1].state_hash
    long, signed = claim(world, 1, ids, state, seq=8)
    verdict = log(world, "wrong_bundle_boundary", 8, [*world.events[:8], strange], head=signed, claim=long)
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert f"{pub('eve')} signed event 8" in verdict.not_proved[0]
