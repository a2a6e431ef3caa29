"""Entries of an address book: how two devices' changes become one book, and which are accepted."""

import json
from random import Random
from typing import Any

import pytest

from enc.apps.people.address_book import Contact, NamedGroup, Place
from enc.apps.people.book_entries import (
    Entries,
    apply_changes,
    changes_between,
    entries_of,
    local_changes,
    parse_changes,
    wire_changes,
    with_entries,
)
from enc.apps.people.book_file import Contents
from enc.core.errors import InvalidCommit
from tests.core.world import NO_POINT, person

ME, BOB, CAROL = (person(name).public for name in ("alice", "bob", "carol"))
BOX, STORE, ROOM = (Place(bytes([n]) * 32, "https://node.example") for n in (7, 8, 9))
BOOK = Contents(
    {"bob": Contact("Bob", BOB, {"dm": BOX}, 5), "carol": Contact("carol", CAROL)},
    {ME: {"personal": STORE, "dm": BOX}, BOB: {"dm": ROOM}},
    {"plans": NamedGroup("Plans", ROOM)},
    {ROOM.enclave: "https://other.example"},
)


def bob(identity: bytes = BOB, name: str = "Bob", **places: Place) -> Entries:
    return {("person", name.casefold()): Contact(name, identity, places)}


def test_a_book_is_its_entries_and_nobody_else_s() -> None:
    entries = entries_of(BOOK, ME)
    assert {key for key, _ in entries.items()} == {
        ("person", "bob"),
        ("person", "carol"),
        ("group", "plans"),
        ("follow", ROOM.enclave.hex()),
        ("own", "dm"),
    }
    assert with_entries(Contents({}, BOOK.own), entries, ME) == BOOK
    assert with_entries(BOOK, {}, ME) == Contents({}, {ME: {"personal": STORE}, BOB: {"dm": ROOM}}, {}, {})


def test_entries_are_read_as_they_were_written() -> None:
    entries = entries_of(BOOK, ME)
    assert parse_changes(wire_changes(entries)) == entries
    assert parse_changes(wire_changes({("person", "bob"): None})) == {("person", "bob"): None}


def test_an_entry_that_no_device_would_accept_stays_where_it_is() -> None:
    odd = Contents({"-x": Contact("-x", BOB), "bob": Contact("Bob", BOB)})
    assert set(entries_of(odd, ME)) == {("person", "bob")}
    assert set(with_entries(odd, {}, ME).contacts) == {"-x"}


@pytest.mark.parametrize(
    "change",
    [
        None,
        ["person", "bob"],
        ["person", "bob", 1],
        ["poke", "bob", {}],
        ["person", "ann", {"name": "Bob", "identity": BOB.hex()}],
        ["person", "bob", {"name": "Bob\n", "identity": BOB.hex()}],
        ["person", "bob\nx", {"name": "Bob\nx", "identity": BOB.hex()}],
        ["person", "-bob", {"name": "-Bob", "identity": BOB.hex()}],
        ["person", "bob", {"name": "Bob", "identity": NO_POINT}],
        ["person", "bob", {"name": "Bob", "identity": "07"}],
        ["person", "bob", {"name": "Bob", "identity": BOB.hex(), "card_at": -1}],
        ["person", "bob", {"name": "Bob", "identity": BOB.hex(), "enclaves": {"dm": {"enclave": "07"}}}],
        [
            "person",
            "bob",
            {"name": "Bob", "identity": BOB.hex(), "enclaves": {"dm": {"enclave": "07" * 32, "node": "file:///x"}}},
        ],
        [
            "person",
            "bob",
            {"name": "Bob", "identity": BOB.hex(), "enclaves": {str(n): {"enclave": "07" * 32} for n in range(17)}},
        ],
        ["group", "plans", {"name": "plans", "enclave": "07" * 32, "node": "https://node.example/"}],
        ["group", "plans", {"name": "others", "enclave": "07" * 32}],
        ["group", "plans", {"enclave": "07" * 32}],
        ["follow", "08" * 32, {"enclave": "07" * 32, "node": "https://node.example"}],
        ["follow", "07" * 32, {"enclave": "07" * 32}],
        ["own", "", {"enclave": "07" * 32}],
        ["own", "x" * 65, {"enclave": "07" * 32}],
        ["own", "personal", {"enclave": "07" * 32}],
    ],
)
def test_an_invalid_change_has_no_effect_on_the_others(change: Any) -> None:
    good = ["person", "carol", {"name": "carol", "identity": CAROL.hex()}]
    assert parse_changes([change, good]) == {("person", "carol"): Contact("carol", CAROL)}


def test_changes_are_a_list() -> None:
    with pytest.raises(InvalidCommit):
        parse_changes({"person": 1})


def test_only_what_changed_here_is_a_local_change() -> None:
    base = {**bob(), **bob(CAROL, "carol")}
    remote = {**bob(), **bob(ME, "ann")}
    assert local_changes(base, base, remote) == {}, "neither an old name comes back, nor does a new one go"
    assert local_changes(base, {**base, **bob(ME, "dad")}, remote) == bob(ME, "dad")
    assert local_changes(base, bob(CAROL, "carol"), base) == {("person", "bob"): None}
    assert local_changes(bob(), {}, {}) == {}, "both removed it"
    assert local_changes({}, bob(), bob()) == {}, "both added it"


def test_of_two_changes_of_one_entry_that_of_this_device_is_the_later_one() -> None:
    base, mine, theirs = bob(), bob(dm=BOX), bob(dm=ROOM)
    assert local_changes(base, mine, theirs) == mine
    assert local_changes(base, mine, {}) == mine
    assert local_changes(base, {}, theirs) == {("person", "bob"): None}


def test_enclaves_that_two_devices_added_are_both_kept() -> None:
    assert local_changes(bob(), bob(dm=BOX), bob(personal=STORE)) == bob(personal=STORE, dm=BOX)


def test_a_name_that_two_devices_gave_to_two_people_gets_a_number() -> None:
    remote = bob(CAROL)
    assert local_changes({}, bob(), remote) == bob(name="Bob (2)")
    taken = {**remote, **bob(ME, "Bob (2)")}
    assert local_changes({}, bob(), taken) == bob(name="Bob (3)")
    long = "x" * 64
    ((_, name),) = local_changes({}, bob(name=long), bob(CAROL, name=long))
    assert name == "x" * 56 + " (2)"


def test_a_name_that_two_devices_gave_to_two_groups_gets_a_number() -> None:
    key = ("group", "plans")
    found = local_changes({}, {key: NamedGroup("plans", ROOM)}, {key: NamedGroup("Plans", BOX)})
    assert found == {("group", "plans (2)"): NamedGroup("plans (2)", ROOM)}


def test_changes_between_two_books_make_one_of_the_other() -> None:
    one, other = {**bob(), **bob(CAROL, "carol")}, {**bob(dm=BOX), **bob(ME, "ann")}
    assert apply_changes(one, changes_between(one, other)) == other


def test_whatever_stands_in_the_log_is_a_change_or_has_no_effect() -> None:
    random, whole = Random(11), wire_changes(entries_of(BOOK, ME))
    odd: list[Any] = ["", "\x00", "http://[", "ff" * 32, None, 1, -1, 2**60, 1.5, True, [], {}, {"dm": 1}, {"dm": {}}]
    for _ in range(600):
        wire = json.loads(json.dumps(whole))
        each = random.choice(wire)
        target = each[2] if isinstance(each[2], dict) and random.random() < 0.8 else each
        key = random.choice(list(target)) if isinstance(target, dict) else random.randrange(3)
        target[key] = random.choice(odd)
        found = parse_changes(wire)
        assert len(found) >= len(whole) - 1
        assert parse_changes(wire_changes(found)) == found
