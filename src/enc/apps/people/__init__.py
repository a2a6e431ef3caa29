"""Names of people: the address book, lookup by name, and registration of an app's enclave."""

from enc.apps.people.address_book import AddressBook, Contact, NamedGroup, Place, check_name
from enc.apps.people.contact_card import (
    CardEnclave,
    CardRegistry,
    ContactCard,
    InvalidCard,
    card_enclave,
    card_registry,
    parse_card,
    sign_card,
)
from enc.apps.people.lookup import Ambiguous, NameTaken, Person, UnknownName, find, known, place_of, store_card

__all__ = [
    "AddressBook",
    "Ambiguous",
    "CardEnclave",
    "CardRegistry",
    "Contact",
    "ContactCard",
    "InvalidCard",
    "NameTaken",
    "NamedGroup",
    "Person",
    "Place",
    "UnknownName",
    "card_enclave",
    "card_registry",
    "check_name",
    "find",
    "known",
    "parse_card",
    "place_of",
    "sign_card",
    "store_card",
]
