"""Notices between people on two nodes: sealed, verified with their source, and used only if it
proves them.
"""

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from enc.apps import Personal
from enc.apps.people.address_book import Contact, Place
from enc.apps.people.lookup import Person, UnknownName
from enc.apps.personal import NotConfirmed, Question, Received, Refuted, Unconfirmed
from enc.apps.personal.inbox import MAX_SILENT
from enc.apps.personal.ledger import MAX_NOTICE
from enc.apps.personal.notice_verification import confirm_group_invite
from enc.apps.personal.send_notice import NoPersonalStore
from enc.client import Enclave, Identity
from enc.core.errors import GateClosed, MisuseError, Unauthorized, WorldError
from enc.core.sealed_forms.personal import ContradictingTag, ForeignSender, OpenedNotice, seal_handoff, seal_notice
from enc.core.trees.state_key import DELETED
from tests.apps.personal.conftest import Street
from tests.apps.personal.pair import Pair, mailbox


@pytest.fixture
def pair(street: Street) -> Pair:
    return Pair(street)


def test_an_invitation_is_confirmed_by_the_move_and_hands_over_its_secret(pair: Pair) -> None:
    group, move = pair.invited()
    secret = os.urandom(32)
    manifest_hash = group.manifest().content_hash
    pair.notify(
        group, move_ref=move.id, secret=secret, epoch_n=0, topic="Soup", greeting="hi", manifest_hash=manifest_hash
    )
    found = pair.only()
    assert (found.state, found.reason, found.is_actionable) == ("confirmed", "", True)
    assert (found.notice.topic, found.notice.greeting, found.notice.epoch_n) == ("Soup", "hi", 0)
    assert (found.notice.inviter, found.author) == (pair.ada.identity.hex, pair.ada.identity.public)
    assert pair.his.handoff(found) == secret
    device = Personal(pair.street.client(pair.bob.identity, None), pair.his.enclave.id)
    assert device.notices() == [found]
    pair.his.remove(found.id)
    assert pair.his.notices() == device.notices() == []


def test_the_keys_are_the_registered_sub_keys(pair: Pair) -> None:
    group, move = pair.invited()
    receipt = pair.notify(group, move_ref=move.id, secret=bytes(32), epoch_n=0)
    item = pair.his.enclave.event(receipt.id)
    assert item is not None
    assert item.content is not None
    content = json.loads(item.content)
    assert content["sender_pub"] == pair.ada.identity.sub_key().public.hex()
    handoff = pair.only().notice.handoff
    assert handoff is not UNSET
    assert handoff.recipient == pair.bob.identity.sub_key().public.hex()


def test_without_a_sub_key_the_identities_own_are_used(street: Street) -> None:
    pair = Pair(street)
    for person, store in ((pair.ada, pair.hers), (pair.bob, pair.his)):
        person.register_identity({"personal": store.enclave.id}, sub_key=False)
    fresh = Personal(street.client(pair.ada.identity), pair.hers.enclave.id)
    group, move = pair.invited()
    receipt = fresh.notify(
        pair.bob.identity.public, "group_invite", group.id, "group", move_ref=move.id, secret=bytes(32), epoch_n=0
    )
    item = pair.his.enclave.event(receipt.id)
    assert item is not None
    assert item.content is not None
    content = json.loads(item.content)
    assert content["sender_pub"] == pair.ada.identity.hex
    assert pair.only().notice.handoff.recipient == pair.bob.identity.hex  # type: ignore[union-attr]
    assert pair.his.handoff(pair.only()) == bytes(32)


def test_a_sub_key_that_was_registered_a_moment_ago_counts(pair: Pair) -> None:
    enclaves, ada = {"personal": pair.hers.enclave.id}, pair.ada.identity
    pair.ada.register_identity(enclaves, sub_key=False)
    assert pair.bob.lookup(ada.public, fresh=True).sub_pub is None
    pair.ada.register_identity(enclaves)
    pair.raw(sealed(pair, ada.sub_key()))
    assert pair.only().claims is not None


def test_a_move_that_is_not_named_is_looked_for(pair: Pair) -> None:
    group, _ = pair.invited()
    pair.notify(group)
    assert pair.only().state == "confirmed"
    other = pair.street.group(pair.ada)
    receipt = pair.notify(other)
    found = pair.his.notices(discard=False)[-1]
    assert (found.id, found.state, found.is_actionable) == (receipt.id, "pending", False)
    other.move(pair.bob.identity.public, "OUTSIDER", "MEMBER")
    assert pair.his.notices()[-1].state == "confirmed"


def test_the_half_that_comes_first_waits_for_the_other_until_it_is_dismissed(pair: Pair) -> None:
    group = pair.street.group(pair.ada)
    pair.notify(group, secret=bytes(32), epoch_n=0)
    found = pair.only()
    assert found.state == "pending"
    assert found.reason
    assert found.claims is not None
    for act in (lambda: found.notice, lambda: pair.his.handoff(found)):
        with pytest.raises(NotConfirmed, match="pending"):
            act()
    assert pair.only(discard=True).state == pair.only().state == "pending"
    pair.his.remove(found.id)
    assert pair.his.notices() == []
    assert pair.his.enclave.status(found.id) == "deleted"


def test_whoever_was_removed_since_is_not_shown_the_invitation_as_actionable(pair: Pair) -> None:
    group, move = pair.invited()
    pair.notify(group, move_ref=move.id)
    assert pair.only().state == "confirmed"
    group.move(pair.bob.identity.public, "MEMBER", "OUTSIDER")
    assert pair.only().state == "pending"


@pytest.mark.parametrize("fault", ["another's", "no Move", "to elsewhere", "inviter", "manifest"])
def test_a_claim_that_its_source_refutes_is_deleted_at_once(pair: Pair, fault: str) -> None:
    group, move = pair.invited()
    carol, bob = pair.street.client().identity, pair.bob.identity.public
    wrong: dict[str, Any] = {
        "another's": lambda: {"move_ref": group.move(carol.public, "OUTSIDER", "MEMBER").id},
        "no Move": lambda: {"move_ref": group.commit("message", "hello").id},
        "inviter": lambda: {"move_ref": move.id, "inviter": carol.public},
        "manifest": lambda: {"move_ref": move.id, "manifest_hash": bytes(32)},
    }
    if fault == "to elsewhere":
        out = group.move(bob, "MEMBER", "OUTSIDER")
        group.move(bob, "OUTSIDER", "MEMBER")
        wrong[fault] = lambda: {"move_ref": out.id}
    pair.notify(group, **wrong[fault]())
    found = pair.only()
    assert found.state == "refuted", found
    assert not found.is_actionable
    assert pair.only(discard=True) == found
    assert pair.his.notices() == []


def test_a_source_that_nobody_knows_is_pending(pair: Pair) -> None:
    pair.hers.notify(pair.bob.identity.public, "group_invite", bytes(32), "group", move_ref=bytes(32))
    assert pair.only().state == "pending"


def test_a_source_that_gives_no_answer_refutes_nothing_and_not_too_many_are_waited_for(pair: Pair) -> None:
    asked: list[str] = []

    def silent(question: Question) -> None:
        asked.append(question.notice.topic or "")
        raise WorldError("silence")

    his = Personal(pair.bob, pair.his.enclave.id, confirmers={"x-far": silent})
    for i in range(MAX_SILENT + 2):
        pair.hers.notify(pair.bob.identity.public, "x-far", bytes(32), "far", topic=str(i))
    assert {each.state for each in his.notices()} == {"pending"}
    assert asked == ["5", "4", "3", "2"]
    his.notices()
    assert asked[4:] == ["1", "0", "5", "4"]


def test_two_devices_may_delete_the_same(pair: Pair) -> None:
    pair.hers.notify(pair.bob.identity.public, "x-poke", bytes(32), "x")
    other = Personal(pair.street.client(pair.bob.identity, "b"), pair.his.enclave.id)

    def refute(question: Question) -> None:
        for each in other.inbox():
            other.remove(each.id)
        raise Refuted("no")

    device = Personal(pair.bob, pair.his.enclave.id, confirmers={"x-poke": refute})
    assert [each.state for each in device.notices()] == ["refuted"]
    assert device.notices() == []


def test_a_kind_of_one_s_own_needs_a_way_to_confirm_it(pair: Pair) -> None:
    pair.hers.notify(pair.bob.identity.public, "x-poke", pair.hers.enclave.id, "personal", greeting="hey")
    assert pair.only().state == "pending"
    seen: list[Question] = []

    def confirm(question: Question) -> None:
        seen.append(question)
        if question.author != pair.ada.identity.public:
            raise Unconfirmed("who is that?")

    his = Personal(pair.bob, pair.his.enclave.id, confirmers={"x-poke": confirm})
    assert [each.state for each in his.notices()] == ["confirmed"]
    assert (seen[0].me, seen[0].source.id) == (pair.bob.identity.public, pair.hers.enclave.id)


def test_a_move_that_does_not_stand_or_a_state_from_before_it_proves_nothing(pair: Pair) -> None:
    """An honest node has no such log; this one is made by hand."""
    group, move = pair.invited()
    real = pair.bob.enclave(group.id)
    fact, member = real.proof(move.id), real.member(pair.bob.identity.public)
    notice = OpenedNotice(
        kind="group_invite", enclave_id=group.hex, enclave_kind="group", inviter=pair.ada.identity.hex
    )
    notice = replace(notice, move_ref=move.id.hex())

    def ask(fact: Any, member: Any) -> None:
        source: Any = SimpleNamespace(proof=lambda *_, **__: fact, member=lambda _: member)
        confirm_group_invite(Question(pair.bob, pair.ada.identity.public, notice, source))

    ask(fact, member)
    assert fact.status_fact is not None
    for value in (DELETED, bytes(32)):
        status = replace(fact.status_fact, proof=replace(fact.status_fact.proof, v=value))
        with pytest.raises(Unconfirmed, match="not in force"):
            ask(replace(fact, status_fact=status), member)
    older = replace(member.fact.anchor, inclusion=replace(member.fact.anchor.inclusion, li=fact.anchor.index - 1))
    for other in (replace(member, fact=replace(member.fact, anchor=older)), replace(member, state="PENDING")):
        with pytest.raises(Unconfirmed):
            ask(fact, other)


# Mailboxes


def invite(pair: Pair, box: Enclave, **more: Any) -> Received:
    pair.hers.notify(pair.bob.identity.public, "dm_invite", box.id, "dm", **more)
    return pair.only()


def test_a_mailbox_s_invitation_is_confirmed_by_one_s_own_state_there(pair: Pair) -> None:
    box = mailbox(pair.ada)
    box.register(app="dm")
    assert invite(pair, box).state == "pending"
    box.move(pair.bob.identity.public, "OUTSIDER", "FRIEND")
    assert pair.only().state == "confirmed"
    box.move(pair.bob.identity.public, "FRIEND", "BLOCKED")
    assert pair.only().state == "pending"


def test_a_mailbox_at_a_node_that_the_book_names(street: Street) -> None:
    pair, book = Pair(street, known=False), street.book()
    box = mailbox(pair.ada)
    box.move(pair.bob.identity.public, "OUTSIDER", "FRIEND")
    there = Place(pair.his.enclave.id, pair.bob.url)
    pair.hers.notify(pair.bob.identity.public, "dm_invite", box.id, "dm", place=there)
    assert pair.only().state == "pending"  # the mailbox is unknown
    book.put(Contact("Ada", pair.ada.identity.public, {"dm": Place(box.id, pair.ada.url)}))
    his = Personal(pair.bob, pair.his.enclave.id, book=book)
    assert [each.state for each in his.notices()] == ["confirmed"]
    box.move(pair.bob.identity.public, "FRIEND", "BLOCKED")
    assert [each.state for each in his.notices()] == ["pending"]


def test_nobody_invites_into_another_s_mailbox(pair: Pair) -> None:
    eve = pair.street.client()
    box = mailbox(eve)
    box.register(app="dm")
    box.move(pair.bob.identity.public, "OUTSIDER", "FRIEND")
    assert "not the inviter's mailbox" in invite(pair, box).reason
    pair.his.notices()
    assert "not the author of the notice" in invite(pair, box, inviter=eve.identity.public).reason
    assert pair.only().state == "refuted"


def test_a_mailbox_beside_the_registered_one_waits(pair: Pair) -> None:
    box, other = mailbox(pair.ada), mailbox(pair.ada)
    for each in (box, other):
        each.register(app="dm")
        each.move(pair.bob.identity.public, "OUTSIDER", "FRIEND")
    pair.ada.register_identity({"personal": pair.hers.enclave.id, "dm": box.id})
    assert invite(pair, other).state == "pending"
    pair.his.remove(pair.only().id)
    assert invite(pair, box).state == "confirmed"


# Refusals


def sealed(pair: Pair, key: Any = None, to: bytes | None = None, **fields: Any) -> str:
    plain = {"kind": "x-poke", "enclave_id": "ab" * 32, "enclave_kind": "x", "inviter": pair.ada.identity.hex}
    notice = OpenedNotice(**{**plain, **fields})
    return seal_notice(key or pair.ada.identity.key, to or pair.bob.identity.public, notice, os.urandom(24))


def test_what_another_key_than_the_author_s_sealed_stays_pending_and_is_not_asked_for(pair: Pair) -> None:
    group, move = pair.invited()
    fields: dict[str, Any] = {"kind": "group_invite", "enclave_id": group.hex, "move_ref": move.id.hex()}
    pair.raw(sealed(pair, Identity.new().key, **fields))
    found = pair.only(discard=True)
    assert (found.state, found.is_actionable) == ("pending", False)
    assert "sender_pub" in found.reason
    assert pair.only() == found
    with pytest.raises(NotConfirmed, match="sender_pub"):
        pair.his.handoff(found)
    pair.his.remove(found.id)
    pair.raw(sealed(pair, pair.ada.identity.sub_key(), **fields))
    assert pair.only().state == "confirmed"
    lone = Personal(pair.street.client(pair.bob.identity, "b", known=False), pair.his.enclave.id)
    (unknown,) = lone.notices()  # without a registry it is not known whose key it is
    assert unknown.state == "pending"
    assert "no registry" in unknown.reason
    assert unknown.claims is not None


def test_a_registry_that_does_not_answer_refutes_no_sender(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    group, move = pair.invited()
    pair.notify(group, move_ref=move.id)

    def silent(*args: Any, **more: Any) -> Any:
        raise WorldError("the registry does not answer")

    monkeypatch.setattr(pair.bob, "lookup", silent)
    found = pair.only(discard=True)
    assert (found.state, found.reason) == ("pending", "the registry does not answer")


@pytest.mark.parametrize("key", ["identity", "sub-key"])
def test_a_tag_that_contradicts_what_is_sealed_refutes_it(pair: Pair, key: str) -> None:
    bob = pair.bob.identity
    content = sealed(pair, to=bob.public if key == "identity" else bob.sub_key().public)
    pair.raw(content, [["enclave_id", "cd" * 32]])
    assert pair.only().state == "refuted"
    assert "contradicts" in pair.only().reason
    pair.his.notices()
    pair.raw(content, [["enclave_id", "ab" * 32]])
    assert pair.only().claims is not None


@pytest.mark.parametrize("fault", ["another's", "cut", "cut short", "swapped", "plain"])
def test_what_does_not_open_is_refuted(pair: Pair, fault: str) -> None:
    one, two = json.loads(sealed(pair)), json.loads(sealed(pair))
    contents = {
        "another's": sealed(pair, to=Identity.new().public),
        "cut": json.dumps({**one, "ciphertext": one["ciphertext"][:-2]}),
        "cut short": json.dumps({**one, "ciphertext": "ab"}),
        "swapped": json.dumps({**one, "ciphertext": two["ciphertext"]}),
        "plain": "hello",
    }
    pair.raw(contents[fault])
    found = pair.only()
    assert (found.state, found.claims) == ("refuted", None)


def test_a_content_that_is_missing_refutes_nothing(pair: Pair) -> None:
    """Too long to be read; or erased, as the node says."""
    pair.raw(sealed(pair, greeting="x" * MAX_NOTICE))
    found = pair.only(discard=True)
    assert (found.state, found.claims) == ("pending", None)
    assert "erased, or longer than" in found.reason


def test_a_handoff_that_is_another_s_is_refused_even_if_the_notice_is_confirmed(pair: Pair) -> None:
    group, move = pair.invited()
    eve = Identity.new()
    handoff = seal_handoff(eve.key, pair.bob.identity.public, bytes(32), bytes(24))
    fields: dict[str, Any] = {"kind": "group_invite", "enclave_id": group.hex, "move_ref": move.id.hex(), "epoch_n": 0}
    pair.raw(sealed(pair, **fields, handoff=handoff))
    assert pair.only().state == "confirmed"
    with pytest.raises(ForeignSender, match="handoff"):
        pair.his.handoff(pair.only())


def test_each_refusal_has_a_code_of_its_own() -> None:
    assert (ForeignSender.code, ContradictingTag.code) == ("FOREIGN_SENDER", "CONTRADICTING_TAG")


# Sending


def test_what_no_recipient_would_take_is_not_sent(pair: Pair) -> None:
    bob = pair.bob.identity.public
    for kind, more, field in (
        ("spam", {}, "kind"),
        ("x-a", {"secret": bytes(32)}, "epoch_n"),
        ("x-a", {"epoch_n": -1}, "epoch_n"),
        ("x-a", {"move_ref": "ab"}, "move_ref"),
        ("x-a", {"topic": 7}, "topic"),
        ("x-a", {"colour": "red"}, "colour"),
        ("x-a", {"secret": b"short", "epoch_n": 1}, "32 bytes"),
        ("x-a", {"greeting": "x" * MAX_NOTICE}, "at most"),
    ):
        with pytest.raises(MisuseError, match=field):
            pair.hers.notify(bob, kind, bytes(32), "x", **more)
    with pytest.raises(MisuseError, match="enclave_kind"):
        pair.hers.notify(bob, "x-a", bytes(32), "")
    assert pair.his.notices() == []


def test_who_has_no_store_that_anybody_knows_of_gets_no_notice(pair: Pair) -> None:
    with pytest.raises(NoPersonalStore):
        pair.hers.notify(pair.street.client().identity.public, "x-a", bytes(32), "x")
    with pytest.raises(UnknownName):
        pair.hers.notify("nobody at all", "x-a", bytes(32), "x")


def test_a_name_that_only_the_registry_knows_is_not_written_to(pair: Pair) -> None:
    pair.his.set_profile(display_name=f"Bob {pair.bob.identity.hex[:8]}")
    with pytest.raises(MisuseError, match=pair.bob.identity.hex):
        pair.hers.notify(f"bob {pair.bob.identity.hex[:8]}", "x-a", bytes(32), "x")
    receipt = pair.hers.notify(Person(pair.bob.identity.public, "Bob", "key"), "x-a", bytes(32), "x")
    assert pair.only().id == receipt.id


def test_a_closed_gate_takes_no_notice_and_the_owner_writes_none(pair: Pair) -> None:
    pair.his.set_open(False)
    with pytest.raises(GateClosed):
        pair.hers.notify(pair.bob.identity.public, "x-a", bytes(32), "x")
    pair.his.set_open(True)
    pair.hers.notify(pair.bob.identity.public, "x-a", bytes(32), "x")
    with pytest.raises(Unauthorized):
        pair.his.notify(pair.bob.identity.public, "x-a", bytes(32), "x")
    with pytest.raises(MisuseError, match="limit"):
        pair.his.notices(limit=0)
