"""A mailbox computed from its log: what is accepted, what is rejected with which error, and what it
costs.
"""

import json
import random
from typing import Any

import pytest
from msgspec.structs import replace

from enc.apps.dm import Rotation, errors
from enc.apps.dm.fold import MAX_REFUSALS
from enc.apps.dm.records import CopyRecord
from enc.client import Item
from enc.core.log.event import withhold
from enc.core.log.withheld import sign_withheld
from enc.core.primitives import derivation
from enc.core.primitives.encoding import b64, unb64
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.sealed_forms import dm
from tests.apps.dm.log import NODE, Log, codes, current, nonce, of, texts, words
from tests.core.world import person

S, T, U = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32
BOB = person("bob").public


@pytest.fixture
def log() -> Log:
    """Return the log of alice's mailbox, with bob and carol as contacts."""
    made = Log()
    made.befriend("bob", S)
    made.befriend("carol", T)
    return made


def altered(content: str, **changes: Any) -> str:
    return json.dumps({**json.loads(content), **changes})


# Messages


def test_messages_are_read_in_their_order(log: Log) -> None:
    for i, text in enumerate(["one", "two", "drei ☃"]):
        log.message("bob", words(S, i, text))
    fold = log.fold()
    assert (texts(fold, "bob"), texts(fold, "carol"), codes(fold)) == (["one", "two", "drei ☃"], [], [])
    assert {entry.state for entry in fold.thread(BOB)} == {"received"}


def withheld(event: Event) -> Event:
    return withhold(event, sign_withheld(NODE, event.enclave, event.id, "abuse", event.timestamp))


def shown(log: Log, *hidden: Event) -> list[Event]:
    by_id = {event.id: event for event in hidden}
    return [by_id.get(event.id, event) for event in log.events]


def test_a_withheld_message_stands_at_its_place_with_the_statement(log: Log) -> None:
    one, _, three = (log.message("bob", words(S, i, text)) for i, text in enumerate(["one", "two", "three"]))
    hidden = withheld(one)
    fold = log.fold(events=shown(log, hidden))
    assert (texts(fold, "bob"), codes(fold)) == ([None, "two", "three"], [])
    entry = fold.thread(BOB)[0]
    assert (entry.state, entry.code, entry.withheld) == ("received", "", hidden.withheld)
    update = log.say("bob", "Update", words(S, 3, "edited"), ("r", three.id.hex()))
    last = log.fold(events=shown(log, withheld(three))).thread(BOB)[-1]
    assert (last.text, last.withheld) == ("edited", None)
    last = log.fold(events=shown(log, withheld(update))).thread(BOB)[-1]
    assert (last.text, last.withheld) == (None, withheld(update).withheld)


def test_a_withheld_copy_of_a_sent_message_stands_at_its_place(log: Log) -> None:
    record = CopyRecord(text="mine", state="delivered", epoch=0, sender_seq=0)
    hidden = withheld(log.copy("bob", record))
    log.message("bob", words(S, 1, "yours"))
    fold = log.fold(events=shown(log, hidden))
    assert [(entry.text, entry.withheld) for entry in fold.thread(BOB)] == [(None, hidden.withheld), ("yours", None)]
    assert codes(fold) == []


def test_an_invitation_whose_greeting_is_withheld_can_be_answered(log: Log) -> None:
    dave = person("dave")
    hidden = withheld(log.say("dave", "invite", dm.seal_invite(dave, log.owner.public, "hello", nonce())))
    fold = log.fold(events=shown(log, hidden))
    assert codes(fold) == []
    assert [(invite.id, invite.greeting) for invite in fold.invites()] == [(hidden.id, "")]
    (entry,) = fold.thread(dave.public)
    assert (entry.text, entry.withheld) == (None, hidden.withheld)


def test_two_devices_may_use_one_sender_seq(log: Log) -> None:
    """The key is the same and the nonces differ: both are read, as two messages."""
    first, second = words(S, 5, "from the phone"), words(S, 5, "from the desk")
    sealed = [unb64(json.loads(each)["ciphertext"], "")[:24] for each in (first, second)]
    assert sealed[0] != sealed[1]
    log.message("bob", first)
    log.message("bob", second)
    assert texts(log.fold(), "bob") == ["from the phone", "from the desk"]


def test_reading_costs_two_derivations_a_message(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(*args: Any, **more: Any) -> bytes:
        nonlocal calls
        calls += 1
        return derivation.hkdf(*args, **more)

    costs = []
    for many in (100, 200, 400):
        log = Log()
        log.befriend("bob", S)
        chain = dm.EpochChain(S)
        for i in range(many):
            log.message("bob", dm.seal_message(chain, 0, i, b"x", nonce()))
        with monkeypatch.context() as patch:
            patch.setattr(dm, "hkdf", counted)
            calls = 0
            assert len(texts(log.fold(), "bob")) == many
            costs.append(calls)
    assert costs == [2 * many + 1 for many in (100, 200, 400)]


def test_copies_derive_one_key_for_each_contact(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(50):
        log.copy("bob", CopyRecord(text=str(i), state="delivered", id=f"{i:064x}", at=i))
    made = []
    original = dm.sent_key

    def sent_key(key: PrivateKey, to: bytes) -> bytes:
        made.append(to)
        return original(key, to)

    monkeypatch.setattr(dm, "sent_key", sent_key)
    assert len(texts(log.fold(), "bob")) == 50
    assert made == [BOB]


@pytest.mark.parametrize("cut", ["whole", "half", "short"])
def test_truncated(log: Log, cut: str) -> None:
    content = words(S, 0, "hello")
    text = json.loads(content)["ciphertext"]
    shorter = {"whole": "", "half": text[:-3].rstrip("="), "short": b64(unb64(text, "")[:39])}[cut]
    log.message("bob", altered(content, ciphertext=shorter))
    fold = log.fold()
    assert codes(fold) == ["DM_TRUNCATED"]
    assert [(entry.state, entry.text) for entry in fold.thread(BOB)] == [("unreadable", None)]


def test_truncated_by_bytes_of_its_text_does_not_open(log: Log) -> None:
    content = words(S, 0, "a long text")
    log.message("bob", altered(content, ciphertext=b64(unb64(json.loads(content)["ciphertext"], "")[:-3])))
    assert codes(log.fold()) == ["DM_WRONG_KEY"]


def test_swapped(log: Log) -> None:
    one, two = words(S, 0, "one"), words(S, 1, "two")
    log.message("bob", one)
    log.message("bob", altered(one, ciphertext=json.loads(two)["ciphertext"]))
    log.message("bob", altered(two, ciphertext=json.loads(one)["ciphertext"]))
    fold = log.fold()
    assert texts(fold, "bob") == ["one", None, None]
    assert codes(fold) == ["DM_SWAPPED", "DM_SWAPPED"]


def test_sealed_for_another_contact(log: Log) -> None:
    log.message("bob", words(T, 0, "to carol's key"))
    fold = log.fold()
    assert (codes(fold), texts(fold, "bob")) == (["DM_SEALED_FOR_ANOTHER"], [None])


def test_wrong_key(log: Log) -> None:
    log.message("bob", words(U, 0, "whose key?"))
    assert codes(log.fold()) == ["DM_WRONG_KEY"]


def test_no_text(log: Log) -> None:
    log.message("bob", dm.seal_message(dm.EpochChain(S), 0, 0, b"\xff\xfe", nonce()))
    assert codes(log.fold()) == ["DM_WRONG_KEY"]


def test_an_epoch_that_was_never_made(log: Log) -> None:
    log.message("bob", words(S, 0, "early", epoch=1))
    assert codes(log.fold()) == ["DM_EPOCH_UNKNOWN"]


@pytest.mark.parametrize("content", ["hello", "{}", "[]", '{"epoch":0,"sender_seq":0}', "null"])
def test_no_message(log: Log, content: str) -> None:
    log.message("bob", content)
    assert codes(log.fold()) == ["INVALID_COMMIT"]


def test_a_hostile_number_costs_little(log: Log) -> None:
    """The author's own chain may be derived to its end once; other contacts' chains may not, for
    its sake.
    """
    deep = dm.EpochChain(U)
    for _ in range(3):
        log.message("bob", dm.seal_message(deep, 0, 3000, b"deep", nonce()))
    fold = log.fold()
    assert codes(fold) == ["DM_WRONG_KEY"] * 3
    assert len(of(fold, "carol").own.chain(0).derived) == 0
    log.message("bob", altered(words(S, 0, "x"), sender_seq=70_000))
    assert codes(log.fold())[-1] == "INVALID_COMMIT"


def test_refusals_are_bounded(log: Log) -> None:
    for _ in range(MAX_REFUSALS + 5):
        log.say("mallory", "message", "x")
    assert len(log.fold().refusals) == MAX_REFUSALS


# Rights


@pytest.mark.parametrize("who", ["mallory", "alice"])
def test_only_a_friend_writes(log: Log, who: str) -> None:
    log.message(who, words(S, 0, "hello"))
    fold = log.fold()
    assert (codes(fold), texts(fold, who)) == (["DM_NOT_ALLOWED"], [])


@pytest.mark.parametrize("to", ["BLOCKED", "OUTSIDER"])
def test_who_is_no_friend_any_more_writes_nothing(log: Log, to: str) -> None:
    log.message("bob", words(S, 0, "before"))
    log.move("bob", "FRIEND", to)
    log.message("bob", words(S, 1, "after"))
    fold = log.fold()
    assert (texts(fold, "bob"), codes(fold)) == (["before"], ["DM_NOT_ALLOWED"])


@pytest.mark.parametrize("type_", ["Move", "rotate", "sent", "Gate", "AC_Bundle"])
def test_the_owner_alone(log: Log, type_: str) -> None:
    content = {"target": BOB.hex(), "from": "FRIEND", "to": "BLOCKED", "alias": "invites", "state": "closed"}
    log.say("bob", type_, {**content, "epoch": log.own_epoch(9, U)}, ("to", BOB.hex()))
    fold = log.fold()
    assert codes(fold) == ["DM_NOT_ALLOWED"]
    assert (of(fold, "bob").state, of(fold, "bob").own.n, fold.is_open) == ("FRIEND", 0, True)


@pytest.mark.parametrize("to", ["OWNER", "ADMIN", None])
def test_nobody_becomes_anything_else(log: Log, to: Any) -> None:
    log.say("alice", "Move", {"target": BOB.hex(), "from": "FRIEND", "to": to})
    log.move("alice", "OWNER", "FRIEND")
    assert codes(log.fold()) == ["DM_NOT_ALLOWED"] * 2


def test_moves_in_a_bundle_count(log: Log) -> None:
    move = {"type": "Move", "target": BOB.hex(), "from": "FRIEND", "to": "BLOCKED"}
    log.say("alice", "AC_Bundle", {"operations": [move, {"type": "Gate", "alias": "invites", "state": "closed"}, 7]})
    fold = log.fold()
    assert (of(fold, "bob").state, fold.is_open) == ("BLOCKED", False)


def test_an_edit_and_a_retraction_are_their_author_s(log: Log) -> None:
    one, two = log.message("bob", words(S, 0, "one")), log.message("bob", words(S, 1, "two"))
    log.say("carol", "Update", words(T, 0, "mine now"), ("r", one.id.hex()))
    log.say("bob", "Update", words(S, 2, "ONE"), ("r", one.id.hex()))
    log.say("bob", "Delete", {"reason": "author"}, ("r", two.id.hex()), ("at", str(two.timestamp)))
    fold = log.fold()
    assert [(e.text, e.state, e.is_edited) for e in fold.thread(BOB)] == [
        ("ONE", "received", True),
        (None, "retracted", False),
    ]
    assert fold.thread(person("carol").public) == []


def test_who_is_blocked_revises_nothing(log: Log) -> None:
    one = log.message("bob", words(S, 0, "one"))
    log.move("bob", "FRIEND", "BLOCKED")
    log.say("bob", "Update", words(S, 1, "ONE"), ("r", one.id.hex()))
    log.say("bob", "Delete", {"reason": "author"}, ("r", one.id.hex()))
    fold = log.fold()
    assert (texts(fold, "bob"), codes(fold)) == (["one"], ["DM_NOT_ALLOWED"] * 2)


def test_a_removed_contact_may_still_revise(log: Log) -> None:
    one = log.message("bob", words(S, 0, "one"))
    log.move("bob", "FRIEND", "OUTSIDER")
    log.say("bob", "Update", words(S, 1, "ONE"), ("r", one.id.hex()))
    assert texts(log.fold(), "bob") == ["ONE"]


# Other devices, later


def test_a_device_that_comes_late_sees_the_same(log: Log) -> None:
    """Messages were edited and retracted, and the owner has deleted one: contents are erased,
    deleted events missing.
    """
    one, two, three = (log.message("bob", words(S, i, str(i))) for i in range(3))
    first = log.say("bob", "Update", words(S, 3, "1a"), ("r", one.id.hex()))
    log.say("bob", "Update", words(S, 4, "1b"), ("r", one.id.hex()))
    log.say("bob", "Delete", {"reason": "author"}, ("r", two.id.hex()), ("at", str(two.timestamp)))
    log.say("alice", "Delete", {"reason": "moderator"}, ("r", three.id.hex()))
    gone = {two.id, three.id}
    late = log.fold(events=[each for each in log.erased(one, first) if each.id not in gone])
    live = log.fold()
    assert late.thread(BOB) == live.thread(BOB)
    assert [(e.text, e.state) for e in live.thread(BOB)] == [("1b", "received"), (None, "retracted")]
    assert live.thread(BOB)[1].at == two.timestamp
    assert not late.refusals


def test_a_retraction_s_time_is_bounded_by_the_truth(log: Log) -> None:
    one = log.message("bob", words(S, 0, "one"))
    for at in ("99999999999999", "x", "-1", "9" * 400):
        gone = log.say("bob", "Delete", {"reason": "author"}, ("r", one.id.hex()), ("at", at))
        assert log.fold().thread(BOB)[0].at == gone.timestamp


def test_an_unreadable_edit_is_unreadable_everywhere(log: Log) -> None:
    one = log.message("bob", words(S, 0, "one"))
    log.say("bob", "Update", words(U, 1, "ONE"), ("r", one.id.hex()))
    assert log.fold().thread(BOB) == log.fold(events=log.erased(one)).thread(BOB)
    assert log.fold().thread(BOB)[0].code == "DM_WRONG_KEY"


# The owner's epochs


def test_own_epochs_rise_from_zero(log: Log) -> None:
    log.rotate("bob", 1, T)
    log.rotate("bob", 5, U)
    for n in (5, 4, 0):
        log.rotate("bob", n, S)
    fold = log.fold()
    assert (of(fold, "bob").own.n, of(fold, "bob").own.secret) == (5, U)
    assert codes(fold) == ["DM_EPOCH_REPLAYED"] * 3


def test_the_first_epoch_is_number_zero(log: Log) -> None:
    log.befriend("dave", S, n=1)
    fold = log.fold()
    assert (codes(fold), of(fold, "dave").own.n) == (["DM_EPOCH_REPLAYED"], -1)


def test_of_two_devices_rotations_the_first_counts(log: Log) -> None:
    log.rotate("bob", 1, T)
    log.rotate("bob", 1, U)
    fold = log.fold()
    assert (of(fold, "bob").own.secret, codes(fold)) == (T, ["DM_EPOCH_REPLAYED"])


def test_old_epochs_still_open(log: Log) -> None:
    log.rotate("bob", 1, U)
    log.message("bob", words(S, 0, "with the old"))
    log.message("bob", words(U, 0, "with the new", epoch=1))
    assert texts(log.fold(), "bob") == ["with the old", "with the new"]


def test_an_own_epoch_is_sealed_by_oneself(log: Log) -> None:
    log.rotate("bob", 1, U, ecdh_pub=BOB.hex())
    assert codes(log.fold()) == ["DM_EPOCH_FOREIGN"]


def test_epochs_that_do_not_open(log: Log) -> None:
    log.rotate("bob", 1, U, encrypted_secret=b64(bytes(80)))
    log.rotate("bob", 1, U, encrypted_secret=b64(bytes(8)))
    log.say("alice", "rotate", {"target": BOB.hex()})
    assert codes(log.fold()) == ["DM_WRONG_KEY", "DM_TRUNCATED", "INVALID_COMMIT"]


# Epochs that contacts give


def test_given_epochs_rise(log: Log) -> None:
    for n, secret in ((3, S), (3, S), (4, T)):
        log.message("bob", words(S, 0, "x"), log.given("bob", n, secret))
    fold = log.fold()
    assert not codes(fold)
    for n, secret in ((3, S), (4, U), (0, U)):
        log.message("bob", words(S, 0, "x"), log.given("bob", n, secret))
    fold = log.fold()
    assert codes(fold) == ["DM_EPOCH_REPLAYED"] * 3
    given = current(fold, "bob")
    assert given is not None
    assert (given.n, given.secret) == (4, T)
    assert len(texts(fold, "bob")) == 6, "the messages themselves are good"


def test_a_given_epoch_is_its_author_s(log: Log) -> None:
    """An epoch that carol sealed to alice is passed off as bob's; another was sealed by bob to
    carol.
    """
    log.message("bob", words(S, 0, "x"), log.given("carol", 0, T))
    log.message("bob", words(S, 1, "x"), log.given("bob", 0, T, to="carol"))
    fold = log.fold()
    assert (codes(fold), current(fold, "bob")) == (["DM_EPOCH_FOREIGN", "DM_WRONG_KEY"], None)


def test_an_unblocked_contact_is_owed_the_epoch_again(log: Log) -> None:
    sent = log.copy("bob", CopyRecord(text="x", state="delivered", id="ab" * 32, at=1, delivers=0))
    assert not of(log.fold(), "bob").owes_epoch
    log.move("bob", "FRIEND", "BLOCKED")
    log.move("bob", "BLOCKED", "FRIEND")
    log.revise(sent, "bob", CopyRecord(text="y", state="delivered", id="ab" * 32, at=1, delivers=0, is_edited=True))
    fold = log.fold()
    assert of(fold, "bob").owes_epoch
    assert of(fold, "bob").own.n == 0, "without a new one"
    log.copy("bob", CopyRecord(text="z", state="refused", delivers=0))
    assert of(log.fold(), "bob").owes_epoch
    log.copy("bob", CopyRecord(text="z", state="delivered", id="cd" * 32, at=2, delivers=0))
    assert not of(log.fold(), "bob").owes_epoch


def test_what_was_not_given_yet_is_not_rotated(log: Log) -> None:
    log.message("bob", words(S, 0, "x"))
    rotation = Rotation(messages=1, age_ms=0)
    assert not rotation.is_due(of(log.fold(), "bob"), log.now)
    log.copy("bob", CopyRecord(text="x", state="delivered", id="ab" * 32, at=1, delivers=0))
    assert rotation.is_due(of(log.fold(), "bob"), log.now)
    log.move("bob", "FRIEND", "BLOCKED")
    assert not rotation.is_due(of(log.fold(), "bob"), log.now)


# Copies


def test_a_copy_of_another_contact_s(log: Log) -> None:
    log.copy("carol", CopyRecord(text="to carol"))
    log.say("alice", "sent", log.sealed("carol", CopyRecord(text="to carol")), ("to", BOB.hex()))
    log.say("alice", "sent", b64(bytes(60)), ("to", BOB.hex()))
    log.say("alice", "sent", b64(bytes(6)), ("to", BOB.hex()))
    log.say("alice", "sent", "", ("to", "x"))
    assert codes(log.fold()) == ["DM_SEALED_FOR_ANOTHER", "DM_WRONG_KEY", "DM_TRUNCATED", "INVALID_COMMIT"]


def test_the_next_sender_seq_follows_every_device(log: Log) -> None:
    one = log.copy("bob", CopyRecord(text="x", epoch=2, sender_seq=7))
    log.copy("bob", CopyRecord(text="x", epoch=2, sender_seq=3))
    assert of(log.fold(), "bob").next_seq(2) == 8
    log.revise(one, "bob", CopyRecord(text="x", epoch=3, sender_seq=0))
    assert (of(log.fold(), "bob").next_seq(3), of(log.fold(), "bob").next_seq(4)) == (1, 0)


def test_where_a_contact_is_by_the_newest_copy(log: Log) -> None:
    old = log.copy("bob", CopyRecord(text="x", mailbox="aa" * 32, state="delivered"))
    log.copy("bob", CopyRecord(kind="place", mailbox="bb" * 32, node="http://b.example", state="delivered"))
    log.copy("bob", CopyRecord(kind="place", mailbox="cc" * 32, state="refused"))
    log.revise(old, "bob", CopyRecord(text="y", mailbox="aa" * 32, state="delivered"))
    fold = log.fold()
    place = of(fold, "bob").known_place
    assert place is not None
    assert (place.enclave, place.node) == (b"\xbb" * 32, "http://b.example")
    assert texts(fold, "bob") == ["y"]


# Invitations


def invite(
    log: Log, who: str, greeting: str, *more: tuple[str, ...], node: str = "http://n.example", mailbox: str = "cc" * 32
) -> Any:
    key, to = person(who), person("alice").public
    tags = [
        ("enclave_id", dm.seal_invite(key, to, mailbox, nonce())),
        ("node", dm.seal_invite(key, to, node, nonce())),
    ]
    return log.say(who, "invite", dm.seal_invite(key, to, greeting, nonce()), *tags, *more)


def test_an_invitation(log: Log) -> None:
    made = invite(log, "dave", "hi, I am Dave", log.given("dave", 0, U))
    fold = log.fold()
    assert [(each.author, each.greeting) for each in fold.invites()] == [(person("dave").public, "hi, I am Dave")]
    place = of(fold, "dave").known_place
    assert place is not None
    assert (place.enclave, place.node, current(fold, "dave").n) == (b"\xcc" * 32, "http://n.example", 0)  # type: ignore[union-attr]
    log.befriend("dave", S)
    assert log.fold().invites() == []
    log.say("alice", "Delete", {"reason": "moderator"}, ("r", made.id.hex()))
    assert log.fold().thread(person("dave").public) == []


def test_an_invitation_is_answered_once(log: Log) -> None:
    invite(log, "dave", "hi", log.given("dave", 0, U))
    log.befriend("dave", S)
    log.move("dave", "FRIEND", "OUTSIDER")
    assert log.fold().invites() == []
    invite(log, "dave", "hi again")
    assert [each.greeting for each in log.fold().invites()] == ["hi again"]


@pytest.mark.parametrize("how", ["invite", "message"])
def test_a_contact_with_a_new_mailbox_begins_anew(log: Log, how: str) -> None:
    """A new mailbox has its own epochs, and none of the owner's; in the same mailbox their numbers
    rise.
    """
    invite(log, "dave", "hi", log.given("dave", 5, U))
    log.befriend("dave", S)
    log.copy("dave", CopyRecord(text="x", state="delivered", id="ab" * 32, at=1, delivers=0, mailbox="cc" * 32))
    assert not of(log.fold(), "dave").owes_epoch
    if how == "invite":
        log.move("dave", "FRIEND", "OUTSIDER")
        invite(log, "dave", "I lost it", log.given("dave", 0, T), mailbox="dd" * 32)
        log.befriend("dave", S, n=1)
    else:
        sealed = dm.seal_invite(person("dave"), person("alice").public, "dd" * 32, nonce())
        log.message("dave", "", ("enclave_id", sealed), log.given("dave", 0, T))
    fold = log.fold()
    place = of(fold, "dave").known_place
    assert place is not None
    assert (place.enclave, current(fold, "dave").secret, of(fold, "dave").owes_epoch) == (b"\xdd" * 32, T, True)  # type: ignore[union-attr]
    assert not codes(fold)


@pytest.mark.parametrize("who", ["bob", "alice"])
def test_only_a_stranger_invites(log: Log, who: str) -> None:
    invite(log, who, "hi")
    assert codes(log.fold()) == ["DM_NOT_ALLOWED"]


def test_an_invitation_that_is_none(log: Log) -> None:
    log.say("dave", "invite", "hi")
    log.say("dave", "invite", b64(bytes(50)))
    log.say("dave", "invite", dm.seal_invite(person("dave"), person("carol").public, "hi", nonce()))
    fold = log.fold()
    assert (codes(fold), fold.invites()) == (["DM_TRUNCATED", "DM_WRONG_KEY", "DM_WRONG_KEY"], [])


def test_a_node_that_is_no_url_is_none(log: Log) -> None:
    invite(log, "dave", "hi", node="file:///etc/passwd")
    place = of(log.fold(), "dave").known_place
    assert place is not None
    assert place.node is None


def test_an_epoch_goes_on_in_the_owner_s_delete(log: Log) -> None:
    tag = log.given("bob", 0, U)
    one = log.message("bob", words(S, 0, "x"), tag)
    log.say("alice", "Delete", {"reason": "moderator"}, ("r", one.id.hex()), ("from", BOB.hex()), tag)
    late = log.fold(events=[each for each in log.events if each.id != one.id])
    assert current(late, "bob") == current(log.fold(), "bob") != None  # noqa: E711
    assert not late.refusals


# Errors


def test_every_refusal_has_a_code_of_its_own() -> None:
    classes: list[Any] = [each for each in vars(errors).values() if isinstance(each, type) and "code" in vars(each)]
    found = {each.code for each in classes if each.code.startswith("DM_")}
    assert len(found) == 8


def test_events_are_taken_once(log: Log) -> None:
    log.message("bob", words(S, 0, "x"))
    fold = log.fold()
    assert [fold.apply(Item(replace(event), "active")) for event in log.events] == [[]] * len(log.events)


# Any log


@pytest.mark.parametrize("seed", range(20))
def test_no_log_breaks_it(seed: int) -> None:
    """Contents and tags are damaged in every way: nothing raises, and valid events are still
    read.
    """
    dice, log = random.Random(seed), Log()
    log.befriend("bob", S)
    good = [words(S, 0, "x"), json.dumps(log.own_epoch(1, T)), log.sealed("bob", CopyRecord(text="x")), "", "{}", "[1]"]
    fields: dict[str, list[Any]] = {
        "target": [BOB.hex(), "x", 7],
        "from": ["FRIEND", 1],
        "to": ["FRIEND", "BLOCKED", None, {}],
    }
    types = ["Move", "rotate", "invite", "message", "sent", "Update", "Delete", "Gate", "AC_Bundle", "other"]
    for _ in range(60):
        content: Any = dice.choice(good)
        if dice.random() < 0.4:
            content = {name: dice.choice(values) for name, values in fields.items()}
            content |= {"epoch": dice.choice([log.own_epoch(2, T), {}, None, [], {"n": "0"}])}
            content |= {"operations": dice.choice([[], {}, 3, [{"type": "Move"}], [None]])}
        tags = [
            *([("to", dice.choice([BOB.hex(), "x"]))] if dice.random() < 0.7 else []),
            *([dice.choice([("epoch", "x"), log.given("bob", 1, T), ("epoch",)])] if dice.random() < 0.5 else []),
            *(
                [("r", dice.choice([*(each.id.hex() for each in log.events), "00" * 32, "x"]))]
                if dice.random() < 0.8
                else []
            ),
            *([dice.choice([("at", "x"), ("from", "x"), ("from", BOB.hex()), ("enclave_id", "x"), ("node",)])]),
        ]
        log.say(dice.choice(["alice", "bob", "mallory"]), dice.choice(types), content, *tags)
    for state in ("OUTSIDER", "BLOCKED"):
        log.move("bob", state, "FRIEND")
    log.message("bob", words(S, 9, "good"))
    fold = log.fold()
    assert "good" in texts(fold, "bob")
    fold.invites()
    [peer.contact() for peer in fold.peers.values()]


@pytest.mark.parametrize("wire", ['{"id":"x"}', '{"mailbox":"zz"}', '{"at":"1"}', '{"state":"lost"}', "[]", "\xff"])
def test_a_copy_that_is_none(log: Log, wire: str) -> None:
    sealed = dm.seal_sent(person("alice"), BOB, wire.encode("latin1"), nonce())
    log.say("alice", "sent", sealed, ("to", BOB.hex()))
    fold = log.fold()
    assert (codes(fold), texts(fold, "bob")) == (["DECRYPT_FAILED"], [])
