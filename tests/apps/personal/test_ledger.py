"""The ledger of a personal enclave, without a node."""

import random
from typing import Any

import pytest

from enc.apps.personal import Ledger
from enc.apps.personal.documents import ContentWithheld, NoDocument, Unreadable, open_document
from enc.apps.personal.ledger import MAX_NOTICE
from enc.client import Identity, Item
from enc.core.errors import MisuseError
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from tests.core.world import LIFETIME, START, person, withheld

ENCLAVE, OWNER = b"\x01" * 32, person("alice")


class Log:
    """A sequence of events, from a node that accepts everything."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def add(self, who: str, type_: str, content: str | None = "words", about: Item | None = None) -> Item:
        seq = len(self.items)
        tags = () if about is None else (("r", about.id.hex()),)
        commit = build_commit(person(who), ENCLAVE, type_, content or "", START + LIFETIME + seq, tags)
        event = finalize(commit, person("node"), START + seq, seq)
        self.items.append(Item(event, "active"))
        return self.items[-1]

    def fold(self, items: list[Item] | None = None) -> Ledger:
        ledger = Ledger(OWNER.public)
        for item in self.items if items is None else items:
            ledger.apply(item)
        return ledger


def stands(ledger: Ledger) -> dict[str, list[tuple[int, str | None]]]:
    types = ("public", "private", "notice")
    return {type_: [(entry.seq, entry.content) for entry in ledger.entries(type_)] for type_ in types}


def test_what_stands_is_what_was_written_less_what_was_deleted() -> None:
    log = Log()
    post, doc, note = log.add("alice", "public", "a"), log.add("alice", "private", "b"), log.add("bob", "notice", "c")
    other = log.add("alice", "public", "d")
    log.add("alice", "Shared")
    log.add("alice", "Update", "a2", post)
    log.add("alice", "Update", "a3", post)
    log.add("alice", "Delete", "{}", doc)
    log.add("alice", "Update", "late", doc)
    ledger = log.fold()
    assert stands(ledger) == {"public": [(0, "a3"), (3, "d")], "private": [], "notice": [(2, "c")]}
    entry = ledger.get(post.id)
    assert entry is not None
    assert (entry.created, entry.changed, entry.author) == (START, START + 6, OWNER.public)
    assert ledger.get(doc.id) is None
    assert ledger.last == 8
    log.add("alice", "Delete", "{}", note)
    assert stands(log.fold())["notice"] == []
    assert ledger.get(other.id) is not None


def test_whatever_the_node_lets_in_only_the_owner_s_word_counts() -> None:
    log = Log()
    post, note = log.add("alice", "public", "a"), log.add("bob", "notice", "b")
    before = stands(log.fold())
    log.add("bob", "public", "spam")
    log.add("bob", "private", "spam")
    log.add("alice", "notice", "to myself")
    log.add("bob", "Update", "defaced", post)
    log.add("bob", "Delete", "{}", post)
    log.add("bob", "Delete", "{}", note)
    log.add("alice", "Update", "put into another's mouth", note)
    assert stands(log.fold()) == before


def test_an_entry_has_the_statement_about_its_current_content() -> None:
    log = Log()
    post, note = log.add("alice", "private", "a"), log.add("bob", "notice", "c")
    items = [Item(withheld(item.event), "active") for item in (post, note)]
    ledger = log.fold(items)
    entry = ledger.get(post.id)
    assert entry is not None
    assert (entry.content, entry.withheld) == (None, items[0].withheld)
    with pytest.raises(ContentWithheld, match="the node withholds it") as found:
        open_document(Identity(OWNER), ENCLAVE, entry)
    assert Unreadable(entry.id, entry.seq, found.value).withheld == items[0].withheld
    assert Unreadable(entry.id, entry.seq, NoDocument("content: erased")).withheld is None
    log.add("alice", "Update", "b", post)
    now = log.fold([*items, log.items[-1]]).get(post.id)
    assert now is not None
    assert (now.content, now.withheld) == ("b", None)


def test_a_log_without_its_erased_contents_and_deleted_events_folds_to_the_same() -> None:
    """Return what a node still shows later, after checking that a new device gets the same
    result.
    """
    for seed in range(20):
        log, chance = Log(), random.Random(seed)
        for _ in range(40):
            targets = [item for item in log.items if item.type in ("public", "private", "notice")]
            what = chance.choice(["public", "private", "notice", "Update", "Delete"])
            if what in ("Update", "Delete"):
                if targets:
                    log.add("alice", what, f"new {len(log.items)}", chance.choice(targets))
            else:
                log.add("bob" if what == "notice" else "alice", what, f"text {len(log.items)}")
        whole = log.fold()
        assert stands(log.fold(later(log))) == stands(whole)


def later(log: Log) -> list[Item]:
    gone = {item.event.tags[0][1] for item in log.items if item.type == "Delete"}
    return [item for item in log.items if item.id.hex() not in gone]


def test_events_come_by_rising_seq() -> None:
    log = Log()
    first, second = log.add("alice", "public"), log.add("alice", "public")
    ledger = log.fold()
    for item in (first, second):
        with pytest.raises(MisuseError, match="rising"):
            ledger.apply(item)


def test_a_notice_past_its_size_is_not_kept_and_a_document_of_that_size_is() -> None:
    log = Log()
    log.add("bob", "notice", "x" * MAX_NOTICE)
    log.add("bob", "notice", "x" * (MAX_NOTICE + 1))
    log.add("alice", "private", "x" * (MAX_NOTICE + 1))
    ledger = log.fold()
    assert [entry.content is None for entry in ledger.entries("notice")] == [False, True]
    assert ledger.entries("private")[0].content is not None


def test_an_entry_is_frozen() -> None:
    log = Log()
    log.add("alice", "public")
    entry: Any = log.fold().entries("public")[0]
    with pytest.raises(AttributeError):
        entry.content = "other"
