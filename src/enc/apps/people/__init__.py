"""Names of people: the address book, lookup by name, and registration of an app's enclave."""

from enc.apps.people.address_book import AddressBook, Contact, NamedGroup, Place, check_name
from enc.apps.people.lookup import Ambiguous, Person, UnknownName, find, known, place_of

__all__ = [
    "AddressBook",
    "Ambiguous",
    "Contact",
    "NamedGroup",
    "Person",
    "Place",
    "UnknownName",
    "check_name",
    "find",
    "known",
    "place_of",
]
