"""Invitations: sent to the invitee's personal enclave, and confirmed only by the group's own
log.
"""

import pytest
from msgspec import UNSET

from enc.apps.group import Group
from enc.apps.people.address_book import Place
from enc.client import Enclave, Identity
from enc.client.enclave.templates import template
from enc.core.errors import MisuseError
from enc.core.sealed_forms.personal import seal_handoff
from tests.apps.group.notices import forge, mail
from tests.apps.group.party import Party, cross, pubkey
from tests.core.world import person

DAY = 24 * 3600 * 1000


def test_an_invitation_is_told_confirmed_and_accepted(party: Party, personal: Enclave) -> None:
    made = party.alice.invite(pubkey("dave"), greeting="come in", place=Place(personal.id))
    assert made.notice is not None
    (found,) = mail(party, personal)
    assert found.is_confirmed
    assert (found.inviter, found.topic, found.greeting) == (pubkey("alice"), "plans", "come in")
    assert (found.enclave, found.move_ref, found.epoch_n) == (party.id, made.receipt.id, party.alice.epochs()[-1].n)
    dave = Group(personal._client, found.enclave)
    dave.accept(found)
    dave.say("thanks")
    party.stage.clock.tick(2 * DAY)
    assert not mail(party, personal)[0].is_refuted
    party.alice.sync()
    assert party.alice.entries()[-1].text == "thanks"


def test_an_applicant_is_approved_and_told(party: Party, personal: Enclave) -> None:
    party.device("dave").apply()
    party.alice.sync()
    assert party.alice.person(pubkey("dave")).state == "PENDING"
    party.alice.approve(pubkey("dave"), place=Place(personal.id))
    (found,) = mail(party, personal)
    assert found.is_confirmed


def test_after_a_lost_race_the_notice_hands_over_nothing_and_the_log_does(party: Party, personal: Enclave) -> None:
    cross(party.alice, party.device("carol").leave)
    party.alice.invite(pubkey("dave"), place=Place(personal.id))
    (found,) = mail(party, personal)
    assert found.is_confirmed
    assert found.handoff is None
    dave = Group(personal._client, found.enclave)
    dave.accept(found)
    assert dave.status().can_seal


def test_a_notice_that_cannot_be_written_leaves_a_member_and_says_why(party: Party) -> None:
    made = party.alice.invite(pubkey("dave"))
    assert made.notice is None
    assert "registry" in made.why
    assert party.alice.person(pubkey("dave")).is_member


def test_what_the_groups_log_does_not_say_is_not_confirmed_and_waits(party: Party, personal: Enclave) -> None:
    forge(party, personal)
    (found,) = mail(party, personal)
    assert not found.is_confirmed
    assert not found.is_refuted
    assert "member" in found.why
    with pytest.raises(MisuseError, match="confirmed"):
        Group(personal._client, found.enclave).accept(found)
    party.alice.invite(pubkey("dave"), notify=False)
    (found,) = mail(party, personal)
    assert found.why == "no Move by the inviter made us a member"
    party.stage.clock.tick(100 * DAY)
    assert mail(party, personal) == [found]


def test_nobody_speaks_for_another_inviter(party: Party, personal: Enclave) -> None:
    party.alice.invite(pubkey("dave"), notify=False)
    forge(party, personal, inviter=pubkey("alice").hex())
    (found,) = mail(party, personal)
    assert (found.is_confirmed, found.is_refuted, found.why) == (False, True, "inviter: not the author of the notice")


def test_an_epoch_that_never_was_is_not_confirmed(party: Party, personal: Enclave) -> None:
    party.alice.invite(pubkey("dave"), notify=False)
    handoff = seal_handoff(person("alice"), pubkey("dave"), bytes(32), bytes(24))
    forge(party, personal, "alice", handoff=handoff, epoch_n=99)
    forge(party, personal, "alice", handoff=handoff, epoch_n=0, greeting="an epoch from before")
    assert [found.why for found in mail(party, personal)] == ["epoch_n: the Move brought no epoch with this number"] * 2


def test_a_handoff_that_does_not_fit_is_not_used(party: Party, personal: Enclave) -> None:
    made = party.alice.invite(pubkey("dave"), notify=False)
    handoff = seal_handoff(person("alice"), pubkey("dave"), bytes(32), bytes(24))
    n = party.alice.epochs()[-1].n
    forge(party, personal, "alice", handoff=handoff, epoch_n=n, move_ref=made.receipt.id.hex())
    (found,) = mail(party, personal)
    assert found.is_confirmed
    dave = Group(personal._client, found.enclave)
    dave.accept(found)
    dave.say("by the log")
    party.alice.sync()
    assert party.alice.entries()[-1].text == "by the log"


def test_who_was_put_out_again_is_not_invited(party: Party, personal: Enclave) -> None:
    party.alice.invite(pubkey("dave"), place=Place(personal.id))
    party.alice.remove(pubkey("dave"))
    (found,) = mail(party, personal)
    assert not found.is_confirmed


def test_another_move_than_the_one_that_is_named_refutes_it(party: Party, personal: Enclave) -> None:
    party.alice.invite(pubkey("dave"), notify=False)
    other = party.alice.invite(pubkey("erin"), notify=False).receipt
    forge(party, personal, "alice", move_ref=other.id.hex())
    forge(party, personal, "alice", move_ref="ab" * 32)
    refuted, waiting = mail(party, personal)
    assert (refuted.is_confirmed, refuted.is_refuted) == (False, True)
    assert (waiting.is_confirmed, waiting.is_refuted) == (False, False)


def test_what_is_no_group_or_has_another_manifest_refutes_it(party: Party, personal: Enclave) -> None:
    alice = party.stage.client("alice", pins=None)
    team = alice.create(template("team", pubkey("alice")))
    team.move(pubkey("dave"), "OUTSIDER", "MEMBER")
    forge(party, personal, "alice", enclave_id=team.hex)
    party.alice.invite(pubkey("dave"), notify=False)
    forge(party, personal, "alice", manifest_hash="ab" * 32)
    forge(party, personal, "alice", manifest_hash=party.alice.enclave.manifest().content_hash.hex())
    found = mail(party, personal)
    assert [(each.is_confirmed, each.is_refuted) for each in found] == [(False, True), (False, True), (True, False)]


def test_other_notices_are_none_of_ours(party: Party, personal: Enclave) -> None:
    forge(party, personal, kind="x-other")
    party.stage.client("mallory", pins=None).enclave(personal.id).commit("notice", "rubbish")
    assert mail(party, personal) == []


def test_sub_keys_are_wrapped_to_if_asked_for(party: Party) -> None:
    sub = Identity(person("bob")).sub_key()
    alice = party.device("alice", sub_keys=lambda members: {pubkey("bob"): sub.public})
    alice.rotate()
    envelope = alice._fold.epochs.counted[-1].envelope
    assert envelope.or_wraps is not UNSET
    assert [wrap.to for wrap in envelope.or_wraps] == [sub.public.hex()]
