"""A replay continues after a fault: each is reported once, with its seq, and its consequences are
not.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from enc.audit.event_check import light_event
from enc.audit.spilling_store import SpilledCommits, SpillingStore
from enc.core.errors import InvalidCommit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.enclave import judge
from enc.core.machine.fault import Fault
from enc.core.machine.replay import SeenCommits
from enc.core.machine.state import EnclaveState
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, Tags
from enc.core.rules.policy_types import Effects
from enc.core.trees.merkle_log import Edge
from tests.audit.logs import MANIFEST
from tests.core.registry_world import Registry, node_entry
from tests.core.world import START, World, gated, person, pub, rule, withheld
from tests.core.world_v1 import has, initial, manifest, row


@pytest.fixture
def world() -> World:
    """Return a log of eleven events: messages, one of them edited, and a new member."""
    made = World(MANIFEST)
    first = made.send("alice", "message", "one")
    made.send("alice", "Move", {"target": pub("bob"), "from": "OUTSIDER", "to": "MEMBER"})
    for i in range(4):
        made.send("bob", "message", f"more {i}")
    made.send("alice", "Update", "won", tags=(("r", first.id.hex()),))
    for i in range(3):
        made.send("alice", "message", f"last {i}")
    return made


def replayed(events: Sequence[Event], **more: object) -> AuditReplay:
    replay = AuditReplay(events[0].enclave, **more)  # type: ignore[arg-type]
    for event in events:
        replay.add(event)
    replay.finish()
    return replay


def reported(events: Sequence[Event]) -> list[tuple[str, int]]:
    return [(fault.kind, fault.seq) for fault in replayed(events).faults]


def by(event: Event, name: str, **changes: int) -> Event:
    """Return the event as the node `name` would have made it."""
    time, seq = changes.get("timestamp", event.timestamp), changes.get("seq", event.seq)
    return finalize(event, person(name), time, seq)


def test_an_honest_log_has_no_fault_and_the_replays_root(world: World) -> None:
    replay = replayed(world.events)
    assert replay.faults == []
    assert replay.state == world.state
    assert replay.sequencers == [(person("node").public, 0)]
    assert replay.roots_unknown_from is None


def test_a_place_that_is_left_out(world: World) -> None:
    events = world.events
    assert reported(events[:4] + events[5:]) == [("gap", 4)]
    (fault,) = replayed(events[:4] + events[6:]).faults
    assert (fault.kind, fault.seq, fault.before) == ("gap", 4, 6)
    assert "events 4 to 5 are missing" in fault.what
    assert reported(events[:3] + events[4:6] + events[7:]) == [("gap", 3), ("gap", 6)]


def test_places_that_are_exchanged_are_no_gap(world: World) -> None:
    events = list(world.events)
    events[4], events[5] = events[5], events[4]
    assert reported(events) == [("reordering", 4)]
    events = list(world.events)
    assert reported([*events[:3], *events[4:7], events[3], *events[7:]]) == [("reordering", 3)]
    assert reported([*events[:5], events[4], *events[5:]])[0] == ("reordering", 4)
    late = Fault(kind="reordering", seq=4, what="event 4 comes after event 5", before=5)
    events[4], events[5] = events[5], events[4]
    assert replayed(events).faults == [late]
    again = replayed([*world.events[:5], world.events[4], *world.events[5:]]).faults[0]
    assert (again.what, again.before) == ("event 4 comes after event 4, and for the second time", 4)


def test_a_time_that_falls_is_told_once(world: World) -> None:
    events = list(world.events)
    events[5] = by(events[5], "node", timestamp=events[4].timestamp - 1)
    assert reported(events) == [("falling_timestamp", 5)]
    later = [by(event, "node", timestamp=event.timestamp - 2) for event in events[6:]]
    assert reported([*events[:6], *later]) == [("falling_timestamp", 5)]
    (fault,) = replayed(events).faults
    assert (fault.what, fault.before) == ("its timestamp is 1 ms before the previous event's", 4)
    assert reported([*events[:5], by(events[5], "node", timestamp=events[4].timestamp), *world.events[6:]]) == []


def test_a_time_that_exp_does_not_allow(world: World) -> None:
    late = by(world.events[-1], "node", timestamp=world.events[-1].exp + 60_001)
    assert reported([*world.events[:-1], late]) == [("unauthorised_event", 10)]
    early = replace(world.events[-1], exp=world.events[-1].timestamp + 3_660_001)
    assert reported([*world.events[:-1], early]) == [("unauthorised_event", 10)]
    for exp in (early.exp - 1, early.timestamp - 60_000):
        assert reported([*world.events[:-1], replace(early, exp=exp)]) == []


def test_a_manifest_too_has_a_time_that_exp_allows(world: World) -> None:
    late = by(world.events[0], "node", timestamp=START + 10_000_000)
    assert reported([late]) == [("unauthorised_event", 0)]


def test_what_the_rules_refuse_changes_nothing(world: World) -> None:
    commit = world.commit("carol", "message", "hello")
    event = finalize(commit, person("node"), START + world.next, 11)
    replay = replayed([*world.events, event])
    assert [(fault.kind, fault.seq) for fault in replay.faults] == [("unauthorised_event", 11)]
    assert replay.roots_unknown_from is None
    move = world.commit("bob", "Move", {"target": pub("carol"), "from": "OUTSIDER", "to": "MEMBER"})
    replay = replayed([*world.events, finalize(move, person("node"), START + world.next, 11)])
    assert [(fault.kind, fault.seq) for fault in replay.faults] == [("unauthorised_event", 11)]
    assert replay.roots_unknown_from == 11


def test_rights_are_asked_for_again_when_they_change(world: World) -> None:
    world.send("bob", "message", "still here")
    world.send("alice", "Move", {"target": pub("bob"), "from": "MEMBER", "to": "OUTSIDER"})
    world.send("alice", "message", "still here")
    late = [
        finalize(world.commit(name, "message", "and now"), person("node"), START + world.next, seq)
        for name, seq in (("bob", 14), ("alice", 15))
    ]
    assert reported([*world.events, *late]) == [("unauthorised_event", 14)]
    world.send("alice", "Pause", "")
    paused = finalize(world.commit("alice", "message", "too late"), person("node"), START + world.next, 15)
    assert reported([*world.events, paused]) == [("unauthorised_event", 15)]


def test_a_commit_that_stands_twice(world: World) -> None:
    again = finalize(world.events[-1], person("node"), START + world.next, 11)
    assert reported([*world.events, again]) == [("unauthorised_event", 11)]


def test_an_event_of_another_enclave(world: World) -> None:
    other = World({**MANIFEST, "meta": {"n": 2}}).send("alice", "message", "hello", at=50)
    stray = finalize(other, person("node"), START + world.next, 11)
    assert reported([*world.events, stray]) == [("unauthorised_event", 11)]


def test_a_stranger_in_the_sequencers_place_is_told_once(world: World) -> None:
    events = [*world.events[:8], *(by(event, "node2") for event in world.events[8:])]
    assert reported(events) == [("sequencer_change", 8)]
    back = replayed([*world.events[:8], by(world.events[8], "node2"), *world.events[9:]])
    what = f"{pub('node2')} signed it, and no Migrate names that key"
    assert back.faults == [Fault(kind="sequencer_change", seq=8, what=what, before=7)]
    assert back.state is not None
    assert back.state.sequencer == person("node").public
    before_an_update = [*world.events[:6], by(world.events[6], "node2"), *world.events[7:]]
    assert reported(before_an_update) == [("sequencer_change", 6)]


def test_a_stranger_after_a_move_is_no_former_sequencer(world: World) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    here = world.send("alice", "message", "here", node="node2")
    assert reported([*world.events[:-1], by(here, "node3")]) == [("sequencer_change", 12)]


def test_a_stranger_who_is_appointed_later_has_a_term_that_ends(world: World) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    world.send("alice", "Migrate", world.migrate("node", prev_seq=11), node="node2")
    world.send("alice", "message", "back", node="node")
    strange = [by(world.events[9], "node2"), by(world.events[10], "node2")]
    late = by(world.events[-1], "node2")
    replay = replayed([*world.events[:9], *strange, *world.events[11:-1], late])
    found = [(fault.kind, fault.seq) for fault in replay.faults]
    assert (found[0], found[-1]) == (("sequencer_change", 9), ("old_sequencer", 13))


@pytest.mark.parametrize("by_force", [False, True])
def test_only_a_migrate_moves_the_log(world: World, by_force: bool) -> None:
    """Not a message of that form, accepted or rejected."""
    name = "alice" if by_force else "carol"
    message = world.commit(name, "message", world.migrate("node2"))
    first = finalize(message, person("node2" if by_force else "node"), START + world.next, 11)
    after = finalize(world.commit("alice", "message", "on"), person("node2"), START + world.next + 1, 12)
    found = reported([*world.events, first, after])
    assert found == [("sequencer_change", 11)] if by_force else [("unauthorised_event", 11), ("sequencer_change", 12)]


def test_a_migrate_that_a_stranger_makes_does_not_appoint_the_stranger(world: World) -> None:
    migrate = finalize(world.commit("alice", "Migrate", world.migrate("node2")), person("eve"), START + world.next, 11)
    assert (replayed([*world.events, migrate]).faults[0].kind, replayed([*world.events, migrate]).faults[0].what) == (
        "sequencer_change",
        f"{pub('eve')} signed it, and no Migrate names that key",
    )


def test_when_a_sequencer_s_last_term_ended(world: World) -> None:
    for node, before in (("node2", "node"), ("node", "node2"), ("node2", "node")):
        world.send("alice", "Migrate", world.migrate(node), node=before)
        world.send("alice", "message", "here", node=node)
    replay = replayed(world.events)
    assert replay.sequencers == [
        (person(name).public, seq) for name, seq in (("node", 0), ("node2", 12), ("node", 14), ("node2", 16))
    ]
    ends = [replay.term_end(person(name).public) for name in ("node", "node2", "node3")]
    assert ends == [16, None, None]


def test_an_old_sequencer_goes_on(world: World) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    ok = world.send("alice", "message", "here", node="node2")
    assert reported(world.events) == []
    assert reported([*world.events[:-1], by(ok, "node")]) == [("old_sequencer", 12)]
    (fault,) = replayed([*world.events[:-1], by(ok, "node")]).faults
    assert fault.before == 11


def test_a_takeover_by_force_is_no_fault(world: World) -> None:
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    world.send("alice", "message", "here", node="node2")
    assert reported(world.events) == []


def test_a_migrate_that_is_not_valid(world: World) -> None:
    content = world.migrate("node2", ct_root="00" * 32)
    migrate = finalize(world.commit("alice", "Migrate", content), person("node"), START + world.next, 11)
    after = finalize(world.commit("alice", "message", "on"), person("node2"), START + world.next + 1, 12)
    assert reported([*world.events, migrate, after]) == [("sequencer_change", 11)]
    moved = replayed([*world.events, migrate]).state
    assert moved is not None
    assert (moved.lifecycle, moved.migrated) == ("active", True)
    by_bob = finalize(world.commit("bob", "Migrate", world.migrate("node2")), person("node2"), START + world.next, 11)
    assert reported([*world.events, by_bob]) == [("sequencer_change", 11)]


def test_a_content_that_is_gone(world: World) -> None:
    events = list(world.events)
    events[1] = erase(events[1])
    assert reported(events) == []
    events[3] = erase(events[3])
    events[9] = erase(events[9])
    assert reported(events) == [("erasure_without_cause", 3), ("erasure_without_cause", 9)]
    assert replayed(events, check_erasures=False).faults == []
    events = list(world.events)
    events[2] = erase(events[2])
    replay = replayed(events)
    kinds = [fault.kind for fault in replay.faults if fault.seq == 2]
    assert (kinds, replay.roots_unknown_from) == (["erasure_without_cause"], 2)


def test_a_content_that_is_gone_is_told_in_words(world: World) -> None:
    events = list(world.events)
    events[3] = erase(events[3])
    causes = "an Update, a Delete, an auto-delete or a valid statement of the node"
    what = f"its content is missing from this copy, without {causes}"
    assert replayed(events).faults == [Fault(kind="erasure_without_cause", seq=3, what=what)]


def test_an_auto_delete_is_a_cause_also_for_the_updates_of_its_event(world: World) -> None:
    def edited(tags: Tags) -> list[Event]:
        made = World(MANIFEST)
        sent = made.send("alice", "message", "one", tags=tags)
        made.send("alice", "Update", "other", tags=(("r", sent.id.hex()),))
        return [made.events[0], *map(erase, made.events[1:])]

    later = ("auto-delete", str(START + 10_000_000))
    assert reported(edited((later,))) == []
    assert reported(edited(())) == [("erasure_without_cause", 2)]
    alone = World(MANIFEST)
    alone.send("alice", "message", "one", tags=(later,))
    assert reported([alone.events[0], erase(alone.events[1])]) == []


def test_a_log_whose_manifest_is_not_valid(world: World) -> None:
    """Nothing after it has known effects."""
    first = world.events[0]
    start = "the log does not start with its Manifest: nothing in it can be judged"
    invalid = replace(first, content="{}")
    cases = [
        (replace(first, seq=5), Fault(kind="gap", seq=0, what=start, before=5)),
        (replace(world.events[1], seq=0), Fault(kind="unauthorised_event", seq=0, what=start, before=0)),
        (replace(first, enclave=bytes(32)), Fault(kind="unauthorised_event", seq=0, what=start, before=0)),
        (erase(first), None),
        (invalid, None),
    ]
    for event, fault in cases:
        replay = AuditReplay(first.enclave)
        replay.add(event)
        assert (replay.roots_unknown_from, replay.state) == (0, None)
        replay.add(world.events[1])
        assert (replay.roots_unknown_from, replay.state, len(replay.finish())) == (0, None, 1)
        assert fault in (None, replay.faults[0])
    assert (replay.faults[0].kind, replay.faults[0].seq) == ("unauthorised_event", 0)
    assert replay.faults[0].what.startswith("the Manifest is not valid: ")
    (gone,) = replayed([erase(first)]).faults
    assert (gone.kind, gone.seq) == ("erasure_without_cause", 0)


def test_a_manifest_that_is_repeated(world: World) -> None:
    (fault,) = replayed([world.events[0], replace(world.events[0], seq=1)]).faults
    assert fault == Fault(
        kind="unauthorised_event", seq=1, what="the rules reject this Manifest: the commit is already in the log"
    )


def test_the_first_event_with_unknown_effects_is_the_one_of_the_lowest_seq(world: World) -> None:
    def refused(seq: int, n: int) -> Event:
        content = {"target": pub("carol"), "from": "OUTSIDER", "to": "MEMBER", "n": n}
        return finalize(world.commit("bob", "Move", content), person("node"), START + world.next, seq)

    assert replayed([*world.events, refused(11, 1), refused(12, 2)]).roots_unknown_from == 11
    assert replayed([*world.events, refused(12, 1), refused(11, 2)]).roots_unknown_from == 11


def test_faults_are_in_the_order_of_the_log(world: World) -> None:
    late = finalize(world.commit("carol", "message", "hello"), person("node"), START + world.next, 11)
    replay = AuditReplay(world.state.enclave)
    for event in [*world.events[:4], *world.events[5:], late]:
        replay.add(event)
    assert replay.has_gap_at(4)
    assert not replay.has_gap_at(5)
    kinds = [fault.kind for fault in replay.finish(sort=False)]
    assert kinds == ["unauthorised_event", "gap"]
    assert [fault.kind for fault in replay.finish()] == ["gap", "unauthorised_event"]


def test_the_caller_s_memory_of_commits_is_used(world: World) -> None:
    seen = SeenCommits()
    replayed(world.events, seen_commits=seen)
    assert seen.is_duplicate(world.events[-1])
    replayed([*world.events[:3], erase(world.events[3])], seen_commits=seen, check_erasures=False)
    assert seen.all_unexplained(()) == []


def test_a_log_without_its_manifest(world: World) -> None:
    assert reported(world.events[1:]) == [("gap", 0)]
    assert reported([replace(world.events[1], seq=0), *world.events[2:]]) == [("unauthorised_event", 0)]
    assert replayed(world.events[1:]).root() is None


def test_an_event_that_cannot_be_read_takes_its_place(world: World) -> None:
    replay = AuditReplay(world.state.enclave)
    for event in world.events:
        if event.seq == 5:
            replay.skip()
        else:
            replay.add(event)
    assert replay.finish() == []
    assert (replay.events, replay.roots_unknown_from) == (11, 5)
    first = AuditReplay(world.state.enclave)
    first.skip()
    assert first.roots_unknown_from == 0


def test_what_a_node_is_known_to_have_drawn_is_taken_for_granted(world: World) -> None:
    usual = replayed(world.events)
    early = replayed(world.events, node_bundle_sizes={1: 2})
    assert early.faults == []
    assert early.state is not None
    assert usual.state is not None
    assert (early.state.log.size, usual.state.log.size) == (3, 2)
    late = [*world.events[:6], *(by(event, "node", timestamp=event.timestamp + 2000) for event in world.events[6:])]
    closed = [replayed(late, node_bundle_sizes=drawn).state for drawn in ({}, {1: 4})]
    assert [state and state.log.size for state in closed] == [3, 2]
    claimed = replayed(world.events, node_state_hashes={0: bytes(32)})
    assert claimed.state is not None
    assert claimed.state.root == usual.state.root
    assert claimed.state.log.root() != usual.state.log.root()


def test_little_memory_gives_the_same(world: World) -> None:
    for i in range(60):
        sent = world.send("alice", "message", f"{i}")
        if i % 3 == 0:
            world.send("alice", "Update", "other", tags=(("r", sent.id.hex()),))
        if i % 5 == 0:
            world.send("bob", "Own", {"key": "profile", "value": f"{i}"})
    events = list(world.events)
    gone = [i for i, event in enumerate(events) if event.type == "message" and i % 2]
    for i in gone:
        events[i] = erase(events[i])
    plain = replayed(events)
    spilled = replayed(events, store=SpillingStore(4), seen_commits=SpilledCommits(4))
    assert spilled.faults == plain.faults
    assert plain.faults
    assert spilled.state == plain.state
    assert spilled.root() == plain.root()


def test_a_cause_that_comes_late_is_found_in_the_file_too(world: World) -> None:
    sent = [world.send("alice", "message", f"{i}") for i in range(12)]
    for event in sent:
        world.send("alice", "Delete", {"reason": "author"}, tags=(("r", event.id.hex()),))
    gone = {event.seq for event in sent}
    events = [erase(event) if event.seq in gone else event for event in world.events]
    assert replayed(events, seen_commits=SpilledCommits(4)).faults == []
    assert len(replayed(events[:-12], seen_commits=SpilledCommits(4)).faults) == 12


def test_withheld_contents_are_told_apart_in_the_file_too(world: World) -> None:
    sent = [world.send("alice", "message", f"{i}") for i in range(24)]
    hidden = {event.seq: withheld(event, "node" if i % 2 else "bob") for i, event in enumerate(sent)}
    for event in sent[:4]:
        world.send("alice", "Delete", {"reason": "author"}, tags=(("r", event.id.hex()),))
    events = [hidden.get(event.seq, event) for event in world.events]
    plain, spilled = replayed(events), replayed(events, seen_commits=SpilledCommits(4))
    assert spilled.faults == plain.faults
    assert [fault.seq for fault in plain.faults] == [event.seq for event in sent[4::2]]
    assert spilled.withheld == plain.withheld == [(event.seq, hidden[event.seq].withheld) for event in sent[5::2]]
    assert replayed(events, seen_commits=Reported(4)).withheld == plain.withheld[:3]
    assert len(replayed(events, seen_commits=Reported(4)).faults) == 3


class Reported(SpilledCommits):
    MAX_REPORTED = 3


def test_a_light_event_keeps_its_statement(world: World) -> None:
    hidden = withheld(world.events[3])
    assert light_event(encode(wire_event(hidden))) == hidden
    malformed = encode({**wire_event(hidden), "withheld": 5})
    with pytest.raises(InvalidCommit, match="withheld"):
        light_event(malformed)


def test_very_many_missing_places_are_one_gap(world: World) -> None:
    far = by(world.events[-1], "node", seq=10_000_000)
    assert replayed([*world.events[:-1], far]).faults == [
        Fault(
            kind="gap",
            seq=10,
            what="events 10 to 9999999 are missing: event 9 is followed by event 10000000",
            before=10_000_000,
        )
    ]


# Which events are judged


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seqs of the events that are judged by the rules; of others the right is known."""
    seqs = list[int]()

    def noted(state: EnclaveState, event: Event, *args: Any, **more: Any) -> Effects:
        seqs.append(event.seq)
        return judge(state, event, *args, **more)

    monkeypatch.setattr("enc.core.machine.audit_replay.judge", noted)
    return seqs


def test_content_events_of_an_author_are_judged_once(world: World, judged: list[int]) -> None:
    """Until a predefined event may have changed the author's rights: 2 is a Move of bob's, 7 an Update,
    11 a slot.
    """
    world.send("alice", "Own", {"key": "profile", "value": 1})
    world.send("alice", "message", "still known")
    judged.clear()
    assert reported(world.events) == []
    assert judged == [1, 2, 3, 7, 11]


def test_so_many_authors_are_known(world: World, judged: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.core.machine.audit_replay.MAX_ALLOWED", 1)
    judged.clear()
    assert reported(world.events) == []
    assert judged == [1, 2, 3, 7, 8]


GATED = {**MANIFEST, "customs": [rule("message", "MEMBER", "C", **gated("talk", "owner"))]}


@pytest.mark.parametrize("together", [False, True])
def test_a_gate_that_closes_takes_a_known_right(together: bool) -> None:
    made = World(GATED)
    made.send("alice", "message", "one")
    closed = {"alias": "talk", "state": "closed"}
    move = {"type": "Move", "target": pub("bob"), "from": "OUTSIDER", "to": "MEMBER"}
    operations = {"operations": [move, {"type": "Gate", **closed}]}
    late = made.commit("alice", "message", "two")
    made.send("alice", *(("AC_Bundle", operations) if together else ("Gate", closed)))
    assert reported([*made.events, finalize(late, person("node"), START + made.next, 3)]) == [("unauthorised_event", 3)]


def test_a_predefined_event_is_judged_each_time() -> None:
    """Also after one of its type that changed nothing."""
    schema = [row("Grant", "Owner", "C", "Admin"), row("note", "Owner", "C")]
    made = World(manifest([*schema, row("Admin", "Admin", "R")], initial(alice="Owner", bob="Admin")))
    made.send("alice", "Grant", has("bob", "Admin"))
    wrong = finalize(made.commit("alice", "Grant", has("bob", "Owner")), person("node"), START + made.next, 2)
    assert reported([*made.events, wrong]) == [("unauthorised_event", 2)]


def test_the_entries_of_a_registry_are_judged_each_time() -> None:
    registry = Registry()
    registry.send("alice", "Reg_Node", node_entry("alice"))
    wrong = finalize(registry.commit("alice", "Reg_Node", node_entry("bob")), person("node"), START + registry.next, 2)
    assert reported([*registry.events, wrong]) == [("unauthorised_event", 2)]


def test_a_rejected_entry_of_a_registry_has_unknown_effects() -> None:
    registry = Registry()
    wrong = finalize(registry.commit("bob", "Reg_Node", node_entry("alice")), person("node"), START + registry.next, 1)
    replay = replayed([*registry.events, wrong])
    assert [(fault.kind, fault.seq) for fault in replay.faults] == [("unauthorised_event", 1)]
    assert replay.roots_unknown_from == 1


# What a node is known to have drawn


def closed(events: Sequence[Event], **more: object) -> list[tuple[int, int]]:
    """Return the first seq and the number of events of each bundle that is closed."""
    found = list[tuple[int, int]]()
    replayed(
        events, on_step=lambda event, step: found.extend((each.first_seq, each.count) for each in step.closed), **more
    )
    return found


def test_a_bundle_is_closed_at_the_size_that_the_node_gave_it(world: World) -> None:
    assert closed(world.events) == [(0, 4), (4, 4)]
    assert closed(world.events, node_bundle_sizes={1: 2}) == [(0, 4), (4, 2), (6, 4)]
    assert closed(world.events, node_bundle_sizes={0: 3}) == [(0, 3), (3, 4), (7, 4)]


def test_one_of_two_bundles_that_an_event_closes_has_the_node_s_state() -> None:
    """The Migrate comes after the deadline of the open bundle, and closes its own."""
    made = World(MANIFEST)
    made.send("alice", "message", "one")
    made.send("alice", "Migrate", made.migrate("node2"), at=5000)
    assert [(bundle.first_seq, bundle.count) for bundle in made.memory.bundles] == [(0, 2), (2, 1)]
    roots = set[bytes]()
    for claimed in ({}, {0: bytes(32)}, {1: bytes(32)}):
        state = replayed(made.events, node_state_hashes=claimed).state
        assert state is not None
        roots.add(state.log.root())
    assert len(roots) == 3


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("index", [0, 1])
def test_the_log_has_the_state_that_the_node_put_into_a_bundle(size: int, index: int) -> None:
    made = World({**MANIFEST, "bundle": {"size": size, "timeout": 1000}})
    for i in range(2 * size):
        made.send("alice", "message", f"{i}")
    state = replayed(made.events, node_state_hashes={index: bytes(32)}).state
    leaves = [
        log_leaf(bundle.events_root, bytes(32) if bundle.index == index else bundle.state_hash)
        for bundle in made.memory.bundles
    ]
    assert state is not None
    assert state.log == Edge().with_leaves(leaves)
