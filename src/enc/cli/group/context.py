"""What a command of `enc group` works with: the group, and the people and entries that arguments name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.book import open_book
from enc.cli.common.command_context import CommandContext
from enc.cli.me.context import resolve_person
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps import AddressBook, Personal
    from enc.apps.group import Group, GroupEntry
    from enc.apps.people.lookup import Person
    from enc.client import Client, Enclave

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group: your name for it, or its id.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="Your name for it; nobody else sees it.")]
Whom = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help=(
            "A name in your address book or the registry, a key, a contact card, "
            "or the first 8 or more digits of a member's key."
        ),
    ),
]
EntryId = Annotated[str, typer.Argument(metavar="ENTRY", help="The entry's number as shown, or its id.")]

PREFIX = 8
"""Least number of digits that identify a key in the group."""


@contextmanager
def open_group(ctx: CommandContext, name: str) -> Iterator[tuple["Group", "AddressBook", "Client"]]:
    """Yield a group, unsynced, with the address book and the client.

    `--node` overrides the node that the address book has for the group.
    """
    from enc.apps.group import Group

    with open_book(ctx) as book, ctx.client_as(ctx.identity(), **_reached(ctx, book, name)) as client:
        yield Group(client, book.group(name).enclave), book, client


@contextmanager
def open_feed(ctx: CommandContext, name: str, **more: Any) -> Iterator["Enclave"]:
    """Yield the group's enclave with another client, to subscribe to."""
    from enc.apps import AddressBook

    book = AddressBook()
    with ctx.client_as(ctx.identity(), **_reached(ctx, book, name), **more) as client:
        yield client.enclave(book.group(name).enclave)


def _reached(ctx: CommandContext, book: "AddressBook", name: str) -> dict[str, Any]:
    node = book.group(name).node
    return {} if node is None or ctx.settings.values["node"].source == "flag" else {"url": node}


def resolve_member(group: "Group", book: "AddressBook", word: str, ask: Callable[[str], "Person"]) -> "Person":
    """Return the person in the group whose key starts with `word`; otherwise, return `ask(word)`."""
    from enc.apps.people.lookup import find

    start = word.removesuffix("…").lower()
    if not PREFIX <= len(start) < 64 or set(start) - set("0123456789abcdef") or book.get(word) is not None:
        return ask(word)
    found = [person.identity for person in group.people() if person.identity.hex().startswith(start)]
    if len(found) != 1:
        raise MisuseError(f"{word}: {'no' if not found else 'more than one'} key in the group starts with this")
    return find(found[0], book)


def confirmed_person(
    ctx: CommandContext, group: "Group", book: "AddressBook", client: "Client", word: str, yes: bool
) -> "Person":
    """Return the person that a word names; the user confirms one that only a registry knows."""
    return resolve_member(group, book, word, lambda word: resolve_person(ctx, word, client, book, yes))


def find_entry(group: "Group", number_or_id: str) -> "GroupEntry":
    """Return an entry of the conversation by number or id, as far as the log is read. Raises MisuseError."""
    text = number_or_id.removeprefix("#").lower()
    for entry in reversed(group.entries()):
        if text in (str(entry.seq), entry.id.hex()):
            return entry
    raise MisuseError(f"no entry {number_or_id} in the conversation")


def own_reaction(group: "Group", entry: str, text: str | None) -> bytes:
    mine = [
        each for each in find_entry(group, entry).reactions if each.author == group.me and text in (None, each.text)
    ]
    if not mine:
        raise MisuseError(f"you have no such reaction to {entry}")
    return mine[-1].id


def own_store(client: "Client", book: "AddressBook", given: str | None) -> "Personal":
    """Return one's own personal store: the given one, or the one in the address book or the registry."""
    from enc.apps import Personal
    from enc.apps.group import CONFIRMERS
    from enc.apps.personal.send_notice import NoPersonalStore

    if given is not None:
        return Personal(client, given, book=book, confirmers=CONFIRMERS)
    try:
        return Personal.find(client, book=book, confirmers=CONFIRMERS)
    except NoPersonalStore:
        where = "the registry lists no" if client.has_registry else "without a registry (--registry) there is no"
        raise MisuseError(
            f"{where} personal store of yours, which receives invitations: `enc me create` makes one; "
            "or give --store ID"
        ) from None


Yes = Annotated[bool, typer.Option("--yes", help="Even if you are the owner, or the only admin.")]


@contextmanager
def hint_at_yes() -> Iterator[None]:
    """Add a hint to --yes to errors that it overrides."""
    from enc.apps.group import Irreplaceable

    try:
        yield
    except Irreplaceable as e:
        raise Irreplaceable(f"{e.message}; --yes does it anyway") from None
