"""Messages to a group that are sent again after an error arrive once."""

from contextlib import suppress

import pytest

from enc.apps.group import Group
from enc.client import SendAttempt, Unreachable
from tests.apps.group.party import Party
from tests.apps.losing import Losing


def losing(group: Group, *fates: str) -> Losing:
    group._enclave = found = Losing(group.enclave, *fates)
    return found


@pytest.mark.parametrize("fate", ["answer", "request"])
def test_a_message_is_sent_again_and_arrives_once(party: Party, fate: str) -> None:
    bob, attempt = party.device("bob"), SendAttempt()
    bob.sync()
    link = losing(bob, fate, fate)
    for _ in range(2):
        with pytest.raises(Unreachable):
            bob.say("hello", attempt=attempt)
    sent = bob.say("hello", attempt=attempt)
    assert len(set(link.tried)) == 1, "the same bytes"
    bob.say("next")
    assert party.texts("alice") == ["hello", "next"]
    assert bob.entries()[0].id == sent.id


def test_without_its_attempt_a_message_is_another_one(party: Party) -> None:
    bob = party.device("bob")
    losing(bob, "answer")
    with suppress(Unreachable):
        bob.say("hello")
    bob.say("hello")
    assert party.texts("alice") == ["hello", "hello"]


def test_what_did_not_arrive_before_another_epoch_is_sealed_under_that(party: Party) -> None:
    bob, attempt = party.device("bob"), SendAttempt()
    link = losing(bob, "request")
    with suppress(Unreachable):
        bob.say("hello", attempt=attempt)
    epoch = party.alice.rotate()
    sent = bob.say("hello", attempt=attempt)
    assert len(set(link.tried)) == 2
    assert (sent.epoch, bob.entries()[-1].is_late) == (epoch.n, False)
    assert party.texts("alice") == ["hello"]


def test_what_did_arrive_before_another_epoch_is_not_sealed_again(party: Party) -> None:
    bob, attempt = party.device("bob"), SendAttempt()
    losing(bob, "answer")
    with suppress(Unreachable):
        bob.say("hello", attempt=attempt)
    party.alice.rotate()
    bob.say("hello", attempt=attempt)
    assert party.texts("alice") == ["hello"]


@pytest.mark.parametrize("fate", ["answer", "request"])
def test_a_commit_that_has_expired_is_signed_again_unless_it_arrived(party: Party, fate: str) -> None:
    bob, attempt = party.device("bob"), SendAttempt()
    link = losing(bob, fate)
    with suppress(Unreachable):
        bob.say("hello", attempt=attempt)
    party.stage.clock.now += 3_600_000
    bob.say("hello", attempt=attempt)
    assert party.texts("alice") == ["hello"]
    assert len(set(link.tried)) == (1 if fate == "answer" else 2)


def test_another_device_that_uses_the_same_key_meanwhile(party: Party) -> None:
    bob, phone, attempt = party.device("bob"), party.device("bob"), SendAttempt()
    losing(bob, "request")
    with suppress(Unreachable):
        bob.say("hello", attempt=attempt)
    phone.say("from the phone")
    bob.say("hello", attempt=attempt)
    assert party.texts("alice") == ["from the phone", "hello"]


def test_replies_announcements_and_reactions_too(party: Party) -> None:
    alice = party.alice
    first = alice.say("hello").id
    for act in (
        lambda attempt: alice.say("yes", reply_to=first, attempt=attempt),
        lambda attempt: alice.announce("hear, hear", attempt=attempt),
        lambda attempt: alice.react(first, "+1", attempt=attempt),
        lambda attempt: alice.edit(first, "hello, all", attempt=attempt),
    ):
        attempt = SendAttempt()
        losing(alice, "answer")
        with suppress(Unreachable):
            act(attempt)
        act(attempt)
    assert party.texts("bob") == ["hello, all", "yes", "hear, hear"]
    assert [each.text for each in alice.entries()[0].reactions] == ["+1"]
