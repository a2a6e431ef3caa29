"""What is rejected before it is sent, in a group's own terms; and what must be confirmed."""

from collections.abc import Callable
from typing import Any

import pytest

from enc.apps.group import Irreplaceable, Muted, NotAMember, NotAnAdmin, NotTheOwner, TooManyMembers
from enc.apps.group.rights import MAX_PROFILE, MAX_TOPIC
from enc.core.errors import EncError, MisuseError
from enc.core.primitives.signing import PrivateKey
from tests.apps.group.party import Party, cross, pubkey
from tests.client.stage import Stage


def refused(party: Party, error: type[EncError], match: str, work: Callable[[], Any]) -> None:
    """Check that it raises, and that the log has not changed."""
    before = len(list(party.stage.node.store.events(party.id, 0, 1000)))
    with pytest.raises(error, match=match) as found:
        work()
    assert type(found.value) is error
    assert len(list(party.stage.node.store.events(party.id, 0, 1000))) == before


def test_who_is_muted_is_told_so(party: Party) -> None:
    said = party.alice.say("hello")
    mine = party.device("bob").say("mine")
    party.alice.mute(pubkey("bob"))
    bob = party.device("bob")
    refused(party, Muted, "you are muted", lambda: bob.say("x"))
    refused(party, Muted, "you are muted", lambda: bob.react(said.id, "x"))
    refused(party, Muted, "you are muted", lambda: bob.edit(mine.id, "x"))
    bob.delete(mine.id)


def test_what_takes_an_admin(party: Party) -> None:
    bob, said = party.device("bob"), party.alice.say("hello")
    party.device("mallory").apply()
    works = {
        "may remove members": lambda: bob.remove(pubkey("carol")),
        "may block people": lambda: bob.block(pubkey("carol")),
        "may unblock people": lambda: bob.unblock(pubkey("carol")),
        "may admit people": lambda: bob.invite(pubkey("dan"), notify=False),
        "may decline applications": lambda: bob.decline(pubkey("mallory")),
        "may mute": lambda: bob.mute(pubkey("carol")),
        "may unmute": lambda: bob.unmute(pubkey("carol")),
        "may set the topic": lambda: bob.set_topic("x"),
        "may make announcements": lambda: bob.announce("x"),
        "may make an epoch": bob.rotate,
        "may delete messages of others": lambda: bob.delete(said.id),
        "may open or close": lambda: bob.set_gate("applications", open=False),
    }
    for does, work in works.items():
        refused(party, NotAnAdmin, f"only an admin {does}", work)


def test_what_takes_the_owner(party: Party) -> None:
    party.alice.make_admin(pubkey("bob"))
    bob = party.device("bob")
    refused(party, NotTheOwner, "may make admins", lambda: bob.make_admin(pubkey("carol")))
    refused(party, NotTheOwner, "may unmake admins", lambda: bob.unmake_admin(pubkey("alice")))
    refused(party, NotTheOwner, "may transfer the group", lambda: bob.transfer(pubkey("carol")))
    refused(party, NotTheOwner, "may open or close", lambda: bob.set_gate("auto_join", open=True))
    bob.set_gate("applications", open=False)
    bob.unmake_admin(pubkey("bob"))


def test_what_is_so_already(party: Party) -> None:
    alice, bob = party.alice, pubkey("bob")
    refused(party, MisuseError, "already a member", lambda: alice.invite(bob, notify=False))
    refused(party, MisuseError, "not an admin", lambda: alice.unmake_admin(bob))
    refused(party, MisuseError, "not muted", lambda: alice.unmute(bob))
    refused(party, MisuseError, "a member, not blocked", lambda: alice.unblock(bob))
    refused(party, MisuseError, "a member, not an applicant", lambda: alice.approve(bob, notify=False))
    refused(party, MisuseError, "not a member", lambda: alice.make_admin(pubkey("mallory")))
    refused(party, MisuseError, "not a member", lambda: alice.remove(pubkey("mallory")))
    refused(party, MisuseError, "already the owner", lambda: alice.transfer(pubkey("alice")))
    alice.block(pubkey("mallory"))
    refused(party, MisuseError, "unblock them first", lambda: alice.invite(pubkey("mallory"), notify=False))
    party.device("dan").apply()
    refused(party, MisuseError, "approve them", lambda: alice.invite(pubkey("dan"), notify=False))
    refused(party, MisuseError, "expected one of", lambda: alice.set_gate("door", open=True))
    alice.make_admin(bob)
    refused(party, MisuseError, "already an admin", lambda: alice.make_admin(bob))


def test_an_owner_or_only_admin_goes_if_that_is_meant(party: Party) -> None:
    alice = party.alice
    refused(party, Irreplaceable, "you own the group", alice.leave)
    refused(party, Irreplaceable, "you own the group", lambda: alice.block(pubkey("alice")))
    alice.transfer(pubkey("bob"))
    refused(party, Irreplaceable, "the only admin", alice.leave)
    refused(party, Irreplaceable, "the only admin", lambda: alice.block(pubkey("alice")))
    party.device("bob").make_admin(pubkey("carol"))
    alice.leave()
    refused(party, Irreplaceable, "you own the group", party.device("bob").leave)
    party.device("bob").leave(even_so=True)
    party.device("carol").block(pubkey("carol"), even_so=True)
    with pytest.raises(NotAMember):
        party.device("carol").sync()


def test_who_has_left_is_no_member_by_their_own_word(party: Party) -> None:
    bob = party.device("bob")
    bob.leave()
    status = bob.status()
    assert (status.me.state, status.can_seal, status.members) == ("OUTSIDER", False, 2)
    carol = party.device("carol")
    cross(carol, lambda: party.alice.say("meanwhile"))  # which carol will not see
    carol.leave()
    status = carol.status()
    assert (status.me.state, status.can_seal) == ("OUTSIDER", False)
    party.alice.invite(pubkey("carol"), notify=False)
    carol.sync()
    assert carol.status().me.is_member


def test_what_is_answered_is_there(party: Party) -> None:
    bob, nothing = party.device("bob"), bytes(32)
    said = party.alice.say("hello")
    for work in (
        lambda: bob.say("x", reply_to=nothing),
        lambda: bob.react(nothing, "x"),
        lambda: bob.edit(nothing, "x"),
        lambda: bob.delete(nothing),
    ):
        refused(party, MisuseError, "no such entry", work)
    refused(party, MisuseError, "only its author", lambda: bob.edit(said.id, "x"))
    reaction = party.alice.react(said.id, "+1")
    refused(party, MisuseError, "only its author", lambda: bob.delete(reaction.id))
    bob.say("x", reply_to=said.id)


@pytest.mark.parametrize("text", ["\ud800", "caf\udce9"])
def test_what_is_no_text(party: Party, text: str) -> None:
    alice, said = party.alice, party.alice.say("hello")
    refused(party, MisuseError, "not text", lambda: alice.say(text))
    refused(party, MisuseError, "not text", lambda: alice.react(said.id, text))
    refused(party, MisuseError, "not text", lambda: alice.set_topic(text))
    refused(party, MisuseError, "not text", lambda: alice.invite(pubkey("dan"), greeting=text))
    refused(party, MisuseError, "not JSON", lambda: alice.set_profile({"name": text}))
    refused(party, MisuseError, "not JSON", lambda: alice.delete(said.id, note=text))


def test_topics_and_profiles_are_bounded(party: Party, stage: Stage) -> None:
    alice = party.alice
    refused(
        party, MisuseError, f"topic: expected 0 to {MAX_TOPIC}", lambda: alice.set_topic("é" * (MAX_TOPIC // 2) + "x")
    )
    refused(party, MisuseError, f"profile: .* {MAX_PROFILE}", lambda: alice.set_profile("x" * (MAX_PROFILE - 1)))
    alice.set_topic("é" * (MAX_TOPIC // 2))
    alice.set_profile("x" * (MAX_PROFILE - 2))
    before = set(stage.node.store.enclaves())
    with pytest.raises(MisuseError, match="topic"):
        type(alice).create(stage.client("alice"), topic="x" * (MAX_TOPIC + 1))
    assert set(stage.node.store.enclaves()) == before, "nothing was created"


def test_an_epoch_for_more_than_an_event_can_hold(party: Party) -> None:
    many = frozenset(PrivateKey(n.to_bytes(32, "big")).public for n in range(1, 3001)) | {party.alice.me}
    with pytest.raises(TooManyMembers, match="too many members for one epoch") as found:
        party.alice._proposed(many)
    assert found.value.code == "TOO_MANY_MEMBERS"


def test_what_people_did_is_told_in_words(party: Party) -> None:
    party.alice.sync()
    party.alice.set_profile({"name": "Alice"})
    party.alice.enclave.pause()
    told = [change.what for change in party.alice.sync()]
    assert told == ["changed their profile", "paused the group"]
