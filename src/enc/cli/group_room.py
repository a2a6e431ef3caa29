"""A group, opened for a command: by the name that it has here, at the node where it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.me_desk import person
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps import AddressBook, Personal
    from enc.apps.group import Entry, Group
    from enc.apps.people import Person
    from enc.client import Client, Enclave

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group: its name here, or its id.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called here; nobody else sees it.")]
Whom = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help="A name in your address book or the registry, a key, or how one in the group begins, 8 or more digits.",
    ),
]
EntryId = Annotated[str, typer.Argument(metavar="ENTRY", help="Its number, as it is shown, or its id.")]

PREFIX = 8
"""Digits of a key that may stand for somebody who is in the group."""


@contextmanager
def opened(at: Terminal, name: str) -> Iterator[tuple["Group", "AddressBook", "Client"]]:
    """Nothing is asked yet. What `--node` says comes before where the group was when it got its name."""
    from enc.apps import AddressBook
    from enc.apps.group import Group

    book = AddressBook()
    with at.client_as(at.identity(), **_reached(at, book, name)) as client:
        yield Group(client, book.group(name).enclave), book, client


@contextmanager
def heard(at: Terminal, name: str, **more: Any) -> Iterator["Enclave"]:
    """The same group's enclave by a client of its own, to listen to."""
    from enc.apps import AddressBook

    book = AddressBook()
    with at.client_as(at.identity(), **_reached(at, book, name), **more) as client:
        yield client.enclave(book.group(name).enclave)


def _reached(at: Terminal, book: "AddressBook", name: str) -> dict[str, Any]:
    node = book.group(name).node
    return {} if node is None or at.settings.values["node"].source == "flag" else {"url": node}


def whom(group: "Group", book: "AddressBook", word: str, ask: Callable[[str], "Person"]) -> "Person":
    """By how the key of somebody in the group begins, as far as its log was read; else as everywhere, by `ask`."""
    from enc.apps.people import find

    start = word.removesuffix("…").lower()
    if not PREFIX <= len(start) < 64 or set(start) - set("0123456789abcdef") or book.get(word) is not None:
        return ask(word)
    found = [person.identity for person in group.people() if person.identity.hex().startswith(start)]
    if len(found) != 1:
        raise MisuseError(f"{word}: {'nobody' if not found else 'more than one'} in the group has a key that begins so")
    return find(found[0], book)


def asked(at: Terminal, group: "Group", book: "AddressBook", client: "Client", word: str, yes: bool) -> "Person":
    """Whom a command means; of one whom only a registry knows, the user is asked."""
    return whom(group, book, word, lambda word: person(at, word, client, book, yes))


def entry_of(group: "Group", said: str) -> "Entry":
    """By number or id, of what is in the conversation, as far as the log was read."""
    text = said.removeprefix("#").lower()
    for entry in reversed(group.entries()):
        if text in (str(entry.seq), entry.id.hex()):
            return entry
    raise MisuseError(f"there is no entry {said} in the conversation")


def own_reaction(group: "Group", entry: str, text: str | None) -> bytes:
    mine = [each for each in entry_of(group, entry).reactions if each.author == group.me and text in (None, each.text)]
    if not mine:
        raise MisuseError(f"you have no such reaction to {entry}")
    return mine[-1].id


def personal_of(client: "Client", book: "AddressBook", given: str | None) -> "Personal":
    """One's own personal store: as told, or as the book or the registry has it."""
    from enc.apps import Personal
    from enc.apps.group import CONFIRMERS
    from enc.apps.personal.notifying import NoPersonalStore

    if given is not None:
        return Personal(client, given, book=book, confirmers=CONFIRMERS)
    try:
        return Personal.find(client, book=book, confirmers=CONFIRMERS)
    except NoPersonalStore:
        where = "the registry knows" if client.has_registry else "without a registry (--registry) there is"
        raise MisuseError(
            f"{where} no personal store of yours, where invitations come to: `enc me create` makes one; "
            "or give --store ID"
        ) from None


Yes = Annotated[bool, typer.Option("--yes", help="Even if you are the owner, or the only admin.")]


@contextmanager
def asking_yes() -> Iterator[None]:
    """What must be meant is done with --yes."""
    from enc.apps.group import Irreplaceable

    try:
        yield
    except Irreplaceable as e:
        raise Irreplaceable(f"{e.message}; --yes does it all the same") from None
