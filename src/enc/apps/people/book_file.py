"""Contents of an address book and its file format."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.apps.people.names import folded
from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import decode_json, unhex

FORMAT, VERSION = "enc-address-book", 1


class Place(Struct, frozen=True):
    """An enclave and its node's URL; None if a registry knows it or it is the client's own node."""

    enclave: bytes
    node: str | None = None


class Contact(Struct, frozen=True):
    name: str
    identity: bytes
    places: Mapping[str, Place] = {}
    """By label: `personal`, `dm`."""
    card_at: int = 0
    """When the newest contact card that was stored for them was signed, in Unix milliseconds."""


class NamedGroup(Struct, frozen=True):
    """A group with a local name, and where it was when it was named; a registry may know better."""

    name: str
    place: Place


class Contents(Struct, frozen=True):
    """A whole book: contacts and groups by folded name, the owner's enclaves by identity, and the
    nodes to which `enc follow` followed enclaves.
    """

    contacts: Mapping[str, Contact] = {}
    own: Mapping[bytes, Mapping[str, Place]] = {}
    groups: Mapping[str, NamedGroup] = {}
    follows: Mapping[bytes, str] = {}


class WirePlace(Struct, omit_defaults=True):
    enclave: str
    node: str | None = None


class WireContact(Struct):
    name: str
    identity: str
    enclaves: dict[str, WirePlace] = {}
    card_at: int = 0


class _WireBook(Struct):
    format: str
    version: int
    contacts: list[WireContact] = []
    own: dict[str, dict[str, WirePlace]] = {}
    groups: dict[str, WirePlace] = {}
    follows: dict[str, str] = {}


_book = Decoder(_WireBook)


def parse_book(raw: bytes) -> Contents:
    """Decode a book's file; raise InvalidCommit if it is malformed."""
    wire = decode_json(raw, _book, InvalidCommit)
    if (wire.format, wire.version) != (FORMAT, VERSION):
        raise InvalidCommit(f"format: expected {FORMAT}, version {VERSION}")
    found = map(parse_contact, wire.contacts)
    groups = [NamedGroup(name, parse_place(place)) for name, place in wire.groups.items()]
    return Contents(
        {folded(contact.name): contact for contact in found},
        {unhex(who, 32, "own"): _places(places) for who, places in wire.own.items()},
        {folded(group.name): group for group in groups},
        {unhex(enclave, 32, "follows"): node for enclave, node in wire.follows.items()},
    )


def parse_contact(wire: WireContact) -> Contact:
    return Contact(wire.name, unhex(wire.identity, 32, "identity"), _places(wire.enclaves), wire.card_at)


def _places(wire: dict[str, WirePlace]) -> dict[str, Place]:
    return {label: parse_place(each) for label, each in wire.items()}


def parse_place(wire: WirePlace) -> Place:
    return Place(unhex(wire.enclave, 32, "enclave"), wire.node)


def wire_book(book: Contents) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "contacts": [wire_contact(each) for each in book.contacts.values()],
        "own": {who.hex(): _wire_places(places) for who, places in book.own.items()},
        "groups": {group.name: wire_place(group.place) for group in book.groups.values()},
        **({"follows": {enclave.hex(): node for enclave, node in book.follows.items()}} if book.follows else {}),
    }


def wire_contact(contact: Contact) -> dict[str, Any]:
    wire = {
        "name": contact.name,
        "identity": contact.identity.hex(),
        "enclaves": _wire_places(contact.places),
    }
    return {**wire, "card_at": contact.card_at} if contact.card_at else wire


def _wire_places(places: Mapping[str, Place]) -> dict[str, Any]:
    return {label: wire_place(place) for label, place in places.items()}


def wire_place(place: Place) -> dict[str, Any]:
    wire = {"enclave": place.enclave.hex(), "node": place.node}
    return {k: v for k, v in wire.items() if v is not None}
