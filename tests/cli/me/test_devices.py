"""Names, groups and followed enclaves on a second device that has only the key and a node or a registry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.apps import AddressBook
from enc.apps.personal.book_sync import pause_sync
from enc.cli.common import profiles
from tests.cli.me.devices import book_of, card_of, device_of, identity_of, with_store
from tests.cli.people import Person, with_key
from tests.client.moved import Town, town
from tests.node.running import RunningNode

BOB = "d783156764b7a3906d0059e295c3a8f72645f7a259bff2609f6b9efb34017576"
GROUP = "07" * 32


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("devices"), "a", "b") as found:
        yield found


@pytest.fixture
def ada(tmp_path: Path, running_node: RunningNode) -> Person:
    return with_store(tmp_path / "ada", running_node.url, "Ada")


@pytest.fixture
def phone(ada: Person, tmp_path: Path, running_node: RunningNode) -> Person:
    return device_of(ada, tmp_path / "phone", node=running_node.url)


def test_a_second_device_with_the_key_and_the_node_has_the_same_names(ada: Person, phone: Person) -> None:
    ada.ask("me", "know", "bob", BOB)
    ada.ask("group", "add", "plans", GROUP, "--at", "https://node.example")
    assert book_of(phone) == {"bob": BOB}
    assert [each["name"] for each in phone.ask_json("group", "list")] == ["plans"]
    assert phone.ask_json("me", "whois", "bob")[0]["identity"] == BOB
    assert phone.ask_json("me", "show")[0]["enclave"] == ada.ask_json("me", "show")[0]["enclave"]
    assert phone.ask_json("dm", "status")[0]["mailbox"] == ada.ask_json("dm", "status")[0]["mailbox"]
    phone.ask("me", "know", "carol", identity_of(phone))
    phone.ask("me", "forget", "bob")
    assert set(book_of(ada)) == {"carol"}
    ada.ask("group", "forget", "plans")
    assert phone.ask_json("group", "list") == []


def test_a_second_device_with_the_key_and_a_registry_has_the_same_names(place: Town, tmp_path: Path) -> None:
    registry = f"{place.registry.url}#{place.registry.enclave.hex()}"
    node = place.nodes["a"].url
    ada = with_store(tmp_path / "ada", node, "Ada", registry)
    ada.ask("me", "create", "--again")  # not one that the key alone finds
    ada.ask("me", "know", "bob", BOB)
    phone = device_of(ada, tmp_path / "phone", registry=registry)
    assert book_of(phone) == {"bob": BOB}
    assert phone.ask_json("dm", "status")[0]["mailbox"] == ada.ask_json("dm", "status")[0]["mailbox"]


def test_the_names_of_a_group_are_known_on_the_second_device(ada: Person, phone: Person) -> None:
    ada.ask("group", "create", "plans")
    ada.ask("group", "say", "plans", "hello")
    assert [each["text"] for each in phone.ask_json("group", "read", "plans")] == ["hello"]
    phone.ask("group", "create", "others")
    assert {each["name"] for each in ada.ask_json("group", "list")} == {"plans", "others"}


def test_a_contact_added_by_card_is_known_on_the_second_device(
    ada: Person, phone: Person, tmp_path: Path, running_node: RunningNode
) -> None:
    bob = with_store(tmp_path / "bob", running_node.url, "Bob")
    ada.ask("dm", "add", card_of(bob), "--greeting", "hi")
    bob.ask("dm", "accept", card_of(ada))
    bob.ask("dm", "send", "Ada", "hello")
    phone.ask("dm", "send", "bob", "from the phone")
    assert [each["text"] for each in bob.ask_json("dm", "read", "Ada")] == ["hi", "hello", "from the phone"]


def test_a_book_from_before_is_taken_over(tmp_path: Path, running_node: RunningNode) -> None:
    ada = with_store(tmp_path / "ada", running_node.url, "Ada")
    phone = device_of(ada, tmp_path / "phone", node="http://127.0.0.1:1")
    phone.ask("me", "know", "bob", BOB)
    profiles.store(phone.config, "default", "node", running_node.url)
    phone.ask("group", "create", "plans")
    assert book_of(ada) == {"bob": BOB}


def test_names_given_before_the_store_was_made_are_taken_over(tmp_path: Path, running_node: RunningNode) -> None:
    ada = with_key(tmp_path / "ada", running_node.url)
    ada.ask("me", "know", "bob", BOB)
    ada.ask("me", "create")
    assert book_of(device_of(ada, tmp_path / "phone", node=running_node.url)) == {"bob": BOB}
    pad = device_of(ada, tmp_path / "pad", node=running_node.url)
    assert "already" in pad.refused("me", "create", code=2)["message"]


def test_without_the_node_names_stay_usable_and_are_synced_later(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node:
        url, port = node.url, node.url.rpartition(":")[2]
        ada = with_store(tmp_path / "ada", url, "Ada")
        ada.ask("me", "know", "bob", BOB)
        phone = device_of(ada, tmp_path / "phone", node=url)
        assert book_of(phone) == {"bob": BOB}
    listed = phone.ask("me", "contacts")
    assert "bob" in listed.stdout
    assert "names are not synced with your other devices: cannot reach" in listed.stderr
    known = phone.ask("me", "know", "carol", identity_of(phone))
    assert known.stderr.count("names are not synced") == 1
    phone.ask("group", "add", "plans", GROUP)
    assert set(book_of(phone)) == {"bob", "carol"}
    assert phone.refused("me", "sync", code=3)["code"] == "UNREACHABLE"
    with RunningNode(tmp_path / "node", "--port", port):
        assert phone.ask_json("me", "sync") == [{"received": 0, "sent": 2}]
        assert set(book_of(ada)) == {"bob", "carol"}
        assert phone.ask("me", "contacts").stderr == ""


def test_a_second_device_at_another_node_is_told_to_check_the_node(ada: Person, tmp_path: Path) -> None:
    with RunningNode(tmp_path / "other") as other:
        phone = device_of(ada, tmp_path / "phone", node=other.url)
        listed = phone.ask("me", "contacts")
        refused = phone.refused("dm", "status", code=2)["message"]
    assert listed.stdout == ""
    assert f"no personal store of yours was found at {other.url}. If you have one on another node" in listed.stderr
    assert f"no mailbox of yours was found at {other.url}. If you have one on another node" in refused
    assert "enc config set node URL" in refused
    assert ada.ask("me", "contacts").stderr == "your address book is empty\n"


def test_after_a_failure_other_commands_wait_before_they_sync_again(ada: Person, phone: Person) -> None:
    assert book_of(phone) == {}
    ada.ask("me", "know", "bob", BOB)
    pause_sync(AddressBook(phone.home / ".local/share/enc/contacts.json"), bytes.fromhex(identity_of(phone)), 30_000)
    assert "no person named bob" in phone.refused("dm", "add", "bob", code=2)["message"]
    assert book_of(phone) == {"bob": BOB}, "a command about names does not wait"
    assert phone.refused("dm", "add", "bob", code=2)["message"].startswith("their mailbox is unknown")


def test_commands_about_names_ask_for_no_passphrase(ada: Person, phone: Person) -> None:
    phone.ask("key", "seal", phone.key(), ENC_PASSPHRASE="secret")
    ada.ask("me", "know", "bob", BOB)
    assert book_of(phone) == {}
    (listed,) = phone.ask_json("me", "contacts", ENC_PASSPHRASE="secret")
    assert listed["name"] == "bob"


def test_somebody_without_key_or_node_has_a_book_too(anybody: Person) -> None:
    anybody.ask("me", "know", "bob", BOB)
    assert book_of(anybody) == {"bob": BOB}
    assert "identity" in anybody.refused("me", "sync", code=2)["message"]


def test_a_store_is_needed_to_sync(tmp_path: Path, running_node: RunningNode) -> None:
    eve = with_key(tmp_path / "eve", running_node.url)
    assert "no personal store" in eve.refused("me", "sync", code=2)["message"]
    assert eve.ask("me", "know", "bob", BOB).stderr == ""


def test_a_book_that_cannot_be_read_stops_only_the_commands_that_need_it(ada: Person) -> None:
    enclave = ada.ask_json("enclave", "create", "team")[0]["enclave"]
    (ada.home / ".local/share/enc/contacts.json").write_text("{")
    assert "not an address book" in ada.refused("me", "contacts", code=2)["message"]
    ada.ask("query", "--enclave", enclave)


def test_a_node_that_lies_about_the_names_ends_the_command(tmp_path: Path, running_node: RunningNode) -> None:
    with RunningNode(tmp_path / "node") as node:
        ada = with_store(tmp_path / "ada", node.url, "Ada")
        port = node.url.rpartition(":")[2]
    with RunningNode(tmp_path / "false", "--port", port):
        assert ada.refused("me", "contacts", code=4)["code"] == "FOREIGN_SEQUENCER"


def test_an_enclave_that_was_followed_is_found_on_the_second_device(place: Town, tmp_path: Path) -> None:
    old, new = place.nodes["a"].url, place.nodes["b"].url
    ada = with_store(tmp_path / "ada", old, "Ada")
    phone = device_of(ada, tmp_path / "phone", node=old)
    enclave = ada.ask_json("enclave", "create", "team")[0]["enclave"]
    ada.ask("group", "add", "plans", enclave)
    assert phone.ask_json("group", "list")[0]["node"] == old
    ada.ask("migrate", enclave, "--to", new)
    words = ("commit", "message", "hello", "--enclave", enclave)
    assert phone.refused(*words, code=1)["code"] == "ENCLAVE_MIGRATED"
    ada.ask("follow", enclave, "--at", new)
    assert phone.ask_json("group", "list")[0]["node"] == new
    phone.ask(*words)
    assert phone.ask_json("follow", enclave)[0]["node"] == new
