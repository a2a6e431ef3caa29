"""A new device has the same state as the first, in every field that decides what either may do
next.
"""

import os
from dataclasses import fields
from typing import Any

import pytest
from msgspec.structs import replace

from enc.apps.dm import Mailbox, MailboxFold
from enc.apps.dm import open_message as module
from enc.apps.dm.compose import Composer, decline_tags
from enc.apps.dm.records import MAX_TEXT, CopyRecord
from enc.apps.people.address_book import Place
from enc.core.errors import EnclaveNotFound, IdentityNotFound
from enc.core.primitives.sealing import open_sealed
from enc.core.primitives.types import Event
from enc.core.sealed_forms import dm
from tests.apps.dm.conftest import Somebody, Street
from tests.apps.dm.log import Log, codes, current, nonce, of, texts, words
from tests.core.world import person

S, T, U = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32
FORGOTTEN = {"unblocked_seq", "place_seq"}
"""Seqs from which something counts: their effect shows in other fields."""


def state(fold: MailboxFold, who: bytes) -> dict[str, Any]:
    """Return everything that is known of a person."""
    peer = fold.peer(who)
    found = {each.name: getattr(peer, each.name) for each in fields(peer) if each.name not in FORGOTTEN}
    return {
        **found,
        "own": dict(peer.own._secrets),
        "heard": peer.messages_in_epoch,
        "owes": peer.owes_epoch,
        "where": peer.known_place,
    }


def invite(log: Log, who: str, greeting: str, *more: tuple[str, ...], mailbox: str = "cc" * 32) -> Event:
    key, to = person(who), person("alice").public
    tag = ("enclave_id", dm.seal_invite(key, to, mailbox, nonce()))
    return log.say(who, "invite", dm.seal_invite(key, to, greeting, nonce()), tag, *more)


def delete(log: Log, *tags: tuple[str, ...]) -> None:
    log.say("alice", "Delete", {"reason": "moderator"}, *tags)


def recovered(log: Log, who: str, *gone: Event) -> dict[str, Any]:
    """Return the first device's state, after checking that a new device has the same without the
    deleted events.
    """
    key = person(who).public
    first = state(log.fold(), key)
    assert state(log.fold(events=log.erased(*gone, shown=False)), key) == first
    return first


@pytest.fixture
def log() -> Log:
    made = Log()
    made.befriend("bob", S)
    return made


# Invitations


def test_nothing_is_left_of_an_invitation_that_was_declined(log: Log) -> None:
    made = invite(log, "dave", "hi", log.given("dave", 0, U))
    delete(log, *decline_tags(of(log.fold(), "dave"), made.id))
    left = recovered(log, "dave", made)
    assert (left["given"], left["claimed_place"], left["open_invites"], left["entries"]) == (None, None, [], {})


def test_an_earlier_invitation_does_not_come_back_with_the_declining_of_the_latest(log: Log) -> None:
    invite(log, "dave", "one", log.given("dave", 0, U))
    two = invite(log, "dave", "two", log.given("dave", 1, T), mailbox="dd" * 32)
    delete(log, *decline_tags(of(log.fold(), "dave"), two.id))
    assert recovered(log, "dave", two)["entries"] == {}
    invite(log, "dave", "three", log.given("dave", 0, S))
    assert recovered(log, "dave", two)["claimed_place"] == Place(b"\xcc" * 32)
    assert current(log.fold(), "dave").secret == S  # type: ignore[union-attr]


def test_who_was_a_contact_and_is_declined_is_forgotten_alike(log: Log) -> None:
    log.copy("bob", CopyRecord(text="x", state="delivered", id="ab" * 32, at=1, delivers=0, mailbox="ee" * 32))
    log.message("bob", words(S, 0, "one"), log.given("bob", 0, U))
    log.move("bob", "FRIEND", "OUTSIDER")
    made = invite(log, "bob", "I lost it", log.given("bob", 0, T))
    delete(log, *decline_tags(of(log.fold(), "bob"), made.id))
    assert recovered(log, "bob", made)["where"] is None
    assert texts(log.fold(), "bob")[-1] == "one"


def test_one_that_was_accepted_on_one_device_and_declined_on_another(log: Log) -> None:
    made = invite(log, "dave", "hi", log.given("dave", 0, U))
    tags = decline_tags(of(log.fold(), "dave"), made.id)
    log.befriend("dave", T)
    delete(log, *tags)
    assert recovered(log, "dave", made)["given"] is None


def test_a_greeting_that_is_deleted_after_all_leaves_what_it_brought(log: Log) -> None:
    tag = log.given("dave", 0, U)
    made = invite(log, "dave", "hi", tag)
    log.befriend("dave", T)
    composer = Composer(log.owner, lambda _: nonce())
    delete(log, *composer.deletion_tags(of(log.fold(), "dave"), made.id, tag))
    left = recovered(log, "dave", made)
    assert (left["given"].secret, left["claimed_place"].enclave, left["entries"]) == (U, b"\xcc" * 32, {})


def test_of_a_stranger_s_invitations_the_newest_greetings_are_kept(log: Log) -> None:
    for i in range(20):
        invite(log, "dave", str(i), log.given("dave", i, U))
    fold, kept = log.fold(), [str(i) for i in range(4, 20)]
    assert ([each.greeting for each in fold.invites()], texts(fold, "dave")) == (["\n".join(kept)], kept)
    assert not of(fold, "dave").is_contact


def test_an_earlier_greeting_that_another_program_deleted_is_gone_alone(log: Log) -> None:
    one = invite(log, "dave", "one", log.given("dave", 0, U))
    invite(log, "dave", "two", log.given("dave", 0, U))
    delete(log, ("r", one.id.hex()))
    recovered(log, "dave", one)
    assert [each.greeting for each in log.fold().invites()] == ["two"]


def test_who_has_but_sent_an_invitation_is_no_contact(log: Log) -> None:
    invite(log, "dave", "hi", log.given("dave", 0, U))
    assert [peer.is_contact for peer in log.fold().peers.values()] == [True, False]
    log.befriend("dave", T)
    log.move("dave", "FRIEND", "OUTSIDER")
    assert of(log.fold(), "dave").is_contact, "there was something"


# Messages


def test_what_is_deleted_counts_for_no_rotation(log: Log) -> None:
    one = log.message("bob", words(S, 0, "one"))
    two = log.message("bob", words(S, 1, "two"))
    delete(log, ("r", one.id.hex()))
    log.say("bob", "Delete", {"reason": "author"}, ("r", two.id.hex()), ("at", str(two.timestamp)))
    log.message("bob", words(S, 2, "three"))
    assert recovered(log, "bob", one, two)["heard"] == 1
    log.rotate("bob", 1, T)
    assert recovered(log, "bob", one, two)["heard"] == 0


def test_a_text_is_bounded_on_reading(log: Log) -> None:
    log.message("bob", words(S, 0, "x" * (MAX_TEXT + 7)))
    invite(log, "dave", "y" * (MAX_TEXT + 7))
    assert (texts(log.fold(), "bob"), texts(log.fold(), "dave")) == (["x" * MAX_TEXT], ["y" * MAX_TEXT])


def test_no_key_is_looked_for_of_what_is_long(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[bytes]()

    def counted(key: bytes, sealed: bytes) -> bytes:
        tried.append(key)
        return open_sealed(key, sealed)

    monkeypatch.setattr(module, "open_sealed", counted)
    log.befriend("carol", U)
    log.message("bob", words(T, 0, "x" * (MAX_TEXT + 1)))
    assert (codes(log.fold()), len(tried)) == (["DM_WRONG_KEY"], 1)
    log.message("bob", words(T, 0, "x" * MAX_TEXT))
    log.fold()
    assert len(tried) > 3


def test_secrets_are_not_shown(log: Log) -> None:
    log.message("bob", words(S, 0, "quince"), log.given("bob", 0, U))
    invite(log, "dave", "medlar")
    log.copy("bob", CopyRecord(text="sloe", state="delivered"))
    fold = log.fold()
    given = current(fold, "bob")
    shown = " ".join(map(repr, (given, of(fold, "bob"), of(fold, "bob").own, of(fold, "dave"), fold.peers)))
    hidden = (repr(S)[2:-1], repr(U)[2:-1], S.hex(), U.hex(), "quince", "medlar", "sloe")
    assert not [each for each in hidden if each in shown]


# On real nodes


def alike(one: Somebody, *others: Somebody) -> Mailbox:
    one.mailbox.sync()
    fresh = one.device()
    for other in others:
        assert state(fresh._fold, other.key) == state(one.mailbox._fold, other.key)
    assert (fresh.contacts(), fresh.invites()) == (one.mailbox.contacts(), one.mailbox.invites())
    return fresh


def test_a_life_of_a_mailbox_is_recovered_whole(street: Street) -> None:
    """Epochs made and given, and used numbers, survive whatever happens to the events that brought
    them.
    """
    alice, bob = street.friends()
    one = alice.mailbox.send(bob.key, "one")
    alice.mailbox.edit(bob.key, one.ref, "ONE")
    bob.mailbox.rotate(alice.key)
    bob.mailbox.send(alice.key, "two")  # brings epoch 1
    alice.mailbox.sync()
    brought = alice.mailbox.thread(bob.key)[-1]
    alice.mailbox.delete(bob.key, brought.ref)
    alice.mailbox.send(bob.key, "three")
    alice.mailbox.rotate(bob.key)
    last = alice.mailbox.send(bob.key, "four")
    alice.mailbox.retract(bob.key, last.ref)
    bob.mailbox.block(alice.key)
    bob.mailbox.unblock(alice.key)
    bob.mailbox.send(alice.key, "five")
    found = alike(alice, bob)._fold.peer(bob.key)
    assert (found.given and found.given.n, found.own.n, found.used) == (1, 1, {0: 1, 1: 1})
    assert alike(bob, alice)._fold.peer(alice.key).given == alike(bob, alice)._fold.peer(alice.key).given
    alice.device().send(bob.key, "and on")
    assert bob.texts(alice)[-1] == "and on"


def test_an_invitation_is_declined_on_every_device(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place, greeting="hi")
    bob.mailbox.sync()
    assert bob.mailbox.contacts() == []
    assert [each.greeting for each in bob.mailbox.invites()] == ["hi"]
    bob.mailbox.decline(alice.key)
    fresh = alike(bob, alice)
    for device in (bob.mailbox, fresh):
        with pytest.raises(Exception, match="has not invited you"):
            device.accept(alice.key)
        assert device.contacts() == []


def test_the_greeting_of_a_contact_is_deleted(street: Street) -> None:
    alice, bob = street.friends()
    (greeting,) = [each for each in bob.mailbox.thread(alice.key) if each.kind == "invite"]
    bob.mailbox.delete(alice.key, greeting.ref)
    alike(bob, alice).send(alice.key, "still here")
    assert alice.texts(bob)[-1] == "still here"


@pytest.mark.parametrize("error", [EnclaveNotFound, IdentityNotFound])
def test_who_cannot_be_found_has_refused_nothing(
    street: Street, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A message that arrived, but whose answer was lost, stays pending until the registry knows the
    contact again.
    """
    alice, bob = street.friends()
    box = alice.mailbox
    with monkeypatch.context() as patch:
        patch.setattr(box._outbox, "_is_outdated", lambda *_: True)  # the outcome is not written
        box.send(bob.key, "did it?")

    def lost(*_: object) -> object:
        raise error("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(box._outbox, "_locate", lost)
        box.repair()
        assert alice.thread(bob)[-1].state == "pending"
    box.repair()
    assert (alice.thread(bob)[-1].state, bob.texts(alice)[-1]) == ("delivered", "did it?")


def test_a_node_without_the_mailbox_has_refused_nothing(street: Street) -> None:
    alice, bob = street.friends()
    with pytest.raises(EnclaveNotFound):
        alice.mailbox.send(bob.key, "anybody?", replace(bob.place, enclave=os.urandom(32)))
    assert alice.thread(bob)[-1].state == "pending"
