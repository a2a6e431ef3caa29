"""What a command of `enc me` works with: one's store, and the people and entries that arguments name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import known_ids
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import format_time, short
from enc.cli.common.prefixes import MIN_ENTRY, Known, is_prefix, is_whole, pick, starting
from enc.core.errors import EventNotFound, MisuseError

if TYPE_CHECKING:
    from enc.apps import Personal
    from enc.apps.people.address_book import AddressBook, Contact, Place
    from enc.apps.people.contact_card import ContactCard
    from enc.apps.people.lookup import Person
    from enc.client import Client

Who = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help=(
            "A name in your address book or the registry, a key, the first 8 or more digits of one that you know, "
            "or a contact card."
        ),
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Accept the key in the registry without asking.")]
Which = Annotated[str, typer.Argument(metavar="WHICH", help="Its seq, or the start of its id.")]


@contextmanager
def open_store(ctx: CommandContext, book: "AddressBook | None" = None) -> Iterator["Personal"]:
    """Yield the store of the profile's identity. `book`: the synced one, for commands that use names."""
    from enc.apps import AddressBook, Personal
    from enc.apps.group import CONFIRMERS

    with ctx.client() as client:
        yield Personal.find(client, book=book or AddressBook(), confirmers=CONFIRMERS)


def whole_key(word: str, more: Known | None = None) -> str:
    """Return the key if the word is a prefix of one that this profile knows; otherwise, the word itself.

    A word that looks like a prefix is never looked up as a name in the registry, where anybody can register it.
    """
    return known_ids.identity(word, more, what="WHO") if is_prefix(word) else word


def resolve_person(
    ctx: CommandContext,
    word: str,
    client: "Client | None",
    book: "AddressBook",
    yes: bool,
    more: Known | None = None,
) -> "Person":
    """Return the person that a word names; `more` are keys known beside those of the address book.

    A name that only a registry knows is shown with its key, and stored once the user confirms it. The
    person of a contact card is stored, too.
    """
    from enc.apps.people.address_book import Contact
    from enc.apps.people.lookup import find
    from enc.apps.people.names import is_link

    if is_link(word):
        return find(keep_card(ctx, checked_card(ctx, word), book).identity, book, client)
    found = find(whole_key(word, more), book, client)
    if is_prefix(word) and found.name is None:
        ctx.note(f"{word} is {found.identity.hex()}")
    if not found.is_hint:
        return found
    ctx.note(f"{found.name} is {found.identity.hex()} according to the registry")
    if not yes and not typer.confirm("Is this the right key?", err=True):
        raise typer.Abort
    book.put(Contact(found.name or word, found.identity))
    return find(found.identity, book, client)


def checked_card(ctx: CommandContext, link: str) -> "ContactCard":
    """Return the card in a link; raise InvalidCard if it is not valid, or names a private node."""
    from enc.apps.people.contact_card import check_nodes, parse_card
    from enc.apps.people.names import bare_link
    from enc.runtime.clock import now_ms

    card = parse_card(bare_link(link), now_ms())
    check_nodes(card, ctx.settings.values["node"].value or "")
    return card


def keep_card(ctx: CommandContext, card: "ContactCard", book: "AddressBook", name: str | None = None) -> "Contact":
    """Store the person of a card, and pin their nodes' keys."""
    from enc.apps.people.contact_card import pin_card
    from enc.apps.people.lookup import NameTaken, store_card
    from enc.apps.people.names import folded
    from enc.client.verify.pins import FilePins, default_directory

    known = book.of(card.key)
    try:
        kept = store_card(book, card, name)
    except NameTaken as e:
        raise MisuseError(f"{e.message}: `enc me know NAME LINK`") from None
    ctx.note(f"{kept.name} is {short(card.key)}, by the card that this key signed on {format_time(card.at)}")
    if folded(kept.name) != folded(card.name):
        ctx.note(f"the card calls them {card.name}; yours stays {kept.name}")
    if known is not None and known.card_at > card.at:
        ctx.note("you have a newer card of theirs: its addresses stay")
    else:
        pin_card(card, FilePins(default_directory()))
    if card.registry is not None and not ctx.has_registry:
        ctx.note(f"to find them after a move, use their registry: enc config set registry {card.registry}")
    return kept


def place_of_store(store: str | None, there: str | None) -> "Place | None":
    """Return a person's store given by `--store` and `--at`, or None. Raises MisuseError."""
    from enc.apps.people.address_book import Place

    if there is not None and store is None:
        raise MisuseError("--at: needs --store")
    return None if store is None else Place(bytes.fromhex(known_ids.enclave(store, what="--store")), there)


def find_id(word: str, ids: dict[bytes, int]) -> bytes:
    """Return the id given by its seq or by its start. Raises MisuseError or EventNotFound."""
    if word.isdecimal() and len(word) <= 16:
        found = [id_ for id_, seq in ids.items() if seq == int(word)]
        if found:
            return found[0]
    known = {id_: f"seq {seq}" for id_, seq in ids.items()}
    if not (is_whole(word) or is_prefix(word, MIN_ENTRY)) or not starting(word, known):
        raise EventNotFound(f"{word}: no entry has this seq or id")
    return pick(word, known, "entry")
