"""Contact cards at a terminal: `enc me card`, and links wherever a command takes a person."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from enc.apps.people import parse_card, sign_card
from enc.cli.common import profiles
from enc.client import Identity
from enc.client.verify.pins import FilePins
from enc.runtime.clock import now_ms
from tests.cli.me.devices import book_of, card_of, identity_of, with_store
from tests.cli.people import Person, with_key
from tests.client.moved import town
from tests.node.running import RunningNode


@pytest.fixture
def ada(tmp_path: Path, running_node: RunningNode) -> Person:
    return with_store(tmp_path / "ada", running_node.url, "Ada")


@pytest.fixture
def bob(tmp_path: Path, running_node: RunningNode) -> Person:
    return with_store(tmp_path / "bob", running_node.url, "Bob")


def test_a_card_names_key_store_mailbox_and_node(ada: Person, running_node: RunningNode) -> None:
    (shown,) = ada.ask_json("me", "card")
    card = parse_card(shown["card"], now_ms())
    assert (card.key.hex(), card.name) == (identity_of(ada), "Ada")
    assert {label: each.enclave for label, each in card.enclaves.items()} == {
        "personal": ada.ask_json("me", "show")[0]["enclave"],
        "dm": ada.ask_json("dm", "status")[0]["mailbox"],
    }
    assert {each.node for each in card.enclaves.values()} == {running_node.url}
    assert {each.sequencer for each in card.enclaves.values()} == {running_node.seq_pub.hex()}
    assert ada.ask("me", "card").stdout.startswith("enc:card:")
    assert parse_card(card_of(ada, "--name", "Ada L."), now_ms()).name == "Ada L."


def test_a_card_of_somebody_without_store_or_mailbox(tmp_path: Path, running_node: RunningNode) -> None:
    eve = with_key(tmp_path / "eve", running_node.url)
    assert "--name" in eve.refused("me", "card", code=2)["message"]
    result = eve.ask("me", "card", "--name", "Eve")
    assert parse_card(result.stdout.strip(), now_ms()).enclaves == {}
    assert "enc me create" in result.stderr
    assert "enc dm create" in result.stderr
    assert "printable" in eve.refused("me", "card", "--name", "a\nb", code=2)["message"]


def test_two_people_who_exchange_cards_write_to_each_other(ada: Person, bob: Person) -> None:
    added = ada.ask("dm", "add", card_of(bob), "--greeting", "hi")
    assert f"Bob is {identity_of(bob)[:8]}…, by the card" in added.stderr
    assert added.stdout == "Bob is FRIEND\n"
    bob.ask("dm", "accept", card_of(ada))
    bob.ask("dm", "send", "Ada", "hello")
    ada.ask("dm", "send", "bob", "hello yourself")
    assert [each["text"] for each in bob.ask_json("dm", "read", "Ada")] == ["hi", "hello", "hello yourself"]


def test_a_person_is_invited_into_a_group_by_card(ada: Person, bob: Person) -> None:
    ada.ask("group", "create", "plans")
    (invited,) = ada.ask_json("group", "invite", "plans", card_of(bob))
    assert invited["notice"] is not None, "the card says where the store is"
    assert book_of(ada) == {"Bob": identity_of(bob)}
    (invitation,) = bob.ask_json("group", "invitations")
    assert invitation["enclave"] == ada.ask_json("group", "list")[0]["enclave"]


def test_an_invitation_in_a_chat_takes_a_card(ada: Person, bob: Person) -> None:
    ada.ask("group", "create", "plans")
    ada.run("group", "chat", "plans", stdin=f"/invite {card_of(bob)}\n")
    assert {each["identity"] for each in ada.ask_json("group", "who", "plans")} == {identity_of(ada), identity_of(bob)}
    assert len(bob.ask_json("group", "invitations")) == 1


def test_whois_and_know_take_a_card(ada: Person, bob: Person) -> None:
    link = card_of(bob)
    (found,) = ada.ask_json("me", "whois", link)
    assert (found["identity"], found["name"], found["source"]) == (identity_of(bob), "Bob", "card")
    assert book_of(ada) == {}, "whois stores nothing"
    (known,) = ada.ask_json("me", "know", "robert", link)
    assert (known["name"], set(known["enclaves"])) == ("robert", {"dm", "personal"})
    told = ada.ask("dm", "add", link).stderr
    assert "the card calls them Bob; yours stays robert" in told
    assert book_of(ada) == {"robert": identity_of(bob)}


@pytest.mark.parametrize("pasted", [" {}", "<{}>\n", "‹{}›"])
def test_a_pasted_card_may_have_space_and_brackets_around_it(ada: Person, bob: Person, pasted: str) -> None:
    link = pasted.format(card_of(bob))
    assert ada.ask_json("me", "whois", link)[0]["source"] == "card"
    ada.ask("dm", "add", link)
    ada.ask("me", "know", "robert", link)
    assert "robert" in book_of(ada)


def test_a_group_on_another_node_is_confirmed_by_naming_its_node(ada: Person, tmp_path: Path) -> None:
    ada.ask("group", "create", "plans")
    group, url = ada.ask_json("group", "list")[0]["enclave"], profiles.read(ada.config)["default"]["node"]
    with RunningNode(tmp_path / "other") as other:
        bob = with_store(tmp_path / "bob", other.url, "Bob")
        ada.ask("group", "invite", "plans", card_of(bob))
        assert f"enc group add NAME {group} --at URL" in bob.ask("group", "invitations").stderr
        bob.ask("me", "know", "ada", card_of(ada))
        told = bob.ask("group", "invitations").stderr
        assert f"if the group is on another node: enc group add NAME {group} --at {url} (the node of ada)" in told
        assert "enc group add NAME" in bob.refused("group", "accept", "plans", group, code=2)["message"]
        bob.ask("group", "add", "plans", group, "--at", url)
        (invitation,) = bob.ask_json("group", "invitations")
        assert invitation["is_confirmed"]
        bob.ask("group", "accept", "plans", group)


def test_a_card_takes_over_no_name(ada: Person, bob: Person, tmp_path: Path) -> None:
    eve = Identity.new()
    link = sign_card(eve, "BOB", now_ms(), {})
    ada.ask("me", "know", "bob", identity_of(bob))
    refused = ada.refused("dm", "add", link, code=2)["message"]
    assert "named bob" in refused
    assert "enc me know NAME LINK" in refused
    assert "--again" in ada.refused("me", "know", "bob", link, code=2)["message"]
    assert book_of(ada) == {"bob": identity_of(bob)}
    ada.ask("me", "know", "other bob", link)
    ada.ask("me", "know", "bob", link, "--again")
    assert book_of(ada) == {"bob": eve.hex, "other bob": eve.hex}


def test_an_older_card_changes_neither_addresses_nor_pins(ada: Person, bob: Person) -> None:
    new = parse_card(card_of(bob), now_ms())
    moved = structs.replace(new.enclaves["dm"], sequencer=Identity.new().hex, node="http://127.0.0.1:1")
    old = sign_card(Identity.load(bob.key()), "Bob", 1, {"dm": moved})
    ada.ask("me", "know", "bob", card_of(bob))
    assert "newer card" in ada.ask("me", "know", "bob", old).stderr
    mailbox = new.places["dm"]
    assert ada.ask_json("me", "contacts")[0]["enclaves"]["dm"]["node"] == mailbox.node
    pin = FilePins(ada.pins).load(mailbox.enclave)
    assert pin is not None
    assert pin.sequencer.hex() == new.enclaves["dm"].sequencer


def test_a_card_of_a_user_of_a_registry_names_it(ada: Person, tmp_path: Path) -> None:
    with town(tmp_path / "town", "a") as place:
        registry = f"{place.registry.url}#{place.registry.enclave.hex()}"
        bob = with_store(tmp_path / "bob", place.nodes["a"].url, "Bob", registry)
        link = card_of(bob)
    named = parse_card(link, now_ms()).registry
    assert named is not None
    assert (named.node, named.enclave) == (place.registry.url, place.registry.enclave.hex())
    assert f"enc config set registry {registry}:{named.sequencer}" in ada.ask("me", "know", "bob", link).stderr
    profiles.store(ada.config, "default", "registry", registry)
    assert "config set registry" not in ada.ask("me", "know", "bob", link).stderr


def test_a_link_that_is_no_card_is_refused(ada: Person, bob: Person) -> None:
    link = card_of(bob)
    for wrong in (link[:-4], "enc:card:", "enc:other:x", link[:40] + "A" + link[41:], "enc:card:\x1b[31m"):
        for command in (("dm", "add"), ("me", "whois"), ("me", "know", "x")):
            assert ada.refused(*command, wrong, code=1)["code"] == "INVALID_CARD"
    assert book_of(ada) == {}


def test_a_card_does_not_lead_into_the_network_of_its_reader(ada: Person, bob: Person) -> None:
    link = card_of(bob)
    profiles.store(ada.config, "default", "node", "https://8.8.8.8")
    for command in (("me", "whois"), ("me", "know", "x")):
        refused = ada.refused(*command, link, code=1)
        assert (refused["code"], "public address" in refused["message"]) == ("INVALID_CARD", True)


def test_another_node_does_not_answer_for_the_one_in_a_card(
    ada: Person, bob: Person, tmp_path: Path, running_node: RunningNode
) -> None:
    card = parse_card(card_of(bob), now_ms())
    mailbox = card.places["dm"].enclave
    ada.ask("me", "know", "bob", card_of(bob))
    pin = FilePins(ada.pins).load(mailbox)
    assert pin is not None
    assert (pin.sequencer, pin.head) == (running_node.seq_pub, None)
    with RunningNode(tmp_path / "false") as false:
        book = ada.home / ".local/share/enc/contacts.json"
        book.write_text(book.read_text().replace(running_node.url, false.url))
        whole = json.loads(book.read_text())
        whole["own"][identity_of(ada)]["dm"]["node"] = running_node.url
        whole["own"][identity_of(ada)]["personal"]["node"] = running_node.url
        book.write_text(json.dumps(whole))
        assert ada.refused("dm", "add", "bob", code=4)["code"] == "FOREIGN_SEQUENCER"
