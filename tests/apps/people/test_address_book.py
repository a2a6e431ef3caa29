"""The address book: a file that survives crashes and races, with names that the user chose."""

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from enc.apps import AddressBook
from enc.apps.people import address_book as module
from enc.apps.people.address_book import Contact, Place
from enc.client import Identity
from enc.core.errors import MisuseError
from tests.core.world import NO_POINT, person

BOB, CAROL = person("bob").public, person("carol").public
BOX = Place(b"\x07" * 32, "https://node.example")


@pytest.fixture
def book(tmp_path: Path) -> AddressBook:
    return AddressBook(tmp_path / "deep" / "contacts.json")


def test_contacts_are_kept_and_found_whatever_the_case(book: AddressBook) -> None:
    assert (book.contacts(), book.get("bob"), book.of(BOB), book.node_of(BOX.enclave)) == ([], None, None, None)
    book.put(Contact(" Bob ", BOB, {"dm": BOX}))
    book.put(Contact("anna", CAROL))
    again = AddressBook(book.path)
    assert again.get("BOB") == again.of(BOB.hex()) == Contact("Bob", BOB, {"dm": BOX})
    assert [each.name for each in again.contacts()] == ["anna", "Bob"]
    assert again.node_of(BOX.enclave) == "https://node.example"
    book.remove("bOb")
    assert again.get("Bob") is None
    with pytest.raises(MisuseError, match="no contact in"):
        book.remove("Bob")


def test_a_contact_that_is_put_again_keeps_its_other_places_unless_it_is_another_person(book: AddressBook) -> None:
    book.put(Contact("Bob", BOB, {"dm": BOX}))
    mine = Place(b"\x08" * 32)
    assert book.put(Contact("bob", BOB, {"personal": mine})) == Contact("bob", BOB, {"dm": BOX, "personal": mine})
    with pytest.raises(MisuseError, match=BOB.hex()):
        book.put(Contact("Bob", CAROL))
    assert book.of(BOB) is not None
    assert book.put(Contact("Bob", CAROL), again=True).places == {}
    assert book.of(BOB) is None


def test_one_s_own_enclaves(book: AddressBook) -> None:
    assert book.own(BOB, "personal") is None
    book.set_own(BOB, "personal", BOX)
    book.set_own(BOB, "dm", Place(b"\x09" * 32))
    assert (book.own(BOB, "personal"), book.own(CAROL, "personal")) == (BOX, None)
    assert book.own(BOB, "dm") == Place(b"\x09" * 32)
    assert book.node_of(BOX.enclave) == "https://node.example"


def test_groups_have_names_of_their_own(book: AddressBook) -> None:
    book.put(Contact("plans", BOB))
    book.put_group("Plans", BOX)
    again = AddressBook(book.path)
    assert [each.name for each in again.groups()] == ["Plans"]
    assert again.group("plans") == again.group(BOX.enclave.hex()) == BOX
    assert again.group("08" * 32) == Place(b"\x08" * 32), "an id needs no name"
    assert again.node_of(BOX.enclave) == BOX.node
    with pytest.raises(MisuseError, match="already"):
        book.check_free("PLANS")
    with pytest.raises(MisuseError, match=BOX.enclave.hex()):
        book.put_group("plans", Place(b"\x08" * 32))
    book.put_group("plans", Place(BOX.enclave))
    book.remove_group("PLANS")
    assert book.get("plans") is not None
    book.check_free("plans")
    for wrong in (book.group, book.remove_group):
        with pytest.raises(MisuseError, match="no group in "):
            wrong("plans")


def test_where_an_enclave_was_followed_to_is_known_wherever_it_is_named(book: AddressBook) -> None:
    other = Place(b"\x08" * 32, "https://node.example")
    book.put(Contact("bob", BOB, {"dm": BOX, "personal": other}, 7))
    book.set_own(CAROL, "dm", BOX)
    book.put_group("plans", BOX)
    book.put_follow(BOX.enclave, "https://new.example/")
    book.put_follow(b"\x09" * 32, "https://new.example")
    again, new = AddressBook(book.path), Place(BOX.enclave, "https://new.example")
    assert again.follows() == {BOX.enclave: "https://new.example", b"\x09" * 32: "https://new.example"}
    assert again.contacts() == [Contact("bob", BOB, {"dm": new, "personal": other}, 7)]
    assert again.own(CAROL, "dm") == again.group("plans") == new
    assert (again.node_of(BOX.enclave), again.node_of(b"\x09" * 32)) == ("https://new.example",) * 2
    with pytest.raises(MisuseError, match="not a node's URL"):
        book.put_follow(BOX.enclave, "file:///x")


def test_the_number_of_followed_enclaves_is_bounded(book: AddressBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FOLLOWS", 1)
    book.put_follow(BOX.enclave, "https://node.example")
    with pytest.raises(MisuseError, match="at most 1 followed"):
        book.put_follow(b"\x08" * 32, "https://node.example")


def test_a_change_that_changes_nothing_writes_nothing(book: AddressBook) -> None:
    book.put(Contact("bob", BOB))
    before = book.path.stat().st_ino
    book.update(lambda found: found)
    assert book.path.stat().st_ino == before


def test_the_number_of_groups_is_bounded(book: AddressBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GROUPS", 1)
    book.put_group("plans", BOX)
    with pytest.raises(MisuseError, match="at most 1 groups"):
        book.put_group("others", BOX)


def test_everybody_s_names_at_once_are_those_that_one_asks_for(book: AddressBook) -> None:
    for name, key in (("robert", BOB), ("bob", BOB), ("carol", CAROL)):
        book.put(Contact(name, key))
    assert book.names() == {key: book.of(key).name for key in (BOB, CAROL)} == {BOB: "bob", CAROL: "carol"}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\nb", "\x1b[31m", "ab" * 32, "--yes", "-"])
def test_what_is_no_name(book: AddressBook, name: str) -> None:
    with pytest.raises(MisuseError, match="name: "):
        book.put(Contact(name, BOB))
    with pytest.raises(MisuseError, match="name: "):
        book.put_group(name, BOX)
    with pytest.raises(MisuseError, match="name: "):
        book.check_free(name)


def test_what_is_no_contact(book: AddressBook, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisuseError, match="identity"):
        book.put(Contact("Bob", bytes.fromhex(NO_POINT)))
    with pytest.raises(MisuseError, match="enclave"):
        book.put(Contact("Bob", BOB, {"dm": Place(b"short")}))
    with pytest.raises(MisuseError):
        book.put(Contact("Bob", BOB, {"dm": Place(bytes(32), "gopher://x")}))
    with pytest.raises(MisuseError, match="16 enclaves"):
        book.put(Contact("Bob", BOB, {str(i): BOX for i in range(17)}))
    monkeypatch.setattr(module, "MAX_CONTACTS", 1)
    book.put(Contact("Bob", BOB))
    book.put(Contact("Bob", BOB))
    with pytest.raises(MisuseError, match="at most 1 contacts"):
        book.put(Contact("Carol", CAROL))
    monkeypatch.setattr(module, "MAX_CONTACTS", 9)
    monkeypatch.setattr(module, "MAX_SIZE", 300)
    with pytest.raises(MisuseError, match="bytes"):
        book.put(Contact("Carol", CAROL, {"dm": BOX}))
    assert [each.name for each in book.contacts()] == ["Bob"]


def test_the_file_is_its_owner_s_alone_and_written_whole(book: AddressBook, monkeypatch: pytest.MonkeyPatch) -> None:
    book.put(Contact("Bob", BOB))
    assert book.path.stat().st_mode & 0o777 == 0o600
    before = book.path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(MisuseError, match="No space"):
            book.put(Contact("Carol", CAROL))
    assert book.path.read_bytes() == before
    assert {path.name for path in book.path.parent.iterdir()} == {"contacts.json", ".contacts.json.lock"}
    book.path.chmod(0o644)
    with pytest.raises(MisuseError, match="users other than its owner"):
        book.contacts()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 2},
        {"contacts": 7},
        {"contacts": [{"name": "Bob", "identity": "ab"}]},
        {"contacts": [{"identity": "ab" * 32}]},
        {"own": {"x": {}}},
        {"own": {"ab" * 32: {"dm": {"enclave": "x"}}}},
    ],
)
def test_what_is_no_address_book_is_left_alone(book: AddressBook, change: dict[str, Any]) -> None:
    book.put(Contact("Bob", BOB))
    wire = json.dumps({**json.loads(book.path.read_text()), **change})
    for text in (wire, "no JSON", ""):
        book.path.write_text(text)
        for act in (book.contacts, lambda: book.put(Contact("Carol", CAROL))):
            with pytest.raises(MisuseError, match="is not an address book"):
                act()
        assert book.path.read_text() == text


def add(path: Path, start: Any, numbers: range) -> None:
    start.wait()
    for n in numbers:
        AddressBook(path).put(Contact(f"friend {n}", Identity.new().public))


def test_two_programs_that_write_at_once_lose_nothing(book: AddressBook) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    parts = [context.Process(target=add, args=(book.path, start, range(i, 40, 2))) for i in range(2)]
    for part in parts:
        part.start()
    for part in parts:
        part.join(60)
    assert len(book.contacts()) == 40


def test_a_book_lies_beside_the_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert AddressBook().path == tmp_path / "enc" / "contacts.json"
    assert AddressBook().contacts() == []
    assert list(tmp_path.iterdir()) == []
