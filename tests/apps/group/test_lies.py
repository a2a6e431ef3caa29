"""A node that lies about a group: inserted, omitted and early events are found, with evidence."""

from typing import Any

import pytest

from enc.apps.group import Group, NotAlone, NotAMember
from enc.client import Distrust, Enclave, Forgery, check_evidence, load_evidence
from enc.core.errors import EventPending
from enc.core.log.commit import build_commit
from enc.core.log.event import wire_event
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import content_hash
from enc.core.primitives.types import Event
from enc.testing.lying_node import Json
from tests.apps.group.party import Party, pubkey
from tests.client.scene import instead
from tests.client.stage import Stage
from tests.core.world import LIFETIME, move, person


def caught(group: Group, match: str) -> Distrust:
    with pytest.raises(Forgery, match=match) as found:
        group.sync()
    again = load_evidence(found.value.evidence.json())
    assert again.enclave == group.id
    assert check_evidence(again) == check_evidence(found.value.evidence)
    return found.value


def slip_in(party: Party, by: str, type_: str, content: Any, tags: Any = ()) -> Event:
    """Add to every page, after the last event, one that the node signs although the rules forbid
    it.
    """
    seq = party.alice.status().seq + 1
    text = content if isinstance(content, str) else compact_json(content)
    commit = build_commit(person(by), party.id, type_, text, party.stage.clock.now + LIFETIME, tags)
    event = party.stage.node.event(commit, seq)

    def lie(answer: Json) -> None:
        answer["events"].append({"event": wire_event(event), "status": "active"})

    party.stage.node.lie("Query", lie)
    return event


def test_a_member_who_is_slipped_in_gets_no_keys(party: Party) -> None:
    epochs = len(party.alice.epochs())
    slip_in(party, "mallory", "Move", move("mallory", "OUTSIDER", "MEMBER"))
    with pytest.raises(Forgery, match="rules forbid"):
        party.alice.say("who is there?")
    party.stage.node.be_honest()
    assert len(party.alice.epochs()) == epochs
    assert pubkey("mallory") not in {person.identity for person in party.alice.people()}
    caught_by = party.device("bob")
    slip_in(party, "mallory", "Move", move("mallory", "OUTSIDER", "MEMBER"))
    caught(caught_by, "rules forbid")


def test_an_admin_whom_nobody_made_one(party: Party) -> None:
    slip_in(party, "bob", "Grant", {"target": pubkey("bob").hex(), "trait": "admin"})
    caught(party.device("carol"), "rules forbid")


def without(party: Party, *seqs: int) -> None:
    def lie(answer: Json) -> None:
        answer["events"] = [item for item in answer["events"] if item["event"]["seq"] not in seqs]

    party.stage.node.lie("Query", lie)


def test_a_removal_that_is_withheld(party: Party) -> None:
    """Otherwise the admins' clients would go on sealing to a removed member."""
    receipt = party.alice.remove(pubkey("carol"))
    party.alice.say("go on")
    without(party, receipt.seq)
    caught(party.device("bob"), "withholds")


def test_a_place_far_away_costs_nothing(party: Party) -> None:
    commit = build_commit(person("bob"), party.id, "message", "x", party.stage.clock.now + LIFETIME)
    far = party.stage.node.event(commit, 2**40)

    def lie(answer: Json) -> None:
        answer["events"].append({"event": wire_event(far), "status": "active"})

    party.stage.node.lie("Query", lie)
    caught(party.device("carol"), "in a row")


def test_a_message_whose_words_are_withheld(party: Party) -> None:
    """The content is missing as if it had been edited, but there is no edit."""
    said = party.device("bob").say("you will not read this")

    def lie(answer: Json) -> None:
        for item in answer["events"]:
            if item["event"]["seq"] == said.seq:
                digest = content_hash(item["event"]["content"]).hex()
                item["event"] |= {"content": None, "content_hash": digest}
                item |= {"status": "updated", "updated_by": "07" * 32}

    party.stage.node.lie("Query", lie)
    caught(party.device("carol"), "withholds")


def test_a_log_without_its_manifest(party: Party) -> None:
    without(party, 0)
    caught(party.device("bob"), "Manifest")


def test_deleted_messages_are_missing_and_proved(party: Party) -> None:
    bob = party.device("bob")
    said = [bob.say(text) for text in ("one", "two", "three")]
    bob.edit(said[0].id, "uno")
    bob.delete(said[0].id)
    party.alice.delete(said[2].id)
    assert party.texts("carol") == ["two"]
    device = party.device("carol")
    device.sync()
    assert device._proved == set()
    party.stage.close_bundle()
    device.sync()
    assert device._proved == {said[0].id, said[2].id}


def test_a_delete_that_no_head_knows_of_yet_is_no_lie(party: Party) -> None:
    """The deleted event is in a closed bundle, and proved to be active there; the Delete is in an
    open one.
    """
    bob = party.device("bob")
    said = bob.say("one")
    reaction = bob.react(party.alice.say("two").id, "+1")
    party.stage.close_bundle()
    bob.delete(said.id)
    bob.delete(reaction.id)
    device = party.device("carol")
    device.sync()
    assert device._proved == set()
    party.stage.close_bundle()
    device.sync()
    assert device._proved == {said.id, reaction.id}


def test_what_is_active_once_its_delete_must_be_known_is_withheld(party: Party) -> None:
    """An existing event is deleted; the node does not carry it out, and hides the event."""
    bob = party.device("bob")
    said = bob.say("one")
    party.alice.sync()
    party.stage.close_bundle()
    event = slip_in(party, "bob", "Delete", compact_json({"reason": "author"}), (("r", said.id.hex()),))
    party.stage.node.be_honest()
    party.stage.clock.tick(10_000)
    later = party.stage.node.event(
        build_commit(person("bob"), party.id, "message", "x", party.stage.clock.now + LIFETIME), event.seq + 1
    )

    def lie(answer: Json) -> None:
        answer["events"] = [item for item in answer["events"] if item["event"]["seq"] != said.seq]
        answer["events"] += [{"event": wire_event(each), "status": "active"} for each in (event, later)]

    party.stage.node.lie("Query", lie)
    caught(party.device("carol"), "its status is active")


def test_one_delete_does_not_account_for_two_places(party: Party) -> None:
    bob = party.device("bob")
    said = bob.say("one")
    bob.delete(said.id)
    removal = party.alice.remove(pubkey("carol"))
    party.alice.say("go on")
    without(party, removal.seq)
    caught(party.device("bob"), "withholds")


def covered(party: Party) -> None:
    """The node and a member who signs what it likes: a Delete of an event that never existed, for
    an empty seq.
    """
    removal = party.alice.remove(pubkey("carol"))
    said = party.alice.say("go on")
    party.stage.close_bundle()
    event = slip_in(party, "bob", "Delete", compact_json({"reason": "author"}), (("r", "07" * 32),))
    party.stage.node.be_honest()
    party.stage.clock.tick(10_000)
    later = party.stage.node.event(
        build_commit(person("bob"), party.id, "message", "x", party.stage.clock.now + LIFETIME), said.seq + 2
    )

    def lie(answer: Json) -> None:
        answer["events"] = [item for item in answer["events"] if item["event"]["seq"] != removal.seq]
        answer["events"] += [{"event": wire_event(each), "status": "active"} for each in (event, later)]

    party.stage.node.lie("Query", lie)


def test_a_delete_of_nothing_covers_no_place(party: Party) -> None:
    covered(party)
    caught(party.device("bob"), "its status is unknown")


def test_what_must_be_closed_by_now_is_not_pending(party: Party) -> None:
    covered(party)
    party.stage.node.lie("Bundle_Proof", instead(EventPending("in an open bundle", retry_after_ms=1)))
    caught(party.device("bob"), "its status is pending")


def test_who_got_in_before_the_door_was_closed(stage: Stage) -> None:
    """The node knows the id as soon as it has the Manifest. It admits someone; the group is
    abandoned.
    """
    client = stage.client("alice")
    gate = Enclave.gate

    def late(self: Enclave, alias: str, *, open: bool) -> Any:
        stage.node.take(
            build_commit(
                person("mallory"),
                self.id,
                "Move",
                compact_json(move("mallory", "OUTSIDER", "MEMBER")),
                stage.clock.now + LIFETIME,
            )
        )
        return gate(self, alias, open=open)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Enclave, "gate", late)
        with pytest.raises(NotAlone):
            Group.create(client)


def test_nothing_but_the_gate_follows_the_manifest(stage: Stage) -> None:
    group = Group.create(stage.client("alice"), topic="plans")
    types = [event.type for event in stage.node.store.events(group.id, 0, 10)]
    assert types == ["Manifest", "Gate", "rotate", "Shared"]
    assert group.status().gates == {"applications": True, "auto_join": False}


def test_who_is_no_member_is_told_so(party: Party) -> None:
    with pytest.raises(NotAMember):
        party.device("mallory").sync()
