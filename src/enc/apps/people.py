"""Whom a word means: a key, a name in the address book, or a name that a registry has heard of."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from enc.apps.address_book import AddressBook, Place, check_name, folded, is_key
from enc.client import Client
from enc.client.writes import Id, as_bytes
from enc.core.encoding import unhex
from enc.core.errors import IdentityNotFound, MisuseError, PeerError

APPS = ("personal", "dm")
MAX_PAGES = 8
"""Pages of a registry's list that one search goes through."""
MAX_TOLD = 16
"""People that an error lists."""


class Ambiguous(MisuseError):
    """Several people have the name: say which key is meant."""


class UnknownName(MisuseError):
    """Nobody is known by the name."""


class Person(Struct, frozen=True):
    """`source` says whose word the name is: only a key and the book's names are the user's own."""

    identity: bytes
    name: str | None
    source: Literal["key", "book", "registry"]
    places: Mapping[str, Place] = {}

    @property
    def is_hint(self) -> bool:
        """Found by a name that anybody can register: to be shown with its key, and confirmed by the user."""
        return self.source == "registry"


def find(word: Id, book: AddressBook | None, client: Client | None = None) -> Person:
    """A key as it is; else by the address book; else by the registry of `client`. Ambiguous or UnknownName."""
    if isinstance(word, bytes) or is_key(word):
        identity = as_bytes(word, "identity")
        kept = book.of(identity) if book is not None else None
        return Person(identity, kept.name if kept else None, "key", kept.places if kept else {})
    named = book.get(word) if book is not None else None
    if named is not None:
        return Person(named.identity, named.name, "book", named.places)
    found = [] if client is None or not client.has_registry else _registered(word, client)
    if len(found) > 1:
        told = ", ".join(f"{each.name} {each.identity.hex()}" for each in found[:MAX_TOLD])
        raise Ambiguous(f"{word} may be any of: {told}; give the key")
    if not found:
        raise UnknownName(f"nobody is known as {word}: give a key, or put the name into the address book")
    return found[0]


def known(word: Id | Person, book: AddressBook | None, client: Client | None = None) -> Person:
    """The same where nobody can be asked: a registry's hint alone is a MisuseError, which says the key."""
    found = word if isinstance(word, Person) else find(word, book, client)
    if found.is_hint:
        raise MisuseError(f"{found.name} is {found.identity.hex()} by the registry's word alone: give the key")
    return found


def _registered(word: str, client: Client) -> list[Person]:
    """Those who call themselves so: exactly, if there are any; else with the word in the name."""
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
    """A row of the list says who; that is the registry's word alone, as the name is its holder's.

    What is no name for the book, such as one that looks like a key, is nobody's.
    """
    meta = row.get("meta")
    name = meta.get("name") if isinstance(meta, dict) else None
    try:
        holder = unhex(row.get("holder"), 32, "holder")
        return Person(holder, check_name(name), "registry") if isinstance(name, str) else None
    except (PeerError, MisuseError):
        return None


def place_of(person: Person, label: str, client: Client) -> Place | None:
    """Where somebody's enclave of this label is: as it was given, or as they say in the registry."""
    given = person.places.get(label)
    if given is not None or not client.has_registry:
        return given
    try:
        enclave = client.lookup(person.identity).enclaves.get(label)
    except IdentityNotFound:
        return None
    return None if enclave is None else Place(enclave)
