"""One address book on several devices of one identity, through the identity's store on a real node."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from enc.apps import Personal
from enc.apps.people.address_book import Contact, Place
from enc.apps.personal import book_log, book_sync
from enc.apps.personal.book_log import MAX_EVENTS, BookState, fold_book
from enc.apps.personal.book_sync import FOLDER, Synced, is_paused, pause_sync, sync_book
from enc.apps.personal.documents import BOOK_KIND, MAX_PLAINTEXT, Document
from enc.apps.personal.send_notice import NoPersonalStore
from enc.client import Identity
from enc.client.errors import Unreachable
from enc.client.verify.pins import MemoryPins
from enc.core.errors import MisuseError
from tests.apps.personal.conftest import Street
from tests.core.world import person

BOB, CAROL, DAVE = (person(name).public for name in ("bob", "carol", "dave"))
BOX, STORE, ROOM = (Place(bytes([n]) * 32, "https://node.example") for n in (7, 8, 9))


class Device:
    """One device of an identity: an address book, and a client without a registry."""

    def __init__(self, street: Street, who: Identity, name: str) -> None:
        self.book = street.book(name)
        self.client = street.client(who, known=False)

    @property
    def store(self) -> Personal:
        return Personal.find(self.client, book=self.book)

    def sync(self) -> Synced:
        return sync_book(self.store, self.book)

    def opened(self) -> list[Document]:
        """Return the events of the book."""
        found = [each for each in self.store._opened() if isinstance(each, Document)]
        return [each for each in found if each.kind == BOOK_KIND]

    def names(self) -> dict[str, bytes]:
        return {each.name: each.identity for each in self.book.contacts()}


@pytest.fixture
def who() -> Identity:
    return Identity.new()


@pytest.fixture
def first(street: Street, who: Identity) -> Device:
    device = Device(street, who, "first")
    Personal.create(device.client, book=device.book)
    return device


@pytest.fixture
def second(street: Street, who: Identity, first: Device) -> Device:
    return Device(street, who, "second")


def synced(*devices: Device) -> None:
    """Sync until every device has read what the others wrote."""
    for device in (*devices, *devices):
        device.sync()


def test_a_device_needs_only_the_key_and_the_node(first: Device, second: Device) -> None:
    assert second.store.enclave.id == first.store.enclave.id
    with pytest.raises(MisuseError, match="already"):
        Personal.create(second.client, book=second.book)


def test_the_first_store_of_a_node_is_found_there_only(street: Street, first: Device, who: Identity) -> None:
    there = street.client(who, at="b", known=False)
    with pytest.raises(NoPersonalStore):
        Personal.find(there)
    assert Personal.create(there).enclave.id != first.store.enclave.id
    other = Personal.create(first.client, again=True)
    assert other.enclave.id != first.store.enclave.id


def test_names_groups_follows_and_mailbox_are_the_same_on_all_devices(first: Device, second: Device) -> None:
    first.book.put(Contact("Bob", BOB, {"dm": BOX}, 5))
    first.book.put_group("Plans", ROOM)
    first.book.put_follow(STORE.enclave, "https://other.example")
    first.book.set_own(first.client.identity.public, "dm", BOX)
    assert first.sync() == Synced(0, 4)
    assert second.sync() == Synced(4, 0)
    assert second.book.contacts() == [Contact("Bob", BOB, {"dm": BOX}, 5)]
    assert second.book.group("plans") == ROOM
    assert second.book.follows() == {STORE.enclave: "https://other.example"}
    assert second.book.own(second.client.identity.public, "dm") == BOX
    assert (first.sync(), second.sync()) == (Synced(0, 0), Synced(0, 0))


def test_the_node_sees_no_name(first: Device, street: Street) -> None:
    first.book.put(Contact("Rumpelstiltskin", BOB))
    first.sync()
    contents = [item.content or "" for item in first.store.enclave.query()]
    assert contents
    assert not any("Rumpel" in each or BOB.hex() in each or "address" in each for each in contents)


def test_what_was_there_before_the_first_sync_is_kept(first: Device, second: Device) -> None:
    first.book.put(Contact("Bob", BOB, {"dm": BOX}))
    second.book.put(Contact("carol", CAROL))
    second.book.put(Contact("bob", BOB, {"personal": STORE}))
    synced(first, second)
    assert first.names() == second.names() == {"bob": BOB, "carol": CAROL}
    assert first.book.get("bob").places == second.book.get("bob").places == {"dm": BOX, "personal": STORE}  # type: ignore[union-attr]


def test_one_name_for_two_people_becomes_two_names(first: Device, second: Device) -> None:
    first.book.put(Contact("bob", BOB))
    second.book.put(Contact("bob", CAROL))
    synced(first, second)
    assert first.names() == second.names() == {"bob": BOB, "bob (2)": CAROL}


def test_changes_of_different_entries_at_the_same_time_are_both_kept(first: Device, second: Device) -> None:
    first.book.put(Contact("old", DAVE))
    synced(first, second)
    first.book.put(Contact("bob", BOB))
    second.book.put(Contact("carol", CAROL))
    second.book.remove("old")
    synced(first, second)
    assert first.names() == second.names() == {"bob": BOB, "carol": CAROL}


def racing(monkeypatch: pytest.MonkeyPatch, between: Callable[[], Any]) -> None:
    """Run `between` once, after the next sync has read the log and before it writes."""
    write = book_log.append_changes

    def slowly(*args: Any) -> None:
        monkeypatch.setattr(book_sync, "append_changes", write)
        between()
        write(*args)

    monkeypatch.setattr(book_sync, "append_changes", slowly)


def test_writes_that_did_not_see_each_other_are_both_kept(
    first: Device, second: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced(first, second)
    first.book.put(Contact("bob", BOB))
    second.book.put(Contact("carol", CAROL))
    racing(monkeypatch, second.sync)
    first.sync()
    assert first.names() == {"bob": BOB, "carol": CAROL}, "what came between is read at once"
    second.sync()
    assert second.names() == {"bob": BOB, "carol": CAROL}


def test_of_two_writes_of_one_entry_the_later_in_the_log_counts_everywhere(
    first: Device, second: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.book.put(Contact("bob", BOB))
    synced(first, second)
    first.book.put(Contact("bob", BOB, {"dm": BOX}))
    second.book.put(Contact("bob", BOB, {"dm": ROOM}))
    racing(monkeypatch, second.sync)
    first.sync()
    second.sync()
    assert first.book.get("bob") == second.book.get("bob") == Contact("bob", BOB, {"dm": BOX})


def test_a_removed_entry_stays_removed(first: Device, second: Device) -> None:
    for name, who in (("bob", BOB), ("carol", CAROL)):
        first.book.put(Contact(name, who))
    first.book.put_group("plans", ROOM)
    synced(first, second)
    first.book.remove("bob")
    first.book.remove_group("plans")
    first.sync()
    second.book.put(Contact("dave", DAVE))  # changed while the other device removed
    synced(second, first)
    assert first.names() == second.names() == {"carol": CAROL, "dave": DAVE}
    assert first.book.groups() == second.book.groups() == []


def test_an_entry_that_is_changed_after_it_was_removed_elsewhere_comes_back(first: Device, second: Device) -> None:
    first.book.put(Contact("bob", BOB))
    synced(first, second)
    first.book.remove("bob")
    second.book.put(Contact("bob", BOB, {"dm": BOX}))
    synced(first, second)
    assert first.names() == second.names() == {"bob": BOB}


def test_a_change_during_a_sync_is_neither_lost_nor_undone(first: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    first.book.put(Contact("bob", BOB))

    def change() -> None:
        first.book.put(Contact("carol", CAROL))
        first.book.remove("bob")

    racing(monkeypatch, change)
    first.sync()
    assert first.names() == {"carol": CAROL}
    assert first.sync() == Synced(0, 2)


def test_a_sync_that_was_cut_off_is_finished_by_the_next(
    first: Device, second: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    first.book.put(Contact("bob", BOB))
    second.book.put(Contact("carol", CAROL))
    second.sync()

    def cut(*args: Any) -> None:
        raise Unreachable("cut")

    for step in ("append_changes", "_save"):
        with monkeypatch.context() as broken:
            broken.setattr(book_sync, step, cut)
            with pytest.raises(Unreachable):
                first.sync()
    synced(first, second)
    assert first.names() == second.names() == {"bob": BOB, "carol": CAROL}
    assert len(first.opened()) == 2, "nothing is written twice"


def test_without_the_node_the_copy_stays_and_is_synced_later(first: Device, second: Device, street: Street) -> None:
    first.book.put(Contact("bob", BOB))
    first.sync()
    away = street.client(first.client.identity, at="b", known=False, pins=MemoryPins())
    lost = Personal(away, first.store.enclave.id, node="http://127.0.0.1:1")
    first.book.put(Contact("carol", CAROL))
    with pytest.raises(Unreachable):
        sync_book(lost, first.book)
    assert first.names() == {"bob": BOB, "carol": CAROL}
    synced(first, second)
    assert second.names() == {"bob": BOB, "carol": CAROL}


def test_another_store_gets_the_whole_book(first: Device, street: Street, who: Identity) -> None:
    first.book.put(Contact("bob", BOB))
    first.sync()
    Personal.create(first.client, book=first.book, again=True)
    assert first.sync() == Synced(0, 1)
    assert first.names() == {"bob": BOB}


class Profile(Device):
    """Another identity that uses the book of a device."""

    def __init__(self, street: Street, device: Device) -> None:
        self.book, self.client = device.book, street.client(known=False)
        Personal.create(self.client, book=self.book)


def test_identities_that_share_a_book_do_not_share_it_through_their_stores(
    first: Device, second: Device, street: Street
) -> None:
    first.book.put(Contact("bob", BOB))
    first.sync()
    work = Profile(street, first)
    assert work.sync() == Synced(0, 0)
    work.book.put(Contact("carol", CAROL))
    work.sync()
    assert first.sync() == Synced(0, 0)
    assert first.names() == {"bob": BOB, "carol": CAROL}, "on one machine both have all names"
    second.sync()
    assert second.names() == {"bob": BOB}
    office = Device(street, work.client.identity, "office")
    office.sync()
    assert office.names() == {"carol": CAROL}
    second.book.remove("bob")
    synced(second, work, first)
    assert first.names() == {"carol": CAROL}


def test_each_identity_has_its_own_mailbox(first: Device, second: Device, street: Street) -> None:
    work = Profile(street, first)
    office = Device(street, work.client.identity, "office")
    for device, box in ((first, BOX), (work, ROOM)):
        device.book.set_own(device.client.identity.public, "dm", box)
        device.sync()
    synced(second, office, first, work)
    for device, box in ((first, BOX), (second, BOX), (work, ROOM), (office, ROOM)):
        assert device.book.own(device.client.identity.public, "dm") == box


def test_two_identities_that_give_one_name_to_two_people_keep_them_apart(
    first: Device, second: Device, street: Street
) -> None:
    first.book.put(Contact("bob", BOB))
    first.sync()
    work = Profile(street, first)
    office = Device(street, work.client.identity, "office")
    office.book.put(Contact("bob", CAROL))
    office.sync()
    for _ in range(2):
        work.sync()
        assert work.names() == {"bob": CAROL}
        first.sync()
        assert first.names() == {"bob": BOB}, "the name is that of the identity in use"
    synced(second, office)
    assert (second.names(), office.names()) == ({"bob": BOB}, {"bob": CAROL})
    office.book.remove("bob")
    office.sync()
    work.sync()
    first.sync()
    assert first.names() == {"bob": BOB}


# The log in the store


def snapshots(device: Device) -> int:
    return sum("upto" in each.text for each in device.opened())


def test_many_changes_become_a_snapshot(
    first: Device, second: Device, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_log, "MAX_EVENTS", 3)
    second.sync()
    for n in range(5):
        first.book.put(Contact(f"n{n}", BOB))
        first.sync()
    assert (len(first.opened()), snapshots(first)) == (2, 1), "what the snapshot holds is deleted"
    late = Device(street, first.client.identity, "late")
    synced(second, late)
    assert first.names() == second.names() == late.names() == {f"n{n}": BOB for n in range(5)}
    second.book.remove("n0")
    synced(second, first, late)
    assert first.names() == second.names() == late.names() == {f"n{n}": BOB for n in range(1, 5)}


def test_a_change_that_a_snapshot_did_not_see_is_kept(
    first: Device, second: Device, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        first.book.put(Contact(f"n{n}", BOB))
        first.sync()
    second.sync()
    monkeypatch.setattr(book_log, "MAX_EVENTS", 2)
    second.book.put(Contact("carol", CAROL))
    write = book_log.write_event

    def after_the_other(store: Personal, *args: Any) -> Any:
        monkeypatch.setattr(book_log, "write_event", write)
        monkeypatch.setattr(book_log, "MAX_EVENTS", 99)
        second.sync()
        return write(store, *args)

    monkeypatch.setattr(book_log, "write_event", after_the_other)
    first.sync()
    late = Device(street, first.client.identity, "late")
    synced(first, second, late)
    names = {**{f"n{n}": BOB for n in range(3)}, "carol": CAROL}
    assert first.names() == second.names() == late.names() == names
    assert snapshots(late) == 1


def test_two_snapshots_at_once_are_one_book(
    first: Device, second: Device, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        first.book.put(Contact(f"n{n}", BOB))
        first.sync()
    second.sync()
    monkeypatch.setattr(book_log, "MAX_EVENTS", 2)
    remove = Personal.remove

    def after_the_other(store: Personal, id_: Any) -> Any:
        monkeypatch.setattr(Personal, "remove", remove)
        second.sync()
        return remove(store, id_)

    monkeypatch.setattr(Personal, "remove", after_the_other)
    first.sync()
    late = Device(street, first.client.identity, "late")
    synced(first, second, late)
    assert first.names() == second.names() == late.names() == {f"n{n}": BOB for n in range(4)}


def test_a_large_book_takes_several_events(first: Device, second: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_log, "MAX_TEXT", 400)
    monkeypatch.setattr(book_log, "MAX_EVENTS", 1)
    for n in range(9):
        first.book.put(Contact(f"n{n}", BOB))
    first.sync()
    assert len(first.opened()) == 3, "and no snapshot, which would be longer than an event"
    second.sync()
    assert second.names() == first.names()


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[]",
        '{"changes": 1}',
        '{"snapshot": [], "upto": 9007199254740991}',
        '{"snapshot": [], "upto": true}',
        '{"snapshot": [], "upto": "0"}',
        '{"upto": 1}',
        '{"changes": [["poke", "x", {}]]}',
    ],
)
def test_an_event_that_is_not_of_this_form_has_no_effect(first: Device, second: Device, text: str) -> None:
    first.book.put(Contact("bob", BOB))
    first.sync()
    book_log.write_event(first.store, text)
    first.book.put(Contact("carol", CAROL))
    first.sync()
    second.sync()
    assert first.names() == second.names() == {"bob": BOB, "carol": CAROL}


def test_the_book_is_not_among_the_documents(first: Device, second: Device) -> None:
    first.store.add("Diary", "It rained.")
    first.book.put(Contact("bob", BOB))
    first.sync()
    assert [each.name for each in first.store.documents()] == ["Diary"]
    assert first.store.unreadable() == []
    with pytest.raises(MisuseError, match=BOOK_KIND):
        first.store.add("x", "{}", kind=BOOK_KIND)
    second.sync()
    assert second.names() == {"bob": BOB}


def test_another_document_changes_no_name(first: Device, second: Device) -> None:
    text = json.dumps({"changes": [["person", "bob", {"name": "bob", "identity": BOB.hex()}]]})
    first.store.add("x", text)
    second.sync()
    assert second.names() == {}


def test_only_events_that_count_are_remembered_for_the_next_snapshot() -> None:
    before = BookState(events=((1, b"1"), (2, b"2")), seq=2)
    events = [(3, b"3", '{"changes": []}'), (4, b"4", '{"snapshot": [], "upto": 2}')]
    assert fold_book(before, events) == BookState({}, 4, ((3, b"3"), (4, b"4")))


def test_an_event_of_any_size_that_is_written_can_be_stored() -> None:
    assert book_log.MAX_TEXT * 2 <= MAX_PLAINTEXT
    assert MAX_EVENTS < 100


# The file beside the book


def test_the_state_of_the_last_sync_is_a_private_file(first: Device) -> None:
    first.book.put(Contact("bob", BOB))
    first.sync()
    path = first.book.path.parent / FOLDER / f"{first.client.identity.hex}.json"
    assert os.stat(path).st_mode & 0o777 == 0o600
    whole = json.loads(path.read_text())
    for broken in ("{", json.dumps({**whole, "events": [[1, "07"]]}), json.dumps({**whole, "entries": 1})):
        path.write_text(broken)
        with pytest.raises(MisuseError, match="remove it"):
            first.sync()
    path.unlink()
    assert first.sync() == Synced(0, 0)
    assert first.names() == {"bob": BOB}


def test_after_a_failure_programs_can_wait(first: Device) -> None:
    me, book = first.client.identity.public, first.book
    assert not is_paused(book, me, 1000)
    pause_sync(book, me, 1000)
    assert is_paused(book, me, 1000)
    assert not is_paused(book, BOB, 1000)
    pause_sync(book, me, 5000)
    assert not is_paused(book, me, 1000), "a clock that was set back does not pause for long"
    pause_sync(book, me, 1000)
    first.sync()
    assert not is_paused(book, me, 1000)
