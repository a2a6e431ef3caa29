"""What a stranger, a contact, a node or the owner's second device can and cannot do to a
mailbox.
"""

import json
from typing import Any

import pytest

from enc.apps import AddressBook
from enc.apps.dm import Mailbox
from enc.apps.dm.compose import Composer
from enc.apps.dm.open_message import MAX_AHEAD
from enc.apps.dm.records import CopyRecord
from enc.client import Client, Identity
from enc.core.errors import WorldError
from enc.core.sealed_forms import dm
from tests.apps.dm.conftest import Street
from tests.apps.dm.log import Log, codes, current, nonce, of, texts, words
from tests.core.world import person

S, T, U = b"\x07" * 32, b"\x08" * 32, b"\x09" * 32


@pytest.fixture
def log() -> Log:
    log = Log()
    log.befriend("bob", S)
    log.befriend("carol", T)
    return log


def sealed(who: str, text: str) -> str:
    return dm.seal_invite(person(who), person("alice").public, text, nonce())


@pytest.mark.parametrize("url", ["http://xn--", "http://xn--%9", "http://[::1", "x"])
def test_a_stranger_s_url_does_not_close_the_mailbox(log: Log, url: str) -> None:
    log.say(
        "mallory",
        "invite",
        sealed("mallory", "hi"),
        ("enclave_id", sealed("mallory", "01" * 32)),
        ("node", sealed("mallory", url)),
    )
    said = of(log.fold(), "mallory").claimed_place
    assert said is not None
    assert said.node is None


def test_what_is_retracted_stays_so(log: Log) -> None:
    one = log.message("bob", words(S, 0, "one"))
    log.say("bob", "Delete", {"reason": "author"}, ("r", one.id.hex()))
    log.say("bob", "Update", words(S, 1, "risen"), ("r", one.id.hex()))
    for fold in (log.fold(), log.fold(events=log.erased(one, shown=False))):
        assert (texts(fold, "bob"), codes(fold)) == ([None], ["DM_NOT_ALLOWED"])


def test_a_contact_retracts_nothing_of_the_owner_s_or_another_s(log: Log) -> None:
    sent = log.copy("bob", CopyRecord(text="mine", state="delivered", id="ab" * 32, at=log.now, mailbox="cd" * 32))
    hers = log.message("carol", words(T, 0, "hers"))
    for event in (sent, hers):
        log.say("bob", "Delete", {"reason": "author"}, ("r", event.id.hex()))
    fold = log.fold()
    assert (texts(fold, "bob"), texts(fold, "carol")) == (["mine"], ["hers"])
    assert codes(fold) == ["DM_NOT_ALLOWED"] * 2


def test_no_contact_makes_another_s_chain_grow(log: Log) -> None:
    for i in range(20):
        content = {**json.loads(words(U, 0, "x")), "sender_seq": i * MAX_AHEAD + MAX_AHEAD - 1}
        log.message("bob", json.dumps(content))
    assert len(of(log.fold(), "carol").own.chain(0).derived) <= MAX_AHEAD


def composer(log: Log) -> Composer:
    return Composer(log.owner, lambda size: nonce()[:size])


def test_an_epoch_of_a_former_mailbox_does_not_come_back(log: Log) -> None:
    tag = log.given("bob", 5, T)
    one = log.message("bob", words(S, 0, "one"), tag)
    log.message("bob", "", ("enclave_id", sealed("bob", "02" * 32)), log.given("bob", 0, U))
    fold = log.fold()
    log.say("alice", "Delete", {"reason": "moderator"}, *composer(log).deletion_tags(of(fold, "bob"), one.id, tag))
    assert current(log.fold(), "bob") == current(fold, "bob")


def test_an_introduction_counts_whole_or_not_at_all(log: Log) -> None:
    log.message("bob", "", ("enclave_id", sealed("bob", "01" * 32)), log.given("bob", 0, T))
    before = current(log.fold(), "bob")
    log.message("bob", "", ("enclave_id", sealed("bob", "02" * 32)), ("node", "no base64"))
    assert (codes(log.fold()), current(log.fold(), "bob")) == (["DM_TRUNCATED"], before)


def test_a_move_that_was_held_back_undoes_no_later_one(log: Log) -> None:
    log.move("bob", "FRIEND", "BLOCKED")
    log.move("bob", "OUTSIDER", "FRIEND")
    fold = log.fold()
    assert (of(fold, "bob").state, codes(fold)) == ("BLOCKED", ["DM_NOT_ALLOWED"])


def test_nobody_invites_through_a_closed_gate(log: Log) -> None:
    log.say("alice", "Gate", {"alias": "invites", "state": "closed"})
    log.say("mallory", "invite", sealed("mallory", "hi"))
    fold = log.fold()
    assert (fold.invites(), codes(fold)) == ([], ["DM_NOT_ALLOWED"])


# With nodes


def test_who_was_moved_without_an_epoch_gets_one(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.enclave.move(bob.key, "OUTSIDER", "FRIEND")
    alice.mailbox.add(bob.key, bob.place)
    bob.mailbox.accept(alice.key)
    bob.mailbox.send(alice.key, "hello")
    assert alice.texts(bob)[-1] == "hello"


def test_an_unblocking_that_was_cut_short(street: Street) -> None:
    alice, bob = street.somebody("a"), street.somebody("b")
    alice.mailbox.block(bob.key)
    alice.mailbox.enclave.move(bob.key, "BLOCKED", "FRIEND")  # and no rotate
    alice.mailbox.add(bob.key, bob.place)
    assert alice.mailbox.contact(bob.key).own_epoch == 0


def test_a_retraction_wins_over_an_edit_of_another_device(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = street.friends()
    one, phone = alice.mailbox.send(bob.key, "one"), alice.device()
    settle = phone._outbox.settle

    def late(*args: Any) -> None:
        alice.mailbox.retract(bob.key, one.ref)
        settle(*args)

    monkeypatch.setattr(phone._outbox, "settle", late)
    phone.edit(bob.key, one.ref, "two")
    last = alice.thread(bob)[-1]
    assert (last.text, last.state) == (None, "retracted")


def test_a_repair_does_not_undo_an_edit(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = street.friends()
    desk, phone = alice.device(), alice.device()
    with monkeypatch.context() as patch:
        patch.setattr(desk._outbox, "settle", lambda *_: None)
        one = desk.send(bob.key, "one")
    settle = phone._outbox.settle

    def late(*args: Any) -> None:
        desk.repair()
        desk.edit(bob.key, one.ref, "edited")
        settle(*args)

    monkeypatch.setattr(phone._outbox, "settle", late)
    phone.repair()
    assert alice.texts(bob)[-1] == bob.texts(alice)[-1] == "edited"


def test_a_retraction_after_a_rotation_leaves_an_epoch_behind(street: Street) -> None:
    alice, bob = street.friends()
    alice.mailbox.rotate(bob.key)
    one = alice.mailbox.send(bob.key, "brings 1")
    bob.mailbox.sync()
    alice.mailbox.rotate(bob.key)
    alice.mailbox.retract(bob.key, one.ref)
    assert bob.thread(alice)[-1].state == "retracted"  # and contacts() of both devices are the same


def test_a_mailbox_whose_announcing_fails_is_known_here(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: Any) -> None:
        raise WorldError("the registry is away")

    monkeypatch.setattr("enc.apps.dm.mailbox.announce", down)
    book, me = AddressBook(), Identity.new()
    with Client(street.town.nodes["a"].url, me, pins=None) as client, pytest.raises(WorldError):
        Mailbox.create(client, book=book)
    assert book.own(me.public, "dm") is not None
