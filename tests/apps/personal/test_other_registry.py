"""A notice from a person of another registry: it cannot be verified here, and is not deleted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.apps import AddressBook, Personal
from enc.apps.group import CONFIRMERS, Group, invitations_in
from enc.apps.people.address_book import Contact, Place
from enc.client import Client, Identity
from tests.apps.personal.conftest import AT_ONCE
from tests.client.moved import Town, town


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("far"), "far") as found:
        yield found


def test_an_honest_invitation_waits_until_it_can_be_verified(place: Town, far: Town, tmp_path: Path) -> None:
    bob, ada = Identity.new(), Identity.new()
    with place.client(bob, "b", patience=0.0) as here, far.client(ada, "far", patience=0.0) as there:
        his, hers = Personal.create(here, bundle=AT_ONCE), Personal.create(there, bundle=AT_ONCE)
        assert there.lookup(ada.public).sub_pub == ada.sub_key().public
        group = Group.create(there, bundle=AT_ONCE, topic="Soup")
        group.enclave.register(app="group")
        made = group.invite(bob.public, greeting="come", place=Place(his.enclave.id, here.url))
        assert made.notice is not None
        mine = Personal(here, his.enclave.id, confirmers=CONFIRMERS)
        for _ in range(2):  # a deleted notice would not come again
            (waiting,) = mine.notices()
            assert (waiting.state, waiting.is_actionable) == ("pending", False)
            assert "registered in this registry" in waiting.reason
        (invitation,) = invitations_in(mine)
        assert (invitation.is_confirmed, invitation.is_refuted, invitation.topic) == (False, False, "Soup")
        with far.client(bob, None, patience=0.0) as through:
            book = AddressBook(tmp_path / "contacts.json")
            book.set_own(bob.public, "personal", Place(his.enclave.id, here.url))
            (found,) = Personal.find(through, book=book, confirmers=CONFIRMERS).notices()
        assert (found.state, found.id) == ("confirmed", waiting.id)
        assert hers.enclave.id != his.enclave.id


def test_a_sender_who_has_no_sub_key_waits_for_its_source_to_be_known(place: Town, far: Town, tmp_path: Path) -> None:
    bob, ada = Identity.new(), Identity.new()
    with place.client(bob, "b", patience=0.0) as here, far.client(ada, "far", registry=None, patience=0.0) as there:
        his = Personal.create(here, bundle=AT_ONCE)
        group = Group.create(there, bundle=AT_ONCE)
        assert group.invite(bob.public, place=Place(his.enclave.id, here.url)).notice is not None
        (waiting,) = Personal(here, his.enclave.id, confirmers=CONFIRMERS).notices()
        assert waiting.state == "pending"
        assert "this node" in waiting.reason or "registered" in waiting.reason
        book = AddressBook(tmp_path / "contacts.json")
        book.put(Contact("Ada", ada.public))
        book.put_group("soup", Place(group.id, there.url))
        found = Personal(here, his.enclave.id, book=book, confirmers=CONFIRMERS).notices()
        assert [each.state for each in found] == ["confirmed"]
        assert isinstance(here, Client)
