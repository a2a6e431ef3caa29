"""The address book: whom one knows by which name, and where their enclaves are. A file for its owner's eyes only.

What stands in it was put there by its owner: a name that a registry shows is a hint, and becomes an entry only when
somebody has looked at the key. It also keeps where one's own enclaves are, for who has no registry to ask.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from enc.client import private_file
from enc.client.pins import default_directory
from enc.client.transport import base_url
from enc.client.writes import Id, as_bytes
from enc.core.encoding import compact_json, decode_json, unhex
from enc.core.errors import InvalidCommit, MisuseError, PeerError
from enc.core.signing import check_public_key

FORMAT, VERSION = "enc-address-book", 1
MAX_SIZE = 4 << 20
MAX_CONTACTS = 10_000
MAX_NAME = 64
MAX_PLACES = 16
"""Enclaves that are kept of one person."""


class Place(Struct, frozen=True):
    """An enclave, and the URL of its node; None where a registry says so, or where it is one's own node."""

    enclave: bytes
    node: str | None = None


class Contact(Struct, frozen=True):
    name: str
    identity: bytes
    places: Mapping[str, Place] = {}
    """By label: `personal`, `dm`."""


class Contents(Struct, frozen=True):
    """All of a book: contacts by their folded names, and one's own enclaves by identity."""

    contacts: Mapping[str, Contact] = {}
    own: Mapping[bytes, Mapping[str, Place]] = {}


def check_name(name: str) -> str:
    """The name as it is kept; MisuseError for what would be mistaken for something else."""
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise MisuseError(f"a name is 1 to {MAX_NAME} printable characters")
    if is_key(name) or name.startswith("-"):
        raise MisuseError("a name may not look like a key or a flag")
    return name


def is_key(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdefABCDEF" for c in text)


class AddressBook:
    """`path`: its file; else `contacts.json` beside the pins. Nothing is read before it is asked for."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path) if path is not None else default_directory().parent / "contacts.json"

    # Asking

    def contacts(self) -> list[Contact]:
        """Everybody, by name."""
        return sorted(self._read().contacts.values(), key=lambda contact: contact.name.casefold())

    def get(self, name: str) -> Contact | None:
        """Who has this name, whatever its case."""
        return self._read().contacts.get(name.strip().casefold())

    def of(self, identity: Id) -> Contact | None:
        """Under which name somebody is known; the first, where there are several."""
        who = as_bytes(identity, "identity")
        return next((each for each in self.contacts() if each.identity == who), None)

    def node_of(self, enclave: Id) -> str | None:
        """Where an enclave of somebody known is."""
        id_, book = as_bytes(enclave, "enclave"), self._read()
        known = [contact.places for contact in book.contacts.values()] + list(book.own.values())
        return next((p.node for places in known for p in places.values() if p.enclave == id_ and p.node), None)

    def own(self, identity: Id, label: str) -> Place | None:
        """Where one's own enclave is."""
        return self._read().own.get(as_bytes(identity, "identity"), {}).get(label)

    # Changing

    def put(self, contact: Contact, *, again: bool = False) -> Contact:
        """Keep a contact, with the places that were known of it before. A name that is another person's is only taken
        from it if `again` says so: MisuseError."""
        name = check_name(contact.name)
        _check_identity(contact.identity)

        def change(book: Contents) -> Contents:
            before = book.contacts.get(name.casefold())
            if before is not None and before.identity != contact.identity and not again:
                raise MisuseError(f"{before.name} is {before.identity.hex()} in your address book")
            kept = before.places if before is not None and before.identity == contact.identity else {}
            kept_now = replace(contact, name=name, places=_placed({**kept, **contact.places}))
            contacts = {**book.contacts, name.casefold(): kept_now}
            if len(contacts) > MAX_CONTACTS:
                raise MisuseError(f"{self.path}: holds {MAX_CONTACTS} contacts, and no more")
            return replace(book, contacts=contacts)

        return self._change(change).contacts[name.casefold()]

    def remove(self, name: str) -> None:
        folded = name.strip().casefold()

        def change(book: Contents) -> Contents:
            if folded not in book.contacts:
                raise MisuseError(f"nobody is named {name} in {self.path}")
            return replace(book, contacts={key: each for key, each in book.contacts.items() if key != folded})

        self._change(change)

    def set_own(self, identity: Id, label: str, place: Place) -> None:
        who = as_bytes(identity, "identity")

        def change(book: Contents) -> Contents:
            return replace(book, own={**book.own, who: _placed({**book.own.get(who, {}), label: place})})

        self._change(change)

    # The file

    def _read(self) -> Contents:
        raw = private_file.read(self.path, MAX_SIZE)
        if raw is None:
            return Contents()
        try:
            return _parse(raw)
        except PeerError as e:
            private_file.refuse(self.path, f"is no address book: {e.message}; mend it, or put it aside")

    def _change(self, change: Callable[[Contents], Contents]) -> Contents:
        with self._locked():
            book = change(self._read())
            raw = compact_json(_wire(book)).encode()
            if len(raw) > MAX_SIZE:
                raise MisuseError(f"{self.path}: would hold more than {MAX_SIZE} bytes")
            private_file.write(self.path, raw, overwrite=True)
        return book

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time, of all processes: what was read is still so when it is written."""
        try:
            private_file.make_directory(self.path.parent)
            fd = os.open(self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            private_file.refuse(self.path, f"cannot be kept there: {private_file.reason(e)}")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


# The form of the file


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


_book = Decoder(_WireBook)


def _parse(raw: bytes) -> Contents:
    wire = decode_json(raw, _book, InvalidCommit)
    if (wire.format, wire.version) != (FORMAT, VERSION):
        raise InvalidCommit(f"format: expected {FORMAT}, version {VERSION}")
    found = [Contact(each.name, unhex(each.identity, 32, "identity"), _places(each.enclaves)) for each in wire.contacts]
    own = {unhex(who, 32, "own"): _places(places) for who, places in wire.own.items()}
    return Contents({contact.name.casefold(): contact for contact in found}, own)


def _places(wire: dict[str, _WirePlace]) -> dict[str, Place]:
    return {label: Place(unhex(each.enclave, 32, "enclave"), each.node) for label, each in wire.items()}


def _wire(book: Contents) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "contacts": [
            {"name": each.name, "identity": each.identity.hex(), "enclaves": _wire_places(each.places)}
            for each in book.contacts.values()
        ],
        "own": {who.hex(): _wire_places(places) for who, places in book.own.items()},
    }


def _wire_places(places: Mapping[str, Place]) -> dict[str, Any]:
    wires = {label: {"enclave": place.enclave.hex(), "node": place.node} for label, place in places.items()}
    return {label: {k: v for k, v in wire.items() if v is not None} for label, wire in wires.items()}


def _placed(places: Mapping[str, Place]) -> dict[str, Place]:
    """Places as they are kept: ids of the right length, URLs that can be called, and no more than so many."""
    if len(places) > MAX_PLACES:
        raise MisuseError(f"of one person {MAX_PLACES} enclaves are kept, and no more")
    return {label: _place(place) for label, place in places.items()}


def _place(place: Place) -> Place:
    return Place(as_bytes(place.enclave, "enclave"), None if place.node is None else base_url(place.node))


def _check_identity(identity: bytes) -> None:
    try:
        check_public_key(as_bytes(identity, "identity"), "identity")
    except PeerError as e:
        raise MisuseError(e.message) from None
