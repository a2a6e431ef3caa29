"""Names that look alike are one name: no spelling gets a second entry into the address book."""

from pathlib import Path

import pytest

from enc.apps import AddressBook
from enc.apps.people.address_book import Contact
from enc.client import Identity
from enc.core.errors import MisuseError


@pytest.mark.parametrize(
    ("one", "other"), [("Zo\u00eb", "Zoe\u0308"), ("Bob", "\uff22\uff4f\uff42"), ("STRASSE", "Stra\u00dfe")]
)
def test_names_that_look_alike_are_one(tmp_path: Path, one: str, other: str) -> None:
    book = AddressBook(tmp_path / "contacts.json")
    kept = book.put(Contact(one, Identity.new().public))
    assert book.get(other) == kept
    with pytest.raises(MisuseError, match="in your address book"):
        book.put(Contact(other, Identity.new().public))
