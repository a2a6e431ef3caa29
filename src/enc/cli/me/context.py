"""What a command of `enc me` works with: one's store, and the people and entries that arguments name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common.command_context import CommandContext
from enc.core.errors import EventNotFound, MisuseError

if TYPE_CHECKING:
    from enc.apps import Personal
    from enc.apps.people.address_book import AddressBook, Place
    from enc.apps.people.lookup import Person
    from enc.client import Client

Who = Annotated[str, typer.Argument(metavar="WHO", help="A name in your address book or the registry, or a key.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Accept the key in the registry without asking.")]
Which = Annotated[str, typer.Argument(metavar="WHICH", help="Its seq, or the start of its id.")]

MIN_PREFIX = 4


@contextmanager
def open_store(ctx: CommandContext) -> Iterator["Personal"]:
    """Yield the store of the profile's identity."""
    from enc.apps import AddressBook, Personal
    from enc.apps.group import CONFIRMERS

    with ctx.client() as client:
        yield Personal.find(client, book=AddressBook(), confirmers=CONFIRMERS)


def resolve_person(ctx: CommandContext, word: str, client: "Client | None", book: "AddressBook", yes: bool) -> "Person":
    """Return the person that a word names.

    A name that only a registry knows is shown with its key, and stored once the user confirms it.
    """
    from enc.apps.people.address_book import Contact
    from enc.apps.people.lookup import find

    found = find(word, book, client)
    if not found.is_hint:
        return found
    ctx.note(f"{found.name} is {found.identity.hex()} according to the registry")
    if not yes and not typer.confirm("Is this the right key?", err=True):
        raise typer.Abort
    book.put(Contact(found.name or word, found.identity))
    return find(found.identity, book, client)


def place_of_store(store: str | None, there: str | None) -> "Place | None":
    """Return a person's store given by `--store` and `--at`, or None. Raises MisuseError."""
    from enc.apps.people.address_book import Place
    from enc.client.enclave.writes import as_bytes

    if there is not None and store is None:
        raise MisuseError("--at: needs --store")
    return None if store is None else Place(as_bytes(store, "store"), there)


def find_id(word: str, ids: dict[bytes, int]) -> bytes:
    """Return the id given by its seq or by its start. Raises MisuseError or EventNotFound."""
    if word.isdecimal() and len(word) <= 16:
        found = [id_ for id_, seq in ids.items() if seq == int(word)]
        if found:
            return found[0]
    found = [id_ for id_ in ids if len(word) >= MIN_PREFIX and id_.hex().startswith(word.lower())]
    if len(found) > 1:
        raise MisuseError(f"{word}: more than one id starts with this")
    if not found:
        raise EventNotFound(f"{word}: no entry has this seq or id")
    return found[0]
