"""Everyday situations: the last message, former contacts, stored messages, and a registry that is
down.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.apps import AddressBook
from enc.apps.dm import Mailbox, NoEpoch, NoSuchMessage, UnknownContact
from enc.apps.dm.peer import MAX_OPEN_INVITES
from enc.apps.people.address_book import Place
from enc.client import Client, Identity, Registry, Unreachable
from enc.core.errors import EnclaveNotFound, GateClosed, MisuseError, Unauthorized
from tests.apps.dm.conftest import Somebody, Street, mirrored

NOWHERE = "http://127.0.0.1:1"


def send_nowhere(who: Somebody, to: Somebody, text: str) -> Unreachable:
    """Send to a contact whose node is down."""
    with pytest.raises(Unreachable) as raised:
        who.mailbox.send(to.key, text, Place(to.place.enclave, NOWHERE))
    return raised.value


# The last message


def test_the_last_message_is_the_last_whatever_became_of_it(street: Street) -> None:
    alice, bob = street.friends()
    with pytest.raises(NoSuchMessage):  # an invitation is not a message
        alice.mailbox.last(bob.key)
    one = alice.mailbox.send(bob.key, "one")
    assert alice.device().last(bob.key) == one
    send_nowhere(alice, bob, "two")
    revisions_refused(alice, bob, ("two", "pending"), "has not arrived yet")
    bob.mailbox.remove(alice.key)
    with pytest.raises(Unauthorized):
        alice.mailbox.send(bob.key, "three")
    revisions_refused(alice, bob, ("three", "refused"), "was refused \\(UNAUTHORIZED\\)")
    assert bob.texts(alice)[-1] == "one"


def test_what_is_retracted_or_deleted_is_the_last_still(street: Street) -> None:
    """A second retraction, after the first answer was lost, does not retract another message."""
    alice, bob = street.friends()
    alice.mailbox.send(bob.key, "one")
    alice.mailbox.retract(bob.key, alice.mailbox.send(bob.key, "two").ref)
    revisions_refused(alice, bob, (None, "retracted"), "already retracted")
    three = alice.mailbox.send(bob.key, "three")
    bob.mailbox.sync()
    bob.mailbox.delete(alice.key, three.id)
    assert alice.mailbox.edit(bob.key, three.ref, "THREE").state == "removed"
    revisions_refused(alice, bob, ("three", "removed"), "have deleted the message")


def revisions_refused(who: Somebody, other: Somebody, last: tuple[Any, ...], why: str) -> None:
    box = who.device()
    found = box.last(other.key)
    assert (found.text, found.state) == last
    with pytest.raises(NoSuchMessage, match=why):
        box.edit(other.key, found.ref, "x")
    with pytest.raises(NoSuchMessage, match=why):
        box.retract(other.key, found.ref)


def test_the_last_message_is_so_by_one_s_own_log(street: Street) -> None:
    """The contact's node may have a clock that is ahead: a pending message is still the last one."""
    alice, bob = street.friends()
    one = alice.mailbox.send(bob.key, "one")
    send_nowhere(alice, bob, "two")
    entries = alice.mailbox._fold.peer(bob.key).entries
    entries[one.ref] = replace(one, at=one.at + 3_600_000)
    assert alice.mailbox.thread(bob.key)[-1].text == "one"
    assert alice.mailbox.last(bob.key).text == "two"


# Former contacts


@pytest.mark.parametrize("greeting", ["", "again?"])
def test_who_has_removed_you_is_invited_again(street: Street, greeting: str) -> None:
    alice, bob = street.friends()
    bob.mailbox.remove(alice.key)
    alice.mailbox.add(bob.key, greeting=greeting)
    (invite,) = bob.device().invites()
    assert (invite.author, invite.greeting) == (alice.key, greeting)
    bob.mailbox.accept(alice.key)
    bob.mailbox.send(alice.key, "yes")
    alice.mailbox.send(bob.key, "good")
    assert bob.texts(alice)[-2:] == ["yes", "good"]
    assert mirrored(alice.thread(bob)) == mirrored(bob.thread(alice))
    assert not alice.mailbox.refusals
    assert not bob.mailbox.refusals


def test_what_the_other_s_node_says_to_an_invitation_is_raised(street: Street) -> None:
    alice, bob = street.friends()
    bob.mailbox.remove(alice.key)
    bob.mailbox.take_invites(False)
    with pytest.raises(GateClosed):
        alice.mailbox.add(bob.key, greeting="again?")
    bob.mailbox.block(alice.key)
    with pytest.raises(Unauthorized):
        alice.mailbox.add(bob.key, greeting="again?")
    assert bob.device().invites() == []


def test_a_greeting_to_who_is_a_contact_still_is_a_message(street: Street) -> None:
    alice, bob = street.friends()
    bob.mailbox.take_invites(False)
    alice.mailbox.add(bob.key, greeting="hi again")
    assert bob.texts(alice)[-1] == "hi again"
    assert [entry.state for entry in alice.thread(bob)] == ["delivered", "received", "delivered"]
    assert mirrored(alice.thread(bob)) == mirrored(bob.thread(alice))


def test_a_greeting_to_who_has_invited_you_arrives(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place, greeting="hi")
    bob.mailbox.add(alice.key, greeting="welcome")
    assert alice.texts(bob) == ["hi", "welcome"]


def test_who_is_meant_is_said(street: Street) -> None:
    alice, who = street.somebody(), Identity.new()
    for call in (alice.mailbox.unblock, alice.mailbox.remove, alice.mailbox.accept, alice.mailbox.decline):
        with pytest.raises(UnknownContact, match=f"^{who.hex} "):
            call(who.public)


# What is stored


def test_an_error_says_whether_the_message_is_kept(street: Street) -> None:
    alice, bob = street.friends()
    kept = send_nowhere(alice, bob, "one")
    assert kept.context["kept"] is True
    assert "the message is stored: `repair` sends it" in kept.message
    with Client(NOWHERE, alice.identity, pins=None, patience=0.0) as client:
        box = Mailbox(client, alice.mailbox.enclave.id)
        for call in (
            lambda: box.send(bob.key, "two"),
            lambda: box.edit(bob.key, bytes(32), "two"),
            lambda: box.retract(bob.key, bytes(32)),
        ):
            with pytest.raises(Unreachable, match="cannot reach") as raised:
                call()
            assert raised.value.context["kept"] is False
            assert "nothing was stored" in raised.value.message
    with pytest.raises(EnclaveNotFound, match=bob.place.node) as nowhere:
        alice.mailbox.send(bob.key, "three", Place(b"\x01" * 32, bob.place.node))
    assert nowhere.value.context["kept"] is True


def test_what_is_kept_is_said_though_one_s_own_node_goes_away_next(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = street.friends()
    sync, calls = alice.mailbox.sync, list[int]()

    def once() -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise Unreachable("gone")
        return sync()

    monkeypatch.setattr(alice.mailbox, "sync", once)
    assert send_nowhere(alice, bob, "one").context["kept"] is True
    assert len(calls) == 2


@pytest.mark.parametrize("text", [None, b"bytes", 7])
def test_a_text_is_a_text(street: Street, text: Any) -> None:
    with pytest.raises(MisuseError, match="expected a str"):
        street.somebody().mailbox.send(Identity.new().public, text)


def test_whoever_invites_may_write_as_soon_as_the_invitation_is_accepted(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place)
    with pytest.raises(NoEpoch, match="they have not answered yet: you can send messages once they have accepted"):
        alice.mailbox.send(bob.key, "x")
    bob.mailbox.accept(alice.key)
    assert alice.mailbox.send(bob.key, "x").state == "delivered"
    assert bob.texts(alice) == ["", "x"]
    with pytest.raises(NoEpoch, match="add them first"):
        alice.mailbox.send(street.somebody("b").key, "x", bob.place)


def test_an_invitation_is_accepted_though_its_sender_s_node_is_down(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place)
    bob.mailbox.accept(alice.key, Place(alice.place.enclave, NOWHERE))
    assert bob.mailbox.contact(alice.key).state == "FRIEND"
    bob.mailbox.send(alice.key, "hello", alice.place)
    assert alice.texts(bob) == ["", "hello"]
    assert alice.mailbox.send(bob.key, "x").state == "delivered"


def test_every_greeting_that_was_delivered_is_shown(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    for greeting in ("first", "second", ""):
        alice.mailbox.add(bob.key, bob.place, greeting=greeting)
    bob.mailbox.sync()
    assert [each.greeting for each in bob.mailbox.invites()] == ["first\nsecond"]
    bob.mailbox.accept(alice.key)
    alice.mailbox.add(bob.key, greeting="third")
    delivered = [each.text for each in alice.thread(bob) if each.state == "delivered"]
    assert delivered == bob.texts(alice) == ["first", "second", "", "third"]


def test_deleting_any_open_invitation_declines_them_all(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    for greeting in ("first", "second"):
        alice.mailbox.add(bob.key, bob.place, greeting=greeting)
    bob.mailbox.sync()
    bob.mailbox.delete(alice.key, bob.mailbox.thread(alice.key)[0].ref)
    assert (bob.thread(alice), bob.mailbox.invites(), bob.device().invites()) == ([], [], [])


def test_a_greeting_that_cannot_be_sealed_yet_is_not_lost_in_silence(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place)
    bob.mailbox.accept(alice.key, Place(alice.place.enclave, NOWHERE))
    with pytest.raises(NoEpoch, match="the greeting was not sent"):
        alice.mailbox.add(bob.key, greeting="third")
    assert [(each.text, each.state) for each in alice.thread(bob)] == [("", "delivered"), ("third", "refused")]


def test_more_invitations_than_their_recipient_keeps_are_not_sent(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    for i in range(MAX_OPEN_INVITES):
        alice.mailbox.add(bob.key, bob.place, greeting=str(i))
    with pytest.raises(MisuseError, match="are not answered: nothing was sent"):
        alice.mailbox.add(bob.key, bob.place, greeting="more")
    assert len(bob.texts(alice)) == MAX_OPEN_INVITES


# Where mailboxes are known


def test_a_second_mailbox_is_created_on_purpose_alone(street: Street, tmp_path: Any) -> None:
    who = Identity.new()
    client = street.stack.enter_context(street.town.client(who, "a", pins=None))
    first = Mailbox.create(client)
    with pytest.raises(MisuseError, match="already"):
        Mailbox.create(client)
    assert Mailbox.find(client).enclave.id == first.enclave.id
    second = Mailbox.create(client, again=True)
    assert client.lookup(who.public, fresh=True).enclaves["dm"] == second.enclave.id
    alone = Client(street.town.nodes["a"].url, who, pins=None)
    street.stack.enter_context(alone)
    book = AddressBook(tmp_path / "book.json")
    Mailbox.create(alone, book=book)
    with pytest.raises(MisuseError, match="already"):
        Mailbox.create(alone, book=book)


def test_a_registry_that_is_away_is_not_needed_for_known_contacts(street: Street) -> None:
    """The owner's log has the address of contacts' mailboxes from the first message on; an error names
    the node that does not answer.
    """
    people = [Identity.new(), Identity.new()]
    clients = [street.town.client(who, at, pins=None) for who, at in zip(people, "ab", strict=True)]
    alice, bob = (Mailbox.create(street.stack.enter_context(client)) for client in clients)
    alice.add(people[1].public)
    bob.accept(people[0].public)
    bob.send(people[0].public, "found you")
    away = Registry(url=NOWHERE, enclave=street.town.registry.enclave)
    options: dict[str, Any] = {"pins": None, "patience": 0.0, "registry": away}
    alone = street.stack.enter_context(Client(street.town.nodes["a"].url, people[0], **options))
    box = Mailbox(alone, alice.enclave.id)
    assert box.send(people[1].public, "by heart").state == "delivered"
    bob.sync()
    assert [entry.text for entry in bob.thread(people[0].public)][-1] == "by heart"
    with pytest.raises(Unreachable) as raised:
        box.add(Identity.new().public)
    assert raised.value.message.startswith("the registry does not answer: cannot reach")
