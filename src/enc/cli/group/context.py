"""What a command of `enc group` works with: the group, and the people and entries that arguments name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command_context import CommandContext
from enc.cli.common.prefixes import MIN_ENTRY, is_prefix, pick
from enc.cli.me.context import resolve_person
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps import AddressBook, Personal
    from enc.apps.group import Group, GroupEntry
    from enc.apps.people.address_book import Place
    from enc.apps.people.lookup import Person
    from enc.client import Client, Enclave

GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The group: your name for it, its id, or the first 8 or more digits of it."),
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="Your name for it; nobody else sees it.")]
Whom = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help=(
            "A name in your address book or the registry, a key, a contact card, "
            "or the first 8 or more digits of a key that you know or of a member's."
        ),
    ),
]
EntryId = Annotated[
    str, typer.Argument(metavar="ENTRY", help="The entry's number as shown, its id, or the start of it.")
]


@contextmanager
def open_group(ctx: CommandContext, name: str) -> Iterator[tuple["Group", "AddressBook", "Client"]]:
    """Yield a group, unsynced, with the address book and the client.

    `--node` overrides the node that the address book has for the group.
    """
    from enc.apps.group import Group

    with open_book(ctx) as book, ctx.client_as(ctx.identity(), **_reached(ctx, book, name)) as client:
        yield Group(client, find_group(book, name).enclave), book, client


@contextmanager
def open_feed(ctx: CommandContext, name: str, **more: Any) -> Iterator["Enclave"]:
    """Yield the group's enclave with another client, to subscribe to."""
    from enc.apps import AddressBook

    book = AddressBook()
    with ctx.client_as(ctx.identity(), **_reached(ctx, book, name), **more) as client:
        yield client.enclave(find_group(book, name).enclave)


def find_group(book: "AddressBook", word: str) -> "Place":
    """Return where a group is, given by its name, its id, or a prefix of the id of an enclave that this user knows."""
    from enc.apps.people.address_book import folded

    if not is_prefix(word) or any(folded(word) == folded(each.name) for each in book.groups()):
        return book.group(word)
    return book.group(known_ids.enclave(word, what="group"))


def _reached(ctx: CommandContext, book: "AddressBook", name: str) -> dict[str, Any]:
    node = find_group(book, name).node
    return {} if node is None or ctx.settings.values["node"].source == "flag" else {"url": node}


def resolve_member(group: "Group", book: "AddressBook", word: str, ask: Callable[[str], "Person"]) -> "Person":
    """Return the person in the group or the address book whose key starts with `word`; otherwise, `ask(word)`."""
    from enc.apps.people.lookup import find

    if not is_prefix(word) or book.get(word) is not None:
        return ask(word)
    known = {**{person.identity: "" for person in group.people()}, **book.names()}
    return find(pick(word, known, "key in the group or in your address book"), book)


def confirmed_person(
    ctx: CommandContext, group: "Group", book: "AddressBook", client: "Client", word: str, yes: bool
) -> "Person":
    """Return the person that a word names; the user confirms one that only a registry knows."""
    found = resolve_member(group, book, word, lambda word: resolve_person(ctx, word, client, book, yes))
    if is_prefix(word) and found.name is None:
        ctx.note(f"{word} is {found.identity.hex()}")
    return found


def find_entry(group: "Group", number_or_id: str) -> "GroupEntry":
    """Return an entry of the conversation by number or id, as far as the log is read. Raises MisuseError."""
    text = number_or_id.removeprefix("#").lower()
    for entry in reversed(group.entries()):
        if text in (str(entry.seq), entry.id.hex()):
            return entry
    if is_prefix(text, MIN_ENTRY):
        ids = {entry.id: entry for entry in group.entries()}
        return ids[pick(text, {id_: f"#{entry.seq}" for id_, entry in ids.items()}, "entry")]
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
        return Personal(client, known_ids.enclave(given, what="--store"), book=book, confirmers=CONFIRMERS)
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
