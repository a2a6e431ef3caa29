"""Resolving words to people, with a real registry."""

import pytest

from enc.apps.people.address_book import Contact, Place
from enc.apps.people.lookup import Ambiguous, Person, UnknownName, find, place_of
from enc.client import Identity
from enc.core.errors import MisuseError
from tests.apps.personal.conftest import Street


def unique(street: Street) -> str:
    return f"Zoë {Identity.new().hex[:10]}"


def test_a_key_is_itself_and_has_its_name_by_the_book(street: Street) -> None:
    who, book = Identity.new(), street.book()
    for word in (who.public, who.hex, who.hex.upper()):
        assert find(word, book) == Person(who.public, None, "key")
    place = {"dm": Place(bytes(32), "https://node.example")}
    book.put(Contact("Bob", who.public, place))
    assert find(who.hex, book) == Person(who.public, "Bob", "key", place)
    with pytest.raises(MisuseError):
        find(b"short", book)


def test_the_book_comes_before_the_registry(street: Street) -> None:
    name, other = unique(street), Identity.new()
    street.store(street.client(), display_name=name)
    book, client = street.book(), street.client()
    assert find(name, book, client).source == "registry"
    book.put(Contact(name, other.public))
    assert find(name.upper(), book, client) == Person(other.public, name, "book")


def test_a_name_in_the_registry_is_a_hint(street: Street) -> None:
    name, client = unique(street), street.client()
    store = street.store(client, display_name=name)
    for word in (name, f" {name.upper()} ", name[2:]):
        found = find(word, street.book(), street.client())
        assert (found.identity, found.name, found.is_hint) == (client.identity.public, name, True)
    assert place_of(found, "personal", street.client()) == Place(store.enclave.id)
    assert place_of(found, "dm", street.client()) is None
    assert not find(client.identity.hex, street.book()).is_hint


def test_several_of_one_name_are_told_with_their_keys(street: Street) -> None:
    name = unique(street)
    people = [street.client() for _ in range(2)]
    for client in people:
        street.store(client, display_name=name)
    with pytest.raises(Ambiguous) as found:
        find(name, street.book(), street.client())
    assert all(client.identity.hex in found.value.message for client in people)
    longer = street.client()
    street.store(longer, display_name=f"{name} junior")
    assert find(f"{name} junior", street.book(), street.client()).identity == longer.identity.public
    exact = street.client()
    street.store(exact, display_name=f"{name} j")
    assert find(f"{name} j", street.book(), street.client()).identity == exact.identity.public


def test_a_name_that_looks_like_something_else_is_nobody_s(street: Street) -> None:
    word = Identity.new().hex[:20]
    for name in (f"{word}{'0' * 44}", f"-{word}", f"{word}\x1b[2J", f"{word} {'x' * 64}"):
        street.store(street.client(), display_name=name)
    with pytest.raises(UnknownName):
        find(word, street.book(), street.client())


def test_without_a_book_there_are_keys_and_the_registry(street: Street) -> None:
    who, name, client = Identity.new(), unique(street), street.client()
    assert find(who.hex, None) == Person(who.public, None, "key")
    street.store(client, display_name=name)
    assert find(name, None, client).identity == client.identity.public
    with pytest.raises(UnknownName):
        find(name, None)


def test_nobody_is_nobody(street: Street) -> None:
    for client in (None, street.client(), street.client(known=False)):
        with pytest.raises(UnknownName):
            find(unique(street), street.book(), client)


def test_where_somebody_s_enclave_is(street: Street) -> None:
    here, who = Place(bytes(32), "https://node.example"), Identity.new().public
    for client in (street.client(), street.client(known=False)):
        assert place_of(Person(who, None, "key"), "dm", client) is None
        assert place_of(Person(who, None, "book", {"dm": here}), "dm", client) == here
