"""Keys and ids that arguments name: whole, by a prefix of one that this profile knows, or by a contact's name."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from enc.cli.common.prefixes import MIN_DIGITS, Known, is_prefix, is_whole, pick
from enc.core.errors import EventNotFound, MisuseError

if TYPE_CHECKING:
    from enc.client import Enclave

PERSON = f"A key, the first {MIN_DIGITS} or more digits of a contact's key, or a contact's name."
ENCLAVE = f"An enclave's id, or the first {MIN_DIGITS} or more digits of one that you have used."
"""Help of arguments."""
MAX_EVENTS = 10_000
"""Most events that are read to resolve the prefix of an event's id."""


def identity(word: str, more: Known | None = None, *, what: str = "identity") -> str:
    """Return the key that a word names: a whole key, a contact's name, or a prefix of a known key.

    Known are the contacts in the address book, and `more`. Raises MisuseError.
    """
    if is_whole(word):
        return word.lower()
    from enc.apps import AddressBook

    book = AddressBook()
    named = book.get(word)
    if named is not None:
        return named.identity.hex()
    if not is_prefix(word):
        raise MisuseError(
            f"{what}: expected a key of 64 hex digits, the first {MIN_DIGITS} or more digits of a contact's key, "
            f"or a contact's name, not {word!r}"
        )
    known = {**(more or {}), **book.names()}
    hint = "give all 64 hex digits, or add the person to your address book with `enc me know`"
    return pick(word, known, "key that you know", hint).hex()


def enclave(word: str, more: Iterable[bytes] = (), *, what: str = "enclave") -> str:
    """Return the id of an enclave: a whole id, or a prefix of one that was used or is in the address book.

    `more`: other ids that the caller knows. Raises MisuseError.
    """
    if is_whole(word):
        return word.lower()
    if not is_prefix(word):
        raise MisuseError(
            f"{what}: expected an id of 64 hex digits, or the first {MIN_DIGITS} or more digits of the id of an "
            f"enclave that you have used, not {word!r}"
        )
    hint = "give all 64 hex digits; `enc enclave list` lists those that you have used"
    return pick(word, {**dict.fromkeys(more, ""), **_enclaves()}, "enclave that you know", hint).hex()


def used_enclaves() -> list[bytes]:
    """Return the enclaves that this user's clients have read or written, in order."""
    from enc.client.verify.pins import default_directory

    return [bytes.fromhex(path.stem) for path in sorted(default_directory().glob(f"{'[0-9a-f]' * 64}.json"))]


def _enclaves() -> Known:
    from enc.apps import AddressBook

    book = AddressBook()
    places = {
        place.enclave: f"{label} of {contact.name}"
        for contact in book.contacts()
        for label, place in contact.places.items()
    }
    groups = {group.place.enclave: f"group {group.name}" for group in book.groups()}
    return {**dict.fromkeys(used_enclaves(), ""), **places, **groups}


def event(enclave: "Enclave", word: str) -> str:
    """Return the id of an event given by its id, its seq, or a prefix of its id.

    A prefix must be unique among all events that the caller may read. Raises EventNotFound or MisuseError.
    """
    if is_whole(word):
        return word.lower()
    if word.isdecimal() and len(word) <= 16:
        item = next(enclave.query(seq=int(word)), None)
        if item is not None:
            return item.id.hex()
        if not is_prefix(word):
            raise EventNotFound(f"event {word}: missing, deleted, or not readable by you")
    if not is_prefix(word):
        raise MisuseError(
            f"event: expected its seq, its id of 64 hex digits, or the first {MIN_DIGITS} or more digits of the id, "
            f"not {word!r}"
        )
    ids = {item.id: f"seq {item.seq}" for item in islice(enclave.query(), MAX_EVENTS + 1)}
    if len(ids) > MAX_EVENTS:
        raise MisuseError(f"{word}: the log has over {MAX_EVENTS} events: give the whole id, or the event's seq")
    return pick(word, ids, "event that you may read", "give all 64 hex digits, or the event's seq").hex()
