"""An invitation to direct messages is confirmed only if it is known whose mailbox it is."""

import pytest

from enc.apps import Personal
from enc.apps.people.address_book import Contact, Place
from tests.apps.personal.conftest import Street
from tests.apps.personal.pair import Pair, mailbox


@pytest.mark.parametrize("known", [True, False])
def test_nobody_invites_by_a_mailbox_that_the_book_has_as_another_s(street: Street, known: bool) -> None:
    """Bob is Ada's friend, and no registry has her mailbox: Eve cannot pass it off as hers."""
    pair, book = Pair(street, known=known), street.book()
    box = mailbox(pair.ada)
    box.move(pair.bob.identity.public, "OUTSIDER", "FRIEND")
    book.put(Contact("Ada", pair.ada.identity.public, {"dm": Place(box.id, pair.ada.url)}))
    eve, there = street.store(street.client(known=known)), Place(pair.his.enclave.id, pair.bob.url)
    eve.notify(pair.bob.identity.public, "dm_invite", box.id, "dm", place=there)
    pair.hers.notify(pair.bob.identity.public, "dm_invite", box.id, "dm", place=there)
    his = Personal(pair.bob, pair.his.enclave.id, book=book)
    assert [each.state for each in his.notices()] == ["pending", "confirmed"]
