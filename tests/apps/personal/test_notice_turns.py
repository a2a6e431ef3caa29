"""However many notices one author writes, those of others are verified too."""

from types import SimpleNamespace
from typing import Any

import pytest

from enc.apps import AddressBook
from enc.apps.people.address_book import Contact
from enc.apps.personal import CONFIRMERS, LedgerEntry, Received
from enc.apps.personal.inbox import NoticeInbox
from enc.client import Identity

ME, FRIEND, CROWD = (Identity.new().public for _ in range(3))


def entry(seq: int, author: bytes) -> LedgerEntry:
    return LedgerEntry(seq.to_bytes(32, "big"), "notice", seq, author, seq, seq, "", ())


def seqs(inbox: NoticeInbox, entries: list[LedgerEntry], limit: int = 4) -> set[int]:
    return {each.seq for each in inbox.chosen(entries, limit)}


@pytest.fixture
def inbox(tmp_path: Any) -> NoticeInbox:
    client: Any = SimpleNamespace(identity=SimpleNamespace(public=ME))
    book = AddressBook(tmp_path / "contacts.json")
    book.put(Contact("friend", FRIEND))
    return NoticeInbox(client, book, CONFIRMERS)


def test_each_author_has_a_turn(inbox: NoticeInbox) -> None:
    others = [Identity.new().public for _ in range(3)]
    entries = [entry(i, who) for i, who in enumerate(others)] + [entry(i, CROWD) for i in range(10, 300)]
    assert seqs(inbox, entries) == {0, 1, 2, 299}
    assert seqs(inbox, entries, 6) == {0, 1, 2, 299, 298, 297}
    assert len(inbox.chosen(entries, 1000)) == len(entries)


def test_whom_one_knows_comes_before_any_crowd(inbox: NoticeInbox) -> None:
    crowd = [entry(i, Identity.new().public) for i in range(10, 60)]
    assert {0, 1} <= seqs(inbox, [entry(0, FRIEND), entry(1, FRIEND), *crowd])


def test_what_was_confirmed_stays_in_sight(inbox: NoticeInbox, monkeypatch: pytest.MonkeyPatch) -> None:
    first = entry(0, Identity.new().public)

    def received(each: LedgerEntry, _: Any) -> Received:
        return Received(each.id, each.seq, each.author, each.created, "confirmed" if each == first else "pending")

    monkeypatch.setattr(inbox, "_received", received)
    inbox.review([first])
    assert 0 in seqs(inbox, [first, *(entry(i, Identity.new().public) for i in range(10, 60))])
