"""The address book: names of people and groups, and where their enclaves are. A private file.

Only its owner adds entries. A name from a registry is a hint; it becomes an entry only after the
user has checked the key. The book also records where the owner's own enclaves are, for users
without a registry, and the owner's names for groups.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from enc.apps.people.book_file import Contact, Contents, NamedGroup, Place, folded, parse_book, wire_book
from enc.client.enclave.writes import Id, as_bytes
from enc.client.verify.pins import default_directory
from enc.client.wire.transport import base_url
from enc.core.errors import MisuseError, PeerError
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import check_public_key
from enc.runtime import private_file
from enc.runtime.locks import FileLock

__all__ = ["AddressBook", "Contact", "NamedGroup", "Place", "check_name", "folded", "is_key"]

MAX_SIZE = 4 << 20
MAX_CONTACTS = 10_000
MAX_GROUPS = 1_000
MAX_NAME = 64
MAX_PLACES = 16
"""Most enclaves stored for one person."""


def check_name(name: str) -> str:
    """Return the name as it is stored; raise MisuseError if it could be mistaken for a key or
    flag.
    """
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise MisuseError(f"name: expected 1 to {MAX_NAME} printable characters")
    if is_key(name) or name.startswith("-"):
        raise MisuseError("name: must not look like a key or a flag")
    return name


def is_key(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdefABCDEF" for c in text)


class AddressBook:
    """`path`: its file, by default `contacts.json` beside the pins. The file is read on each
    call.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path) if path is not None else default_directory().parent / "contacts.json"

    # Reading

    def contacts(self) -> list[Contact]:
        """Return all contacts, sorted by name."""
        return sorted(self._read().contacts.values(), key=lambda contact: folded(contact.name))

    def get(self, name: str) -> Contact | None:
        """Return the contact with this name, ignoring case and Unicode form; None if there is
        none.
        """
        return self._read().contacts.get(folded(name))

    def of(self, identity: Id) -> Contact | None:
        """Return the contact with this key; the first by name if it has several names."""
        who = as_bytes(identity, "identity")
        return next((each for each in self.contacts() if each.identity == who), None)

    def names(self) -> dict[bytes, str]:
        """Return all names by key, as `of` chooses them: one read, for callers that show many
        people.
        """
        return {each.identity: each.name for each in reversed(self.contacts())}

    def node_of(self, enclave: Id) -> str | None:
        """Return the URL of the node of a known enclave; None if no entry has it."""
        id_, book = as_bytes(enclave, "enclave"), self._read()
        people = [*(contact.places for contact in book.contacts.values()), *book.own.values()]
        known = [*(place for places in people for place in places.values()), *(g.place for g in book.groups.values())]
        return next((place.node for place in known if place.enclave == id_ and place.node), None)

    def own(self, identity: Id, label: str) -> Place | None:
        """Return where the identity's own enclave with this label is."""
        return self._read().own.get(as_bytes(identity, "identity"), {}).get(label)

    def groups(self) -> list[NamedGroup]:
        """Return all named groups, sorted by name."""
        return sorted(self._read().groups.values(), key=lambda group: folded(group.name))

    def group(self, word: str) -> Place:
        """Return where a group is, by its name in any case or by its id.

        Raise MisuseError if no group has that name.
        """
        known = self._read().groups
        if is_key(word):
            id_ = bytes.fromhex(word)
            return next((each.place for each in known.values() if each.place.enclave == id_), Place(id_))
        found = known.get(folded(word))
        if found is None:
            raise MisuseError(f"no group in your address book is named {word}")
        return found.place

    def check_free(self, name: str) -> None:
        """Raise MisuseError if a group already has this name. Call it before creating a group."""
        if folded(check_name(name)) in self._read().groups:
            raise MisuseError(f"a group in your address book is already named {name}")

    # Changing

    def put(self, contact: Contact, *, again: bool = False) -> Contact:
        """Store a contact and return it with the places that were known before.

        Raise MisuseError if the name belongs to another key, unless `again` is set.
        """
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
                raise MisuseError(f"{self.path}: full: it holds at most {MAX_CONTACTS} contacts")
            return replace(book, contacts=contacts)

        return self._change(change).contacts[folded(name)]

    def remove(self, name: str) -> None:
        gone = folded(name)

        def change(book: Contents) -> Contents:
            if gone not in book.contacts:
                raise MisuseError(f"no contact in {self.path} is named {name}")
            return replace(book, contacts={key: each for key, each in book.contacts.items() if key != gone})

        self._change(change)

    def set_own(self, identity: Id, label: str, place: Place) -> None:
        who = as_bytes(identity, "identity")

        def change(book: Contents) -> Contents:
            return replace(book, own={**book.own, who: _placed({**book.own.get(who, {}), label: place})})

        self._change(change)

    def put_group(self, name: str, place: Place) -> None:
        """Name a group. Raise MisuseError if another group has this name."""
        name = check_name(name)

        def change(book: Contents) -> Contents:
            before = book.groups.get(folded(name))
            if before is not None and before.place.enclave != place.enclave:
                raise MisuseError(f"{before.name} is the group {before.place.enclave.hex()} in your address book")
            groups = {**book.groups, folded(name): NamedGroup(name, _place(place))}
            if len(groups) > MAX_GROUPS:
                raise MisuseError(f"{self.path}: full: it holds at most {MAX_GROUPS} groups")
            return replace(book, groups=groups)

        self._change(change)

    def remove_group(self, name: str) -> None:
        gone = folded(name)

        def change(book: Contents) -> Contents:
            if gone not in book.groups:
                raise MisuseError(f"no group in {self.path} is named {name}")
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
            private_file.refuse(self.path, f"is not an address book: {e.message}; repair it, or move it away")

    def _change(self, change: Callable[[Contents], Contents]) -> Contents:
        with self._locked():
            book = change(self._read())
            raw = compact_json(wire_book(book)).encode()
            if len(raw) > MAX_SIZE:
                raise MisuseError(f"{self.path}: would hold more than {MAX_SIZE} bytes")
            private_file.write(self.path, raw, overwrite=True)
        return book

    def _locked(self) -> FileLock:
        """Lock the book, so that no other process writes between our read and our write."""
        try:
            private_file.make_directory(self.path.parent)
            return FileLock(self.path.with_name(f".{self.path.name}.lock"), wait=True)
        except OSError as e:
            private_file.refuse(self.path, f"cannot be written: {private_file.reason(e)}")


def _placed(places: Mapping[str, Place]) -> dict[str, Place]:
    """Return places as they are stored: ids of 32 bytes, valid URLs, at most MAX_PLACES."""
    if len(places) > MAX_PLACES:
        raise MisuseError(f"places: at most {MAX_PLACES} enclaves for one person")
    return {label: _place(place) for label, place in places.items()}


def _place(place: Place) -> Place:
    return Place(as_bytes(place.enclave, "enclave"), None if place.node is None else base_url(place.node))


def _check_identity(identity: bytes) -> None:
    try:
        check_public_key(as_bytes(identity, "identity"), "identity")
    except PeerError as e:
        raise MisuseError(e.message) from None
