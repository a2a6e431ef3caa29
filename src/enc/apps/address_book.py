"""The address book: whom one knows by which name, and where their enclaves are. A file for its owner's eyes only.

What stands in it was put there by its owner: a name that a registry shows is a hint, and becomes an entry only when
somebody has looked at the key. It also keeps where one's own enclaves are, for who has no registry to ask, and what one
calls the groups that one is in.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from enc.apps.book_file import Contact, Contents, NamedGroup, Place, folded, parse_book, wire_book
from enc.client.pins import default_directory
from enc.client.transport import base_url
from enc.client.writes import Id, as_bytes
from enc.core.encoding import compact_json
from enc.core.errors import MisuseError, PeerError
from enc.core.signing import check_public_key
from enc.runtime import private_file
from enc.runtime.locks import FileLock

__all__ = ["AddressBook", "Contact", "NamedGroup", "Place", "check_name", "folded", "is_key"]

MAX_SIZE = 4 << 20
MAX_CONTACTS = 10_000
MAX_GROUPS = 1_000
MAX_NAME = 64
MAX_PLACES = 16
"""Enclaves that are kept of one person."""


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
        return sorted(self._read().contacts.values(), key=lambda contact: folded(contact.name))

    def get(self, name: str) -> Contact | None:
        """Who has this name, however it is spelled."""
        return self._read().contacts.get(folded(name))

    def of(self, identity: Id) -> Contact | None:
        """Under which name somebody is known; the first, where there are several."""
        who = as_bytes(identity, "identity")
        return next((each for each in self.contacts() if each.identity == who), None)

    def names(self) -> dict[bytes, str]:
        """Everybody's name by their key, as `of` has it: read once, for who shows many people."""
        return {each.identity: each.name for each in reversed(self.contacts())}

    def node_of(self, enclave: Id) -> str | None:
        """Where an enclave of somebody known is."""
        id_, book = as_bytes(enclave, "enclave"), self._read()
        people = [*(contact.places for contact in book.contacts.values()), *book.own.values()]
        known = [*(place for places in people for place in places.values()), *(g.place for g in book.groups.values())]
        return next((place.node for place in known if place.enclave == id_ and place.node), None)

    def own(self, identity: Id, label: str) -> Place | None:
        """Where one's own enclave is."""
        return self._read().own.get(as_bytes(identity, "identity"), {}).get(label)

    def groups(self) -> list[NamedGroup]:
        """All that have a name, by it."""
        return sorted(self._read().groups.values(), key=lambda group: folded(group.name))

    def group(self, word: str) -> Place:
        """By its name, whatever its case, or by its id; MisuseError where no group has that name."""
        known = self._read().groups
        if is_key(word):
            id_ = bytes.fromhex(word)
            return next((each.place for each in known.values() if each.place.enclave == id_), Place(id_))
        found = known.get(folded(word))
        if found is None:
            raise MisuseError(f"no group is named {word} in your address book")
        return found.place

    def check_free(self, name: str) -> None:
        """Before a group is founded that is to have this name: MisuseError where another has it."""
        if folded(check_name(name)) in self._read().groups:
            raise MisuseError(f"a group is named {name} in your address book already")

    # Changing

    def put(self, contact: Contact, *, again: bool = False) -> Contact:
        """Keep a contact, with the places that were known of it before. A name that is another person's is only taken
        from it if `again` says so: MisuseError."""
        name = check_name(contact.name)
        _check_identity(contact.identity)

        def change(book: Contents) -> Contents:
            before = book.contacts.get(folded(name))
            if before is not None and before.identity != contact.identity and not again:
                raise MisuseError(f"{before.name} is {before.identity.hex()} in your address book")
            kept = before.places if before is not None and before.identity == contact.identity else {}
            kept_now = replace(contact, name=name, places=_placed({**kept, **contact.places}))
            contacts = {**book.contacts, folded(name): kept_now}
            if len(contacts) > MAX_CONTACTS:
                raise MisuseError(f"{self.path}: holds {MAX_CONTACTS} contacts, and no more")
            return replace(book, contacts=contacts)

        return self._change(change).contacts[folded(name)]

    def remove(self, name: str) -> None:
        gone = folded(name)

        def change(book: Contents) -> Contents:
            if gone not in book.contacts:
                raise MisuseError(f"nobody is named {name} in {self.path}")
            return replace(book, contacts={key: each for key, each in book.contacts.items() if key != gone})

        self._change(change)

    def set_own(self, identity: Id, label: str, place: Place) -> None:
        who = as_bytes(identity, "identity")

        def change(book: Contents) -> Contents:
            return replace(book, own={**book.own, who: _placed({**book.own.get(who, {}), label: place})})

        self._change(change)

    def put_group(self, name: str, place: Place) -> None:
        """From now on the group has this name, and no other has it: MisuseError."""
        name = check_name(name)

        def change(book: Contents) -> Contents:
            before = book.groups.get(folded(name))
            if before is not None and before.place.enclave != place.enclave:
                raise MisuseError(f"{before.name} is the group {before.place.enclave.hex()} in your address book")
            groups = {**book.groups, folded(name): NamedGroup(name, _place(place))}
            if len(groups) > MAX_GROUPS:
                raise MisuseError(f"{self.path}: holds {MAX_GROUPS} groups, and no more")
            return replace(book, groups=groups)

        self._change(change)

    def remove_group(self, name: str) -> None:
        gone = folded(name)

        def change(book: Contents) -> Contents:
            if gone not in book.groups:
                raise MisuseError(f"no group is named {name} in {self.path}")
            return replace(book, groups={key: each for key, each in book.groups.items() if key != gone})

        self._change(change)

    # The file

    def _read(self) -> Contents:
        raw = private_file.read(self.path, MAX_SIZE)
        if raw is None:
            return Contents()
        try:
            return parse_book(raw)
        except PeerError as e:
            private_file.refuse(self.path, f"is no address book: {e.message}; mend it, or put it aside")

    def _change(self, change: Callable[[Contents], Contents]) -> Contents:
        with self._locked():
            book = change(self._read())
            raw = compact_json(wire_book(book)).encode()
            if len(raw) > MAX_SIZE:
                raise MisuseError(f"{self.path}: would hold more than {MAX_SIZE} bytes")
            private_file.write(self.path, raw, overwrite=True)
        return book

    def _locked(self) -> FileLock:
        """Wait until no other process changes the book: what was read is still so when it is written."""
        try:
            private_file.make_directory(self.path.parent)
            return FileLock(self.path.with_name(f".{self.path.name}.lock"), wait=True)
        except OSError as e:
            private_file.refuse(self.path, f"cannot be kept there: {private_file.reason(e)}")


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
