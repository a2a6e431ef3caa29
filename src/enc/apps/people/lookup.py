"""Resolves a user's word to a person: a key, a contact card, a name in the address book, or a
registered name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from enc.apps.people.address_book import AddressBook, Contact, Place
from enc.apps.people.contact_card import ContactCard, check_nodes, parse_card
from enc.apps.people.names import bare_link, check_name, folded, is_key, is_link
from enc.client import Client
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import IdentityNotFound, MisuseError, PeerError
from enc.core.primitives.encoding import unhex
from enc.runtime.clock import now_ms

APPS = ("personal", "dm")
MAX_PAGES = 8
"""Pages of a registry's list that one search reads."""
MAX_LISTED = 16
"""Most people that an error lists."""


class Ambiguous(MisuseError):
    """Several people have the name: the caller must give a key."""


class UnknownName(MisuseError):
    """No person with this name is known."""


class NameTaken(MisuseError):
    """The name of a card is another person's in the address book."""


class Person(Struct, frozen=True):
    """`source`: where the name comes from. Only a key and the book's names are the user's own."""

    identity: bytes
    name: str | None
    source: Literal["key", "book", "card", "registry"]
    places: Mapping[str, Place] = {}
    card: ContactCard | None = None

    @property
    def is_hint(self) -> bool:
        """Whether the name comes from the registry, where anyone can register any name.

        Show such a person with the key, and let the user confirm it.
        """
        return self.source == "registry"


def find(word: Id, book: AddressBook | None, client: Client | None = None) -> Person:
    """Find a person by key, contact card, address book, or the registry of `client`, in this order.

    Raise Ambiguous, UnknownName, or InvalidCard for a link.
    """
    if isinstance(word, bytes) or is_key(word):
        identity = as_bytes(word, "identity")
        kept = book.of(identity) if book is not None else None
        return Person(identity, kept.name if kept else None, "key", kept.places if kept else {})
    if is_link(word):
        return _of_card(word, book, client)
    named = book.get(word) if book is not None else None
    if named is not None:
        return Person(named.identity, named.name, "book", named.places)
    found = [] if client is None or not client.has_registry else _registered(word, client)
    if len(found) > 1:
        listed = ", ".join(f"{each.name} {each.identity.hex()}" for each in found[:MAX_LISTED])
        raise Ambiguous(f"{word} may be any of: {listed}; give the key")
    if not found:
        raise UnknownName(f"no person named {word} is known: give a key, or add the name to the address book")
    return found[0]


def _of_card(link: str, book: AddressBook | None, client: Client | None) -> Person:
    """Return the person of a card: under your own name for the key, if you have one."""
    card = parse_card(bare_link(link), now_ms())
    check_nodes(card, client.url if client is not None else "")
    kept = book.of(card.key) if book is not None else None
    places = card.places if kept is None else newer_places(kept, card)
    return Person(card.key, kept.name if kept else card.name, "card", places, card)


def newer_places(kept: Contact, card: ContactCard) -> dict[str, Place]:
    """Return a contact's enclaves with those of a card, unless a newer card is known."""
    return {**kept.places, **card.places} if card.at >= kept.card_at else {**card.places, **kept.places}


def store_card(book: AddressBook, card: ContactCard, name: str | None = None) -> Contact:
    """Store the person of a card under `name`, or your own name for the key, or the card's name.

    Raise NameTaken if another person has the name: a card never takes one over.
    """
    kept = book.of(card.key)
    name = name or (kept.name if kept else card.name)
    taken = book.get(name)
    if taken is not None and taken.identity != card.key:
        raise NameTaken(f"another person in your address book is named {taken.name}: give this one another name")
    places = card.places if kept is None else newer_places(kept, card)
    return book.put(Contact(name, card.key, places, card.at))


def known(word: Id | Person, book: AddressBook | None, client: Client | None = None) -> Person:
    """Find a person without asking the user: raise MisuseError, with the key, for a registry's
    hint.
    """
    found = word if isinstance(word, Person) else find(word, book, client)
    if found.is_hint:
        raise MisuseError(f"only the registry says that {found.name} is {found.identity.hex()}: give the key")
    return found


def _registered(word: str, client: Client) -> list[Person]:
    """Return people registered under exactly this name; else those whose name contains the word."""
    found = dict[bytes, Person]()
    for row in _listed(word.strip(), client):
        person = _person(row)
        if person is not None:
            found.setdefault(person.identity, person)
    exact = [each for each in found.values() if folded(each.name or "") == folded(word)]
    return exact or list(found.values())


def _listed(word: str, client: Client) -> Iterable[dict[str, Any]]:
    for app in APPS:
        after: str | None = None
        for _ in range(MAX_PAGES):
            page, after = client.listing(app=app, q=word, after=after)
            yield from page
            if after is None:
                break


def _person(row: dict[str, Any]) -> Person | None:
    """Return the person of a row of the registry's list: an unproved claim, as the name is.

    Return None if the name is not allowed in the book, for example because it looks like a key.
    """
    meta = row.get("meta")
    name = meta.get("name") if isinstance(meta, dict) else None
    try:
        holder = unhex(row.get("holder"), 32, "holder")
        return Person(holder, check_name(name), "registry") if isinstance(name, str) else None
    except (PeerError, MisuseError):
        return None


def place_of(person: Person, label: str, client: Client) -> Place | None:
    """Return where a person's enclave with this label is: from the entry, else from the
    registry.
    """
    given = person.places.get(label)
    if given is not None or not client.has_registry:
        return given
    try:
        enclave = client.lookup(person.identity).enclaves.get(label)
    except IdentityNotFound:
        return None
    return None if enclave is None else Place(enclave)
