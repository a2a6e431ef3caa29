"""Contact cards: what a link must be, and what it may do to an address book."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from enc.apps import AddressBook
from enc.apps.people import (
    CardEnclave,
    CardRegistry,
    Contact,
    InvalidCard,
    Place,
    find,
    known,
    parse_card,
    sign_card,
    store_card,
)
from enc.apps.people.contact_card import MAX_AHEAD_MS, MAX_LINK, PREFIX, check_nodes, pin_card
from enc.client import Identity
from enc.client.verify.pins import MemoryPins, Pin
from enc.core.errors import MisuseError
from enc.core.primitives.hashing import content_hash, enclave_id, sha256
from enc.core.trees.tree_head import sign_head
from tests.core.world import NO_POINT, person

ADA, EVE = Identity(person("alice")), Identity(person("bob"))
NODE = person("node").public
NOW = 1_800_000_000_000


def enclave_of(owner: Identity, word: str = "dm", node: str = "https://node.example") -> CardEnclave:
    digest = content_hash(word)
    id_ = enclave_id(2, owner.public, digest, ())
    return CardEnclave(enclave=id_.hex(), manifest=digest.hex(), node=node, sequencer=NODE.hex())


def link_of(name: str = "Ada", at: int = NOW, node: str = "https://node.example", who: Identity = ADA) -> str:
    return sign_card(who, name, at, {"dm": enclave_of(who, node=node)})


def payload(**changes: Any) -> dict[str, Any]:
    """Return a whole payload, with these fields changed; None removes one."""
    registry = {"enclave": "07" * 32, "node": "https://registry.example", "sequencer": NODE.hex()}
    mailbox = {name: getattr(enclave_of(ADA), name) for name in CardEnclave.__struct_fields__}
    whole = {"card": 1, "key": ADA.hex, "name": "Ada", "at": NOW, "mailbox": mailbox, "registry": registry, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def text_of(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def signed(text: bytes, by: Identity = ADA) -> str:
    raw = by.sign("schnorr", sha256(b"enc:card:" + text)) + text
    return "enc:card:" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def test_a_card_says_what_its_signer_wrote() -> None:
    registry = CardRegistry(enclave="07" * 32, node="https://registry.example", sequencer=NODE.hex())
    enclaves = {"dm": enclave_of(ADA), "personal": enclave_of(ADA, "personal")}
    card = parse_card(sign_card(ADA, "Ada Lovelace", NOW, enclaves, registry), NOW)
    assert (card.key, card.name, card.at) == (ADA.public, "Ada Lovelace", NOW)
    assert (card.enclaves, card.registry) == (enclaves, registry)
    assert card.places["dm"] == Place(bytes.fromhex(enclaves["dm"].enclave), "https://node.example")
    assert str(card.registry) == f"https://registry.example#{'07' * 32}:{NODE.hex()}"
    assert parse_card(signed(text_of(payload())), NOW).registry is not None


def test_a_card_of_somebody_without_enclaves_has_only_key_and_name() -> None:
    assert parse_card(sign_card(ADA, "Ada", NOW, {}), NOW).enclaves == {}


def test_a_card_by_another_key_is_rejected() -> None:
    with pytest.raises(InvalidCard, match="signature"):
        parse_card(signed(text_of(payload()), by=EVE), NOW)


def test_every_altered_byte_is_noticed() -> None:
    link = link_of()
    for i in range(len(PREFIX), len(link)):
        altered = link[:i] + ("A" if link[i] != "A" else "B") + link[i + 1 :]
        with pytest.raises(InvalidCard):
            parse_card(altered, NOW)


@pytest.mark.parametrize(
    "bend",
    [
        lambda link: link[:-8],
        lambda link: link + "=",
        lambda link: link + "AAAA",
        lambda link: link[:60] + "\n" + link[60:],
        lambda link: link.replace("enc:card:", "enc:poke:"),
        lambda link: PREFIX,
        lambda link: PREFIX + "é",
    ],
)
def test_a_link_of_another_form_is_rejected(bend: Callable[[str], str]) -> None:
    with pytest.raises(InvalidCard):
        parse_card(bend(link_of()), NOW)


def test_a_long_link_is_not_even_decoded() -> None:
    with pytest.raises(InvalidCard, match="characters; at most"):
        parse_card(PREFIX + "A" * MAX_LINK, NOW)


def test_a_link_has_one_spelling() -> None:
    link = next(link for n in range(8) if len(link := link_of("A" * (n + 1))) % 4 in (2, 3))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    stray = link[:-1] + alphabet[alphabet.index(link[-1]) ^ 1]
    with pytest.raises(InvalidCard, match="base64url"):
        parse_card(stray, NOW)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        text_of(payload()).replace(b'"card":1', b'"card": 1'),
        text_of(payload()).replace(b'"card":1', b'"card":1.0'),
        text_of(payload()).replace(b'"card":1', b'"card":2,"card":1'),
        text_of(payload()).replace(b'"name":"Ada"', b'"name":"\\u0041da"'),
        json.dumps(payload(), separators=(",", ":")).encode(),
        text_of(payload(card=2)),
        text_of(payload(more=1)),
        text_of(payload(key=None)),
        text_of(payload(name=None)),
        text_of(payload(at=None)),
        text_of(payload(at=-1)),
        text_of(payload(at="1")),
        text_of(payload(mailbox={**payload()["mailbox"], "more": 1})),
    ],
)
def test_a_payload_of_another_form_is_rejected(text: bytes) -> None:
    with pytest.raises(InvalidCard):
        parse_card(signed(text), NOW)


@pytest.mark.parametrize(
    "name", ["", " Ada", "x" * 65, "A\nda", "A\x1b[31mda", "a\u202eda", "-y", "ab" * 32, "enc:card:x", "\ud800"]
)
def test_a_name_that_could_mislead_is_rejected(name: str) -> None:
    with pytest.raises(InvalidCard):
        parse_card(signed(text_of(payload(name=name))), NOW)


@pytest.mark.parametrize(
    "node",
    [
        "file:///etc/passwd",
        "ftp://node.example",
        "https://",
        "https://user:secret@node.example",
        "https://node.example/?q=1",
        "https://node.example/#x",
        "https://node.example/",
        "https://node.example/\x1b[2J",
        "https://0x7f000001",
        "https://nöde.example",
        "https://node.example/" + "x" * 2048,
    ],
)
@pytest.mark.parametrize("field", ["mailbox", "registry"])
def test_a_url_of_another_form_is_rejected(field: str, node: str) -> None:
    with pytest.raises(InvalidCard):
        parse_card(signed(text_of(payload(**{field: {**payload()[field], "node": node}}))), NOW)


@pytest.mark.parametrize("field", ["enclave", "sequencer"])
@pytest.mark.parametrize("value", ["07", "AB" * 32, "zz" * 32, NO_POINT])
def test_an_id_of_another_form_is_rejected(field: str, value: str) -> None:
    with pytest.raises(InvalidCard):
        parse_card(signed(text_of(payload(mailbox={**payload()["mailbox"], field: value}))), NOW)


@pytest.mark.parametrize("value", ["07", "AB" * 32])
def test_an_id_of_a_registry_has_the_form_of_ids(value: str) -> None:
    with pytest.raises(InvalidCard, match=r"registry\.enclave"):
        parse_card(signed(text_of(payload(registry={**payload()["registry"], "enclave": value}))), NOW)


def test_a_card_for_another_s_enclave_is_rejected() -> None:
    hers = {name: getattr(enclave_of(ADA), name) for name in CardEnclave.__struct_fields__}
    with pytest.raises(InvalidCard, match="did not create"):
        parse_card(signed(text_of(payload(key=EVE.hex, mailbox=hers)), by=EVE), NOW)


def test_a_card_of_the_future_is_rejected() -> None:
    assert parse_card(link_of(at=NOW + MAX_AHEAD_MS), NOW)
    with pytest.raises(InvalidCard, match="future"):
        parse_card(link_of(at=NOW + MAX_AHEAD_MS + 1), NOW)
    with pytest.raises(InvalidCard, match="card"):
        parse_card(link_of(at=NOW), 0)


def test_one_signs_only_what_others_accept() -> None:
    with pytest.raises(MisuseError, match="printable"):
        sign_card(ADA, "A\nda", NOW, {})
    with pytest.raises(MisuseError, match="did not create"):
        sign_card(ADA, "Ada", NOW, {"dm": enclave_of(EVE)})


@pytest.mark.parametrize(
    "node", ["http://node.example", "https://127.0.0.1:7700", "https://10.0.0.1", "https://[::1]", "https://localhost"]
)
def test_a_card_does_not_lead_into_a_private_network(node: str) -> None:
    card = parse_card(link_of(node=node), NOW)
    for own in ("https://8.8.8.8", ""):
        with pytest.raises(InvalidCard, match="public address"):
            check_nodes(card, own)
    check_nodes(card, "http://127.0.0.1:7700")
    check_nodes(parse_card(link_of(node="https://8.8.8.8"), NOW), "https://8.8.8.8")


# The address book


@pytest.fixture
def book(tmp_path: Path) -> AddressBook:
    return AddressBook(tmp_path / "contacts.json")


def test_a_card_names_a_person_and_their_enclaves(book: AddressBook) -> None:
    link = sign_card(ADA, "Ada", 1, {"dm": enclave_of(ADA, node="https://8.8.8.8")})
    found = find(link, book)
    assert (found.identity, found.name, found.source, found.is_hint) == (ADA.public, "Ada", "card", False)
    assert book.contacts() == [], "looking does not store"
    assert known(link, book).places == found.places == parse_card(link, 1).places
    kept = store_card(book, parse_card(link, 1))
    assert kept == book.get("ada") == Contact("Ada", ADA.public, found.places, 1)


def test_your_name_for_a_key_stays(book: AddressBook) -> None:
    book.put(Contact("mother", ADA.public))
    card = parse_card(link_of("Ada"), NOW)
    assert store_card(book, card).name == "mother"
    assert [each.name for each in book.contacts()] == ["mother"]
    assert book.contacts()[0].places == card.places
    assert find(link_of("Ada", at=1, node="https://8.8.8.8"), book).name == "mother"


def test_a_card_never_takes_over_a_name(book: AddressBook) -> None:
    book.put(Contact("Ada", ADA.public))
    card = parse_card(link_of("ADA", who=EVE), NOW)
    with pytest.raises(MisuseError, match="another name"):
        store_card(book, card)
    assert [each.identity for each in book.contacts()] == [ADA.public]
    assert store_card(book, card, "other Ada").identity == EVE.public
    with pytest.raises(MisuseError, match="another name"):
        store_card(book, card, "ada")


def test_an_older_card_does_not_replace_the_addresses_of_a_newer_one(book: AddressBook) -> None:
    old, new = parse_card(link_of(at=1, node="https://old.example"), NOW), parse_card(link_of(at=2), NOW)
    store_card(book, old)
    assert store_card(book, new).places["dm"].node == "https://node.example"
    assert store_card(book, old).places["dm"].node == "https://node.example"
    assert book.contacts()[0].card_at == 2
    book.put(Contact("Ada", ADA.public, {"dm": old.places["dm"]}))
    assert book.contacts()[0].card_at == 2, "other changes do not make the card older"


def test_the_key_of_the_node_is_pinned_for_the_first_contact() -> None:
    pins, card = MemoryPins(), parse_card(link_of(), NOW)
    mailbox = card.places["dm"].enclave
    pin_card(card, pins)
    assert pins.load(mailbox) == Pin(NODE, None)
    other = MemoryPins()
    other.store(mailbox, Pin(EVE.public, None))
    pin_card(card, other)
    assert other.load(mailbox) == Pin(NODE, None), "nothing was seen of that node"
    seen, head = MemoryPins(), sign_head(person("bob"), mailbox, NOW, 1, bytes(32))
    seen.store(mailbox, Pin(EVE.public, head))
    pin_card(card, seen)
    assert seen.load(mailbox) == Pin(EVE.public, head), "what was seen counts for more than a card"


def test_whatever_is_signed_is_a_card_or_is_refused() -> None:
    random, whole = Random(11), text_of(payload())
    odd = ["", "\x00", "A" * 3000, "http://[", "https://xn--0.example", "https://a..b", "http://1.2.3.4:99999", "1e9"]
    accepted = 0
    for _ in range(600):
        value = json.loads(whole)
        place = random.choice([value, value["mailbox"], value["registry"]])
        place[random.choice(list(place))] = random.choice([*odd, None, 1, -1, 2**60, 1.5, True, [], {}, [[]] * 9])
        text = text_of(value)
        if random.random() < 0.5:
            cut = random.randrange(len(text))
            text = text[:cut] + bytes([random.randrange(256)]) + text[cut + random.randrange(3) :]
        try:
            accepted += parse_card(signed(text), NOW).key == ADA.public
        except InvalidCard:
            continue
    assert accepted, "some names are still valid"
