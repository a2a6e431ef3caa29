"""Mailboxes on real nodes: contacts, invitations, messages, epochs, and interruptions."""

from typing import Any

import pytest

from enc.apps.dm import Mailbox, NoEpoch, NoPlace, NoSuchMessage, Rotation, UnknownContact
from enc.apps.dm.contact_actions import record_at
from enc.apps.dm.outbox import Outbox
from enc.apps.dm.records import MAX_TEXT
from enc.apps.people.address_book import Place
from enc.client import Client, Identity, Unreachable
from enc.core.errors import Expired, GateClosed, MisuseError, Unauthorized
from enc.core.primitives.encoding import strict_json
from enc.core.sealed_forms import dm
from tests.apps.dm.conftest import Somebody, Street, mirrored


def alike(one: Somebody, other: Somebody) -> None:
    assert mirrored(one.thread(other)) == mirrored(other.thread(one))
    assert not one.mailbox.refusals
    assert not other.mailbox.refusals


def epoch_tags(mailbox: Mailbox) -> list[str]:
    """Return the numbers of the epochs that messages brought."""
    items = mailbox.enclave.query(type="message")
    return [tag[1] for item in items for tag in item.event.tags if tag[0] == "epoch"]


# Contacts


def test_from_strangers_to_friends(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place, greeting="hi, it is Alice ☃")
    with pytest.raises(NoEpoch):
        alice.mailbox.send(bob.key, "too early")
    bob.mailbox.sync()
    (invite,) = bob.mailbox.invites()
    assert (invite.author, invite.greeting) == (alice.key, "hi, it is Alice ☃")
    bob.mailbox.accept(alice.key)
    assert bob.mailbox.invites() == []
    bob.mailbox.send(alice.key, "hello, Alice")
    alice.mailbox.sync()
    alice.mailbox.send(bob.key, "hello, Bob")
    assert alice.texts(bob) == bob.texts(alice) == ["hi, it is Alice ☃", "hello, Alice", "hello, Bob"]
    alike(alice, bob)


def test_whoever_is_invited_may_write_before_accepting(street: Street) -> None:
    """One direction only: without a Move there is no epoch to give, and the other may not write
    back.
    """
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.add(bob.key, bob.place)
    bob.mailbox.send(alice.key, "who is that?")
    assert alice.texts(bob)[1:] == ["who is that?"]
    assert epoch_tags(alice.mailbox) == []
    with pytest.raises(NoEpoch):
        alice.mailbox.send(bob.key, "me")
    bob.mailbox.accept(alice.key)
    bob.mailbox.send(alice.key, "ah")
    assert epoch_tags(alice.mailbox) == ["0"]
    alice.mailbox.send(bob.key, "me")
    assert bob.texts(alice)[1:] == ["who is that?", "ah", "me"]
    alike(alice, bob)


def test_two_who_add_each_other_at_once(street: Street) -> None:
    """Each is the other's friend already, so neither may invite: an empty message brings the
    epoch.
    """
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox._befriend(alice.mailbox._known(bob.key))
    bob.mailbox._befriend(bob.mailbox._known(alice.key))
    with pytest.raises(NoEpoch, match="the greeting was not sent"):
        alice.mailbox.add(bob.key, bob.place, greeting="hi")
    bob.mailbox.add(alice.key, greeting="hi")
    bob.mailbox.send(alice.key, "that was close")
    alice.mailbox.send(bob.key, "yes")
    assert [text for text in bob.texts(alice) if text != "hi"] == ["that was close", "yes"]
    alike(alice, bob)


def test_whoever_is_blocked_cannot_introduce_themselves(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    bob.mailbox.block(alice.key)
    with pytest.raises(Unauthorized):
        alice.mailbox.add(bob.key, bob.place, greeting="hi")
    assert [(entry.state, entry.code) for entry in alice.thread(bob)] == [("refused", "UNAUTHORIZED")]
    assert bob.thread(alice) == []


def test_a_closed_mailbox_takes_no_invitation(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    bob.mailbox.take_invites(False)
    assert not bob.device().is_open
    with pytest.raises(GateClosed):
        alice.mailbox.add(bob.key, bob.place)
    bob.mailbox.take_invites(True)
    alice.mailbox.add(bob.key, bob.place)
    bob.mailbox.sync()
    assert len(bob.mailbox.invites()) == 1
    bob.mailbox.decline(alice.key)
    assert bob.mailbox.invites() == bob.device().invites() == []
    with pytest.raises(UnknownContact):
        bob.mailbox.decline(alice.key)


def test_a_block_and_an_unblock_in_a_conversation(street: Street) -> None:
    alice, bob = street.friends()
    said = bob.mailbox.send(alice.key, "one")
    alice.mailbox.block(bob.key)
    for act in (
        lambda: bob.mailbox.send(alice.key, "two"),
        lambda: bob.mailbox.edit(alice.key, said.ref, "ONE"),
        lambda: bob.mailbox.retract(alice.key, said.ref),
    ):
        with pytest.raises(Unauthorized):
            act()
    states = [(entry.text, entry.state, entry.code) for entry in bob.thread(alice)[-2:]]
    assert states == [("one", "delivered", "UNAUTHORIZED"), ("two", "refused", "UNAUTHORIZED")]
    alice.mailbox.send(bob.key, "I may still write")
    moves = len(list(alice.mailbox.enclave.query(type=["Move", "rotate"])))
    before = alice.mailbox.contact(bob.key).own_epoch
    alice.mailbox.unblock(bob.key)
    assert alice.mailbox.contact(bob.key).own_epoch == before == 0, "no new epoch"
    assert len(list(alice.mailbox.enclave.query(type=["Move", "rotate"]))) == moves + 1
    bob.mailbox.send(alice.key, "three")
    tags = epoch_tags(bob.mailbox)
    alice.mailbox.send(bob.key, "with the epoch again")
    assert epoch_tags(bob.mailbox) == [*tags, "0"]
    alice.mailbox.send(bob.key, "and not twice")
    assert epoch_tags(bob.mailbox) == [*tags, "0"]
    alike(alice, bob)


def test_unblocking_whom_one_never_knew(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.block(bob.key)
    alice.mailbox.unblock(bob.key)
    contact = alice.device().contact(bob.key)
    assert (contact.state, contact.own_epoch) == ("FRIEND", 0)
    alice.mailbox.block(bob.key)
    alice.mailbox.unblock(bob.key, friend=False)
    assert alice.device().contact(bob.key).state == "OUTSIDER"


def test_a_removed_contact_comes_back_with_a_greater_epoch(street: Street) -> None:
    alice, bob = street.friends()
    alice.mailbox.remove(bob.key)
    with pytest.raises(Unauthorized):
        bob.mailbox.send(alice.key, "still there?")
    alice.mailbox.add(bob.key)
    assert alice.device().contact(bob.key).own_epoch == 1
    alice.mailbox.send(bob.key, "again")
    bob.mailbox.sync()
    assert bob.mailbox.contact(alice.key).given_epoch == 1
    bob.mailbox.send(alice.key, "good")
    assert alice.texts(bob)[-2:] == ["again", "good"]
    alike(alice, bob)


@pytest.mark.parametrize(
    ("state", "call"),
    [
        ("FRIEND", lambda box, who: box.unblock(who)),
        ("OUTSIDER", lambda box, who: box.remove(who)),
        ("OUTSIDER", lambda box, who: box.accept(who)),
        ("OUTSIDER", lambda box, who: box.rotate(who)),
        ("BLOCKED", lambda box, who: box.block(who)),
        ("BLOCKED", lambda box, who: box.add(who)),
    ],
)
def test_what_makes_no_sense_is_told(street: Street, state: str, call: Any) -> None:
    alice = street.somebody()
    who = Identity.new().public
    if state != "OUTSIDER":
        alice.mailbox.enclave.move(who, "OUTSIDER", state)
    before = alice.mailbox.enclave.overview().head
    with pytest.raises(UnknownContact):
        call(alice.mailbox, who)
    assert alice.mailbox.contact(who).state == state
    assert alice.mailbox.enclave.overview().head == before


def test_nobody_is_reached_who_is_nowhere(street: Street) -> None:
    alice = street.somebody()
    stranger = Identity.new().public
    with pytest.raises(NoPlace):
        alice.mailbox.add(stranger)
    assert alice.mailbox.contact(stranger).state == "OUTSIDER", "nothing was written"
    for who in (alice.key, b"\xff" * 32, "x"):
        with pytest.raises(MisuseError):
            alice.mailbox.add(who)


def test_by_the_registry(street: Street) -> None:
    """Only keys are exchanged: the registry knows the mailboxes, also for new devices."""
    people = [Identity.new(), Identity.new()]
    clients = [
        street.stack.enter_context(street.town.client(who, at, pins=None)) for who, at in zip(people, "ab", strict=True)
    ]  # type: ignore[arg-type]
    alice, bob = (Mailbox.create(client, name=f"{who.hex}") for client, who in zip(clients, people, strict=True))
    alice.add(people[1].public, greeting="hi")
    bob.add(people[0].public)
    bob.send(people[0].public, "found you")
    nowhere = street.stack.enter_context(street.town.client(people[0], pins=None))
    fresh = Mailbox.find(nowhere)
    fresh.sync()
    fresh.send(people[1].public, "from anywhere")
    bob.sync()
    assert [entry.text for entry in bob.thread(people[0].public)] == ["hi", "found you", "from anywhere"]
    with pytest.raises(NoPlace):
        Mailbox.find(street.stack.enter_context(street.town.client(Identity.new(), pins=None)))


# Messages


def test_edits_and_retractions(street: Street) -> None:
    alice, bob = street.friends()
    one, two = (alice.mailbox.send(bob.key, text) for text in ("one", "two"))
    first = alice.mailbox.edit(bob.key, one.ref, "ONE")
    assert (first.text, first.is_edited, first.state, first.id) == ("ONE", True, "delivered", one.id)
    alice.mailbox.edit(bob.key, one.ref, "Eins")
    gone = alice.mailbox.retract(bob.key, two.ref)
    assert (gone.text, gone.state) == (None, "retracted")
    assert alice.device()._fold.peer(bob.key).records[two.ref].text == "", "nor is it in the copy"
    seen = [(entry.text, entry.state, entry.is_edited) for entry in bob.thread(alice)[-2:]]
    assert seen == [("Eins", "received", True), (None, "retracted", False)]
    alike(alice, bob)
    for call in (
        lambda: alice.mailbox.edit(bob.key, two.ref, "x"),
        lambda: alice.mailbox.retract(bob.key, two.ref),
        lambda: bob.mailbox.edit(alice.key, bob.thread(alice)[-2].ref, "x"),
        lambda: alice.mailbox.delete(bob.key, one.ref),
    ):
        with pytest.raises(NoSuchMessage):
            call()


def test_another_device_edits_and_retracts(street: Street) -> None:
    alice, bob = street.friends()
    one, two = (alice.mailbox.send(bob.key, text) for text in ("one", "two"))
    phone = alice.device()
    phone.edit(bob.key, one.ref, "ONE")
    phone.retract(bob.key, two.ref)
    alike(alice, bob)


def test_the_owner_deletes_what_came(street: Street) -> None:
    """The author notices the deletion when it tries to revise: its copy records it, and keeps the
    text.
    """
    alice, bob = street.friends()
    one, two = (alice.mailbox.send(bob.key, text) for text in ("one", "two"))
    bob.mailbox.sync()
    bob.mailbox.delete(alice.key, one.id)
    bob.mailbox.delete(alice.key, two.id)
    assert bob.texts(alice)[-1] == "hello"
    assert alice.mailbox.edit(bob.key, one.ref, "ONE").state == "removed"
    assert alice.mailbox.retract(bob.key, two.ref).state == "removed"
    assert [(entry.text, entry.state) for entry in alice.thread(bob)[-2:]] == [("one", "removed"), ("two", "removed")]


@pytest.mark.parametrize("who", ["author", "owner"])
def test_an_epoch_outlives_the_message_that_brought_it(street: Street, who: str) -> None:
    alice, bob = street.friends()
    alice.mailbox.rotate(bob.key)
    one = alice.mailbox.send(bob.key, "with epoch 1")
    bob.mailbox.sync()
    if who == "author":
        alice.mailbox.retract(bob.key, one.ref)
    else:
        bob.mailbox.delete(alice.key, one.id)
    fresh = bob.device()
    assert fresh.contact(alice.key).given_epoch == 1
    fresh.send(alice.key, "sealed with it")
    alice.mailbox.sync()
    assert alice.mailbox.contact(bob.key).own_epoch == 1
    assert alice.texts(bob)[-1] == "sealed with it"
    assert not fresh.refusals


@pytest.mark.parametrize("text", ["", "x" * (MAX_TEXT + 1), "\ud800"])
def test_a_text_is_bounded(street: Street, text: str) -> None:
    alice = street.somebody()
    with pytest.raises(MisuseError, match="text: "):
        alice.mailbox.send(Identity.new().public, text)


@pytest.mark.parametrize("text", ["x" * MAX_TEXT, "\x00" * MAX_TEXT, '"' * MAX_TEXT, "ü" * (MAX_TEXT // 2)])
def test_the_longest_text_goes_through(street: Street, text: str) -> None:
    alice, bob = street.friends()
    sent = alice.mailbox.send(bob.key, text)
    alice.mailbox.edit(bob.key, sent.ref, text[::-1])
    assert bob.texts(alice)[-1] == text[::-1]


def test_two_devices_send_at_once_with_the_same_number(street: Street) -> None:
    alice, bob = street.friends()
    desk, phone = alice.device(), alice.device()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phone, "sync", list)  # it has not read what the other device sent
        desk.send(bob.key, "from the desk")
        peer = phone._fold.peer(bob.key)
        phone._outbox.post(peer, _record(peer, "from the phone"), "send")
    items = list(bob.mailbox.enclave.query(type="message"))
    sealed = [dm.parse_message(_json(item.content)) for item in items]
    assert sealed[0].sender_seq == sealed[1].sender_seq == 0
    assert sealed[0].ciphertext[:32] != sealed[1].ciphertext[:32], "two nonces"
    assert bob.texts(alice)[-2:] == ["from the desk", "from the phone"]
    phone.sync()
    phone.send(bob.key, "after both")
    last = list(bob.mailbox.enclave.query(type="message"))[-1]
    assert dm.parse_message(_json(last.content)).sender_seq == 1
    alike(alice, bob)


def _record(peer: Any, text: str) -> Any:
    return record_at(peer.known_place, text=text)


def _json(content: str | None) -> Any:
    return strict_json(content or "")


# Epochs


def test_a_rotation_is_given_with_the_next_message(street: Street) -> None:
    alice, bob = street.friends()
    alice.mailbox.send(bob.key, "zero")
    assert epoch_tags(bob.mailbox) == ["0"], "again, since his acceptance named a mailbox for the first time"
    assert alice.mailbox.rotate(bob.key) == 1
    assert alice.mailbox.rotate(bob.key) == 2
    bob.mailbox.send(alice.key, "still with zero")
    alice.mailbox.send(bob.key, "brings two")
    bob.mailbox.send(alice.key, "with two")
    sealed = [item.content for item in alice.mailbox.enclave.query(type="message") if item.content]
    assert [dm.parse_message(_json(content)).epoch for content in sealed] == [0, 0, 2]
    assert (epoch_tags(bob.mailbox), bob.mailbox.contact(alice.key).given_epoch) == (["0", "2"], 2)
    alike(alice, bob)


def test_a_rotation_after_so_many_messages(street: Street) -> None:
    alice, bob = street.friends()
    box = alice.device(rotation=Rotation(messages=3, age_ms=None))
    for i in range(3):
        bob.mailbox.send(alice.key, str(i))
        box.send(bob.key, "yes")
    assert box.contact(bob.key).own_epoch == 1
    bob.mailbox.sync()
    assert bob.mailbox.contact(alice.key).given_epoch == 1


def test_a_rotation_after_so_long(street: Street) -> None:
    alice, bob = street.friends()
    now = alice.mailbox.enclave.manifest().timestamp
    box = alice.device(rotation=Rotation(messages=None, age_ms=3_600_000), clock=lambda: now)
    box.send(bob.key, "young")
    assert box.contact(bob.key).own_epoch == 0
    now += 3_700_000
    box.send(bob.key, "old")
    assert box.contact(bob.key).own_epoch == 1
    box.send(bob.key, "and given, but not used yet")
    assert box.contact(bob.key).own_epoch == 1


def test_an_epoch_that_is_used_up_waits_for_the_next(street: Street) -> None:
    alice, bob = street.friends()
    alice.mailbox._fold.peer(bob.key).used[0] = dm.MAX_SENDER_SEQ
    with pytest.raises(NoEpoch, match="no unused message number"):
        alice.mailbox.send(bob.key, "one too many")
    bob.mailbox.rotate(alice.key)
    bob.mailbox.send(alice.key, "here is another")
    alice.mailbox.send(bob.key, "thanks")
    assert bob.texts(alice)[-2:] == ["here is another", "thanks"]


def test_two_devices_rotate_at_once(street: Street) -> None:
    """Two devices use number 1: the first in the log counts on every device, and is the one that is
    given.
    """
    alice, bob = street.friends()
    desk, phone = alice.device(), alice.device()
    peer = phone._fold.peer(bob.key)
    desk.rotate(bob.key)
    phone._rotate(peer)
    desk.sync()
    assert desk._fold.peer(bob.key).own.secret == phone._fold.peer(bob.key).own.secret
    assert [each.error.code for each in alice.device().refusals] == ["DM_EPOCH_REPLAYED"]
    phone.send(bob.key, "brings the first's")
    bob.mailbox.send(alice.key, "sealed with it")
    assert alice.texts(bob)[-1] == "sealed with it"


# Interruptions


class Killed(BaseException):
    """Raised like a power cut."""


def killed(monkeypatch: pytest.MonkeyPatch, where: str, work: Any) -> None:
    """Let the program die before the message is sent, before the outcome is written, or after both."""

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if where == "before sending":
            patch.setattr(Outbox, "settle", die)
        else:
            patch.setattr("enc.apps.dm.outbox.records.done", die)
        with pytest.raises(Killed):
            work()


@pytest.mark.parametrize("where", ["before sending", "before the outcome is written"])
@pytest.mark.parametrize("act", ["send", "edit", "retract", "invite"])
def test_what_is_interrupted_is_finished_once(
    street: Street, monkeypatch: pytest.MonkeyPatch, where: str, act: str
) -> None:
    """Any device repairs, also two at once."""
    if act == "invite":
        alice, bob = street.somebody("a"), street.somebody("b")
        killed(monkeypatch, where, lambda: alice.device().add(bob.key, bob.place, greeting="two"))
    else:
        alice, bob = street.friends()
        one = alice.mailbox.send(bob.key, "one")
        work = {
            "send": lambda box: box.send(bob.key, "two"),
            "edit": lambda box: box.edit(bob.key, one.ref, "two"),
            "retract": lambda box: box.retract(bob.key, one.ref),
        }[act]
        killed(monkeypatch, where, lambda: work(alice.device()))
    other = alice.device()
    assert [record.pending is not None for *_, record in other._fold.pending()] == [True]
    assert [each.error for box in (alice.device(), other, alice.device()) for each in box.repair()] == [None]
    assert list(alice.device()._fold.pending()) == []
    assert bob.texts(alice).count("two") == (act != "retract")
    alike(alice, bob)


def test_a_commit_that_grew_too_old_is_made_anew(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = street.friends()
    compose = Outbox.compose

    def old(*what: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("enc.client.link.enclave_session.EXPIRY_MS", -3_600_000)
            return compose(*what)

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "compose", old)
        killed(patch, "before sending", lambda: alice.device().send(bob.key, "late"))
    box = alice.device()
    ((peer, ref, record),) = box._fold.pending()
    with pytest.raises(Expired):
        box._outbox.settle(peer, ref, record)
    assert [each.error for each in box.repair()] == [None]
    assert bob.texts(alice)[-1] == "late"
    alike(alice, bob)


def test_a_node_that_cannot_be_reached_leaves_it_pending(street: Street) -> None:
    alice, bob = street.friends()
    nobody = Place(bob.place.enclave, "http://127.0.0.1:1")
    with pytest.raises(Unreachable):
        alice.device().send(bob.key, "lost?", nobody)
    assert [(entry.text, entry.state) for entry in alice.thread(bob)[-1:]] == [("lost?", "pending")]
    bob.mailbox.block(alice.key)
    with pytest.raises(Unauthorized):
        alice.mailbox.send(bob.key, "where it was before")
    (left,) = alice.device().repair()
    assert left.error is not None
    assert (left.who, left.act, left.text, left.error.code, left.is_left) == (
        bob.key,
        "send",
        "lost?",
        "UNREACHABLE",
        True,
    )


def test_a_refusal_stands_in_the_copy(street: Street) -> None:
    alice, bob = street.friends()
    bob.mailbox.remove(alice.key)
    with pytest.raises(Unauthorized):
        alice.mailbox.send(bob.key, "anybody?")
    found = [(entry.state, entry.code) for entry in alice.thread(bob)[-1:]]
    assert found == [("refused", "UNAUTHORIZED")]
    assert alice.mailbox.repair() == [], "what was refused is not tried again"


def test_live(street: Street) -> None:
    """A subscription brings the same as a query."""
    alice, bob = street.friends()
    box = alice.device()
    live = box.live()
    bob.mailbox.send(alice.key, "psst")
    ((who, ref),) = next(live)
    entry = box.entry(who, ref)
    assert entry is not None
    assert (who, entry.text) == (bob.key, "psst")
    live.close()  # type: ignore[attr-defined]


def test_a_mailbox_is_its_owner_s(street: Street) -> None:
    alice = street.somebody()
    with (
        Client(street.town.nodes["a"].url, Identity.new(), pins=None, patience=0.0) as other,
        pytest.raises(Unauthorized),
    ):
        Mailbox(other, alice.mailbox.enclave.id).sync()
