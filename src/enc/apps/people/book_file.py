"""Contents of an address book and its file format."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import decode_json, unhex

FORMAT, VERSION = "enc-address-book", 1


def folded(name: str) -> str:
    """Return the key under which a name is stored: without case, composition and width."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name.strip()).casefold())


class Place(Struct, frozen=True):
    """An enclave and its node's URL; None if a registry knows it or it is the client's own node."""

    enclave: bytes
    node: str | None = None


class Contact(Struct, frozen=True):
    name: str
    identity: bytes
    places: Mapping[str, Place] = {}
    """By label: `personal`, `dm`."""


class NamedGroup(Struct, frozen=True):
    """A group with a local name, and where it was when it was named; a registry may know better."""

    name: str
    place: Place


class Contents(Struct, frozen=True):
    """A whole book: contacts and groups by folded name, and the owner's enclaves by identity."""

    contacts: Mapping[str, Contact] = {}
    own: Mapping[bytes, Mapping[str, Place]] = {}
    groups: Mapping[str, NamedGroup] = {}


class _WirePlace(Struct, omit_defaults=True):
    enclave: str
    node: str | None = None


class _WireContact(Struct):
    name: str
    identity: str
    enclaves: dict[str, _WirePlace] = {}


class _WireBook(Struct):
    format: str
    version: int
    contacts: list[_WireContact] = []
    own: dict[str, dict[str, _WirePlace]] = {}
    groups: dict[str, _WirePlace] = {}


_book = Decoder(_WireBook)


def parse_book(raw: bytes) -> Contents:
    """Decode a book's file; raise InvalidCommit if it is malformed."""
    wire = decode_json(raw, _book, InvalidCommit)
    if (wire.format, wire.version) != (FORMAT, VERSION):
        raise InvalidCommit(f"format: expected {FORMAT}, version {VERSION}")
    found = [Contact(each.name, unhex(each.identity, 32, "identity"), _places(each.enclaves)) for each in wire.contacts]
    own = {unhex(who, 32, "own"): _places(places) for who, places in wire.own.items()}
    groups = [NamedGroup(name, place) for name, place in _places(wire.groups).items()]
    return Contents(
        {folded(contact.name): contact for contact in found},
        own,
        {folded(group.name): group for group in groups},
    )


def _places(wire: dict[str, _WirePlace]) -> dict[str, Place]:
    return {label: Place(unhex(each.enclave, 32, "enclave"), each.node) for label, each in wire.items()}


def wire_book(book: Contents) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "contacts": [
            {"name": each.name, "identity": each.identity.hex(), "enclaves": _wire_places(each.places)}
            for each in book.contacts.values()
        ],
        "own": {who.hex(): _wire_places(places) for who, places in book.own.items()},
        "groups": _wire_places({group.name: group.place for group in book.groups.values()}),
    }


def _wire_places(places: Mapping[str, Place]) -> dict[str, Any]:
    wires = {label: {"enclave": place.enclave.hex(), "node": place.node} for label, place in places.items()}
    return {label: {k: v for k, v in wire.items() if v is not None} for label, wire in wires.items()}
