"""The address book: names of people and groups, and where their enclaves are. A private file.

`enc.apps.personal.book_sync` keeps the same book on all devices of an identity. Only its owner adds
entries. A name from a registry is a hint; it becomes an entry only after the
user has checked the key. The book also records where the owner's own enclaves are, for users
without a registry, and the owner's names for groups.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from enc.apps.people.book_file import Contact, Contents, NamedGroup, Place, parse_book, wire_book
from enc.apps.people.names import check_name, folded, is_key
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
MAX_GROUPS = MAX_FOLLOWS = 1_000
MAX_PLACES = 16
"""Most enclaves stored for one person."""


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
        """Return the URL of the node of a known enclave: the one to which it was followed, if any;
        None if no entry has it.
        """
        id_, book = as_bytes(enclave, "enclave"), self._read()
        if id_ in book.follows:
            return book.follows[id_]
        people = [*(contact.places for contact in book.contacts.values()), *book.own.values()]
        known = [*(place for places in people for place in places.values()), *(g.place for g in book.groups.values())]
        return next((place.node for place in known if place.enclave == id_ and place.node), None)

    def own(self, identity: Id, label: str) -> Place | None:
        """Return where the identity's own enclave with this label is."""
        return self._read().own.get(as_bytes(identity, "identity"), {}).get(label)

    def follows(self) -> dict[bytes, str]:
        """Return the nodes to which enclaves were followed, by enclave."""
        return dict(self._read().follows)

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
        check_identity(contact.identity)

        def change(book: Contents) -> Contents:
            before = book.contacts.get(folded(name))
            if before is not None and before.identity != contact.identity and not again:
                raise MisuseError(f"{before.name} is {before.identity.hex()} in your address book")
            kept = before.places if before is not None and before.identity == contact.identity else {}
            signed = before.card_at if before is not None and before.identity == contact.identity else 0
            kept_now = replace(
                contact,
                name=name,
                places=checked_places({**kept, **contact.places}),
                card_at=max(contact.card_at, signed),
            )
            return replace(book, contacts={**book.contacts, folded(name): kept_now})

        return self.update(change).contacts[folded(name)]

    def remove(self, name: str) -> None:
        gone = folded(name)

        def change(book: Contents) -> Contents:
            if gone not in book.contacts:
                raise MisuseError(f"no contact in {self.path} is named {name}")
            return replace(book, contacts={key: each for key, each in book.contacts.items() if key != gone})

        self.update(change)

    def set_own(self, identity: Id, label: str, place: Place) -> None:
        who = as_bytes(identity, "identity")

        def change(book: Contents) -> Contents:
            return replace(book, own={**book.own, who: checked_places({**book.own.get(who, {}), label: place})})

        self.update(change)

    def put_group(self, name: str, place: Place) -> None:
        """Name a group. Raise MisuseError if another group has this name."""
        name = check_name(name)

        def change(book: Contents) -> Contents:
            before = book.groups.get(folded(name))
            if before is not None and before.place.enclave != place.enclave:
                raise MisuseError(f"{before.name} is the group {before.place.enclave.hex()} in your address book")
            return replace(book, groups={**book.groups, folded(name): NamedGroup(name, checked_place(place))})

        self.update(change)

    def remove_group(self, name: str) -> None:
        gone = folded(name)

        def change(book: Contents) -> Contents:
            if gone not in book.groups:
                raise MisuseError(f"no group in {self.path} is named {name}")
            return replace(book, groups={key: each for key, each in book.groups.items() if key != gone})

        self.update(change)

    def put_follow(self, enclave: Id, node: str) -> None:
        """Store the node to which an enclave was followed, for the groups and people that have it, too."""
        place = checked_place(Place(as_bytes(enclave, "enclave"), node))

        def at(known: Place) -> Place:
            return place if known.enclave == place.enclave else known

        def moved(places: Mapping[str, Place]) -> dict[str, Place]:
            return {label: at(each) for label, each in places.items()}

        def change(book: Contents) -> Contents:
            return Contents(
                {key: replace(each, places=moved(each.places)) for key, each in book.contacts.items()},
                {who: moved(places) for who, places in book.own.items()},
                {key: replace(each, place=at(each.place)) for key, each in book.groups.items()},
                {**book.follows, place.enclave: str(place.node)},
            )

        self.update(change)

    # The file

    def contents(self) -> Contents:
        """Return the whole book."""
        return self._read()

    def update(self, change: Callable[[Contents], Contents]) -> Contents:
        """Replace the book by what `change` makes of it, and return it; raise MisuseError if it is
        too large.
        """
        with self._locked():
            before = self._read()
            book = change(before)
            if book != before:
                self._write(book)
        return book

    def _write(self, book: Contents) -> None:
        for what, found, most in (
            ("contacts", book.contacts, MAX_CONTACTS),
            ("groups", book.groups, MAX_GROUPS),
            ("followed enclaves", book.follows, MAX_FOLLOWS),
        ):
            if len(found) > most:
                raise MisuseError(f"{self.path}: full: it holds at most {most} {what}; remove some first")
        raw = compact_json(wire_book(book)).encode()
        if len(raw) > MAX_SIZE:
            raise MisuseError(f"{self.path}: would hold more than {MAX_SIZE} bytes; remove some entries first")
        private_file.write(self.path, raw, overwrite=True)

    def _read(self) -> Contents:
        raw = private_file.read(self.path, MAX_SIZE)
        if raw is None:
            return Contents()
        try:
            return parse_book(raw)
        except PeerError as e:
            private_file.refuse(self.path, f"is not an address book: {e.message}; repair it, or move it away")

    def _locked(self) -> FileLock:
        """Lock the book, so that no other process writes between our read and our write."""
        try:
            private_file.make_directory(self.path.parent)
            return FileLock(self.path.with_name(f".{self.path.name}.lock"), wait=True)
        except OSError as e:
            private_file.refuse(self.path, f"cannot be written: {private_file.reason(e)}")


def checked_places(places: Mapping[str, Place]) -> dict[str, Place]:
    """Return places as they are stored: ids of 32 bytes, valid URLs, at most MAX_PLACES."""
    if len(places) > MAX_PLACES:
        raise MisuseError(f"places: at most {MAX_PLACES} enclaves for one person")
    return {label: checked_place(place) for label, place in places.items()}


def checked_place(place: Place) -> Place:
    return Place(as_bytes(place.enclave, "enclave"), None if place.node is None else base_url(place.node))


def check_identity(identity: bytes) -> None:
    try:
        check_public_key(as_bytes(identity, "identity"), "identity")
    except PeerError as e:
        raise MisuseError(e.message) from None
