"""An address book as a set of entries that several devices change, and how their changes are merged.

An entry's key is its type with a folded name (`person`, `group`), an enclave's id (`follow`) or a
label (`own`). Of one entry the last change counts.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from enc.apps.people.address_book import check_identity, checked_places
from enc.apps.people.book_file import (
    Contact,
    Contents,
    NamedGroup,
    Place,
    WireContact,
    WirePlace,
    parse_contact,
    parse_place,
    wire_contact,
    wire_place,
)
from enc.apps.people.names import MAX_NAME, check_name, folded
from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import check_numbers, convert_json, unhex

PERSON, GROUP, FOLLOW, OWN = "person", "group", "follow", "own"
TYPES = (PERSON, GROUP, FOLLOW, OWN)
MAX_LABEL = 64
NOT_SHARED = "personal"
"""The label of the store that holds the entries: each device finds it by itself."""

EntryKey = tuple[str, str]
Entry = Contact | NamedGroup | Place
Entries = Mapping[EntryKey, Entry]
Changes = Mapping[EntryKey, Entry | None]
"""None: the entry was removed."""


def entries_of(book: Contents, identity: bytes, valid: Entries = MappingProxyType({})) -> dict[EntryKey, Entry]:
    """Return the entries of a book that belong to this identity's devices; those in `valid` are not
    checked again.
    """
    return {key: each for key, each in _all(book, identity) if valid.get(key) == each or _is_valid(key, each)}


def _all(book: Contents, identity: bytes) -> Iterator[tuple[EntryKey, Entry]]:
    yield from (((PERSON, key), each) for key, each in book.contacts.items())
    yield from (((GROUP, key), each) for key, each in book.groups.items())
    yield from (((FOLLOW, enclave.hex()), Place(enclave, node)) for enclave, node in book.follows.items())
    yield from (((OWN, label), place) for label, place in book.own.get(identity, {}).items())


def _is_valid(key: EntryKey, entry: Entry) -> bool:
    """Return whether other devices would accept an entry: not the place of the store itself, nor
    what an editor wrote wrongly.
    """
    return parse_changes(wire_changes({key: entry})) == {key: entry}


def with_entries(book: Contents, entries: Entries, identity: bytes) -> Contents:
    """Return the book with these entries in place of all that `entries_of` returns."""
    rest = {key: each for key, each in _all(book, identity) if key not in entries and not _is_valid(key, each)}
    entries = {**rest, **entries}
    own: dict[str, Place] = {}
    contacts, groups, follows = dict[str, Contact](), dict[str, NamedGroup](), dict[bytes, str]()
    for (type_, key), entry in entries.items():
        if isinstance(entry, Contact):
            contacts[key] = entry
        elif isinstance(entry, NamedGroup):
            groups[key] = entry
        elif type_ == FOLLOW:
            follows[entry.enclave] = entry.node or ""
        else:
            own[key] = entry
    others = {who: places for who, places in book.own.items() if who != identity}
    return Contents(contacts, {**others, **({identity: own} if own else {})}, groups, follows)


def changes_between(before: Entries, after: Entries) -> dict[EntryKey, Entry | None]:
    """Return the changes that make `after` of `before`."""
    changed: dict[EntryKey, Entry | None] = {key: each for key, each in after.items() if before.get(key) != each}
    return {**changed, **{key: None for key in before if key not in after}}


def apply_changes(entries: Entries, changes: Changes) -> dict[EntryKey, Entry]:
    merged = {**entries, **changes}
    return {key: each for key, each in merged.items() if each is not None}


def local_changes(base: Entries, local: Entries, remote: Entries) -> dict[EntryKey, Entry | None]:
    """Return what this device changed since `base`, as it must follow what others made of `remote`.

    If another device changed the same entry meanwhile, the change of this device counts, as the
    later one in the log. But a name that now belongs to two keys or groups gets a number here, and
    two sets of enclaves of one person become one.
    """
    changes = dict[EntryKey, Entry | None]()
    for key, entry in changes_between(base, local).items():
        other = remote.get(key)
        if other == entry:
            continue
        if entry is None or other is None or other == base.get(key):
            changes[key] = entry
        elif _is_other(entry, other):
            changes |= _renamed(entry, {*local, *remote, *changes})
        else:
            changes[key] = _joined(entry, other)
    return changes


def _is_other(one: Entry, other: Entry) -> bool:
    if isinstance(one, Contact) and isinstance(other, Contact):
        return one.identity != other.identity
    return isinstance(one, NamedGroup) and isinstance(other, NamedGroup) and one.place.enclave != other.place.enclave


def _renamed(entry: Entry, taken: set[EntryKey]) -> dict[EntryKey, Entry | None]:
    if not isinstance(entry, Contact | NamedGroup):
        raise TypeError(f"an entry without a name: {entry!r}")
    type_ = PERSON if isinstance(entry, Contact) else GROUP
    number = 2
    while (type_, folded(name := f"{entry.name[: MAX_NAME - 8]} ({number})")) in taken:
        number += 1
    return {(type_, folded(name)): replace(entry, name=name)}


def _joined(entry: Entry, other: Entry) -> Entry:
    """Return this device's entry with the enclaves that only the other device knows."""
    if isinstance(entry, Contact) and isinstance(other, Contact):
        return replace(entry, places={**other.places, **entry.places}, card_at=max(entry.card_at, other.card_at))
    return entry


# The sealed form


def wire_changes(changes: Changes) -> list[list[Any]]:
    """Return changes as they are sealed: a list [type, key, value or null] for each."""
    return [[*key, _wire(changes[key])] for key in sorted(changes)]


def _wire(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    if isinstance(entry, Contact):
        return wire_contact(entry)
    if isinstance(entry, NamedGroup):
        return {"name": entry.name, **wire_place(entry.place)}
    return wire_place(entry)


def parse_changes(wire: Any) -> dict[EntryKey, Entry | None]:
    """Parse a list of changes. Changes that are invalid, or of a type unknown here, have no effect.

    Raise InvalidCommit if it is not a list.
    """
    if not isinstance(wire, list):
        raise InvalidCommit("changes: expected a list")
    changes = dict[EntryKey, Entry | None]()
    for each in wire:
        try:
            key, entry = _parse(each)
        except (InvalidCommit, MisuseError):
            continue
        changes[key] = entry
    return changes


def _parse(wire: Any) -> tuple[EntryKey, Entry | None]:
    type_, key, value = convert_json(wire, tuple[str, str, dict[str, Any] | None], InvalidCommit)
    if type_ not in TYPES:
        raise InvalidCommit(f"type: expected one of {', '.join(TYPES)}")
    if value is None:
        return (type_, key), None
    if type_ == PERSON:
        return (type_, key), _person(key, value)
    place = parse_place(convert_json(value, WirePlace, InvalidCommit))
    _check_places({type_: place})
    if type_ == GROUP:
        return (type_, key), NamedGroup(_name(key, value.get("name")), place)
    if type_ == FOLLOW and (unhex(key, 32, "key") != place.enclave or place.node is None):
        raise InvalidCommit("follow: expected the enclave's id as the key, and a node")
    if type_ == OWN and (not 0 < len(key) <= MAX_LABEL or key == NOT_SHARED):
        raise InvalidCommit(f"own: expected a label of 1 to {MAX_LABEL} characters")
    return (type_, key), place


def _person(key: str, value: dict[str, Any]) -> Contact:
    found = parse_contact(convert_json(value, WireContact, InvalidCommit))
    check_identity(found.identity)
    check_numbers(InvalidCommit, card_at=found.card_at)
    _check_places(found.places)
    return replace(found, name=_name(key, found.name))


def _check_places(places: Mapping[str, Place]) -> None:
    """Check that places are as `AddressBook` stores them: then all devices have the same ones."""
    if checked_places(places) != places:
        raise InvalidCommit("node: expected http:// or https:// and a host, without a slash at the end")


def _name(key: str, name: Any) -> str:
    if not isinstance(name, str) or check_name(name) != name or folded(name) != key:
        raise InvalidCommit("name: its folded form is not the key")
    return name
