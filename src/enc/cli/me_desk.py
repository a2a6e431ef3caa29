"""Whose store a command of `enc me` is about, and who or what is meant by a word."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.terminal import Terminal
from enc.core.errors import EventNotFound, MisuseError

if TYPE_CHECKING:
    from enc.apps import Personal
    from enc.apps.address_book import AddressBook, Place
    from enc.apps.people import Person
    from enc.client import Client

Who = Annotated[str, typer.Argument(metavar="WHO", help="A name in your address book or the registry, or a key.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Take whom the registry names, without asking.")]
Which = Annotated[str, typer.Argument(metavar="WHICH", help="Its seq, or how its id begins.")]

MIN_PREFIX = 4


@contextmanager
def store(at: Terminal) -> Iterator["Personal"]:
    """The store of the profile's identity."""
    from enc.apps import AddressBook, Personal
    from enc.apps.group import CONFIRMERS

    with at.client() as client:
        yield Personal.find(client, book=AddressBook(), confirmers=CONFIRMERS)


def person(at: Terminal, word: str, client: "Client | None", book: "AddressBook", yes: bool) -> "Person":
    """Whom a word means; one that only a registry knows is shown with its key, and kept if that is right."""
    from enc.apps.address_book import Contact
    from enc.apps.people import find

    found = find(word, book, client)
    if not found.is_hint:
        return found
    at.note(f"{found.name} is, by the registry's word, {found.identity.hex()}")
    if not yes and not typer.confirm("Is that who you mean?", err=True):
        raise typer.Abort
    book.put(Contact(found.name or word, found.identity))
    return find(found.identity, book, client)


def store_place(store: str | None, there: str | None) -> "Place | None":
    """Where somebody's personal store is, as `--store` and `--at` say."""
    from enc.apps.address_book import Place
    from enc.client.writes import as_bytes

    if there is not None and store is None:
        raise MisuseError("--at goes with --store")
    return None if store is None else Place(as_bytes(store, "store"), there)


def chosen(word: str, ids: dict[bytes, int]) -> bytes:
    """Which of these is meant: by its seq, or by how its id begins."""
    if word.isdecimal() and len(word) <= 16:
        found = [id_ for id_, seq in ids.items() if seq == int(word)]
        if found:
            return found[0]
    found = [id_ for id_ in ids if len(word) >= MIN_PREFIX and id_.hex().startswith(word.lower())]
    if len(found) > 1:
        raise MisuseError(f"{word}: several have an id that begins so")
    if not found:
        raise EventNotFound(f"{word}: there is none with this seq or id")
    return found[0]
