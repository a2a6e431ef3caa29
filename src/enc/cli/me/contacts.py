"""The address book of `enc me`: your names for people's keys, and their enclaves."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import OutputRow, fields
from enc.cli.common.prefixes import check_whole
from enc.cli.me.context import Who, Yes, checked_card, keep_card, resolve_person, whole_key
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.people.address_book import AddressBook, Contact

app = typer.Typer()


@command(app, "enc me contacts", flags=NODE)
def contacts(ctx: CommandContext) -> None:
    """List the people in your address book. Works offline, with the copy on this machine."""
    with open_book(ctx, listing=True) as book:
        found = book.contacts()
        ctx.rows(("name", "identity", "enclaves"), map(_row, found))
        if not found:
            _note_empty(ctx, book)


def _note_empty(ctx: CommandContext, book: "AddressBook") -> None:
    """Explain an empty address book: on a new device, the node may be the wrong one."""
    node, has_identity = ctx.settings.values["node"].value, ctx.settings.values["identity"].value is not None
    identity = ctx.identity_at_hand() if has_identity else None
    if identity is None or book.own(identity.public, "personal") is not None:
        ctx.note("your address book is empty")
        return
    where = f"at {node}" if node else "in the registry"
    ctx.note(
        f"your address book is empty: no personal store of yours was found {where}. "
        "If you have one on another node, run `enc config set node URL`; otherwise `enc me create` makes one"
    )


def _wire(contact: "Contact") -> dict[str, Any]:
    places = {label: {"enclave": place.enclave.hex(), "node": place.node} for label, place in contact.places.items()}
    return {"name": contact.name, "identity": contact.identity.hex(), "enclaves": places}


def _row(contact: "Contact") -> OutputRow:
    return _wire(contact), (contact.name, contact.identity.hex(), " ".join(sorted(contact.places)))


@command(
    app,
    "enc me know bob 3f0c…",
    "enc me know bob enc:card:…",
    "enc me know bob 3f0c… --store 77ab… --at https://node.example",
    flags=NODE,
)
def know(
    ctx: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Your name for them.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Their public key, all 64 hex digits; or a contact card.")],
    to: Annotated[str | None, typer.Option("--store", metavar="ID", help="Their personal store.")] = None,
    mailbox: Annotated[str | None, typer.Option(metavar="ID", help="Their mailbox.")] = None,
    there: Annotated[str | None, typer.Option("--at", metavar="URL", help="The node of these enclaves.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Reassign a name that is another person's now.")] = False,
) -> None:
    """Add a person to your address book."""
    from enc.apps.people.address_book import Contact, Place
    from enc.apps.people.names import is_link

    if there is not None and to is None and mailbox is None:
        raise MisuseError("--at: needs --store or --mailbox")
    if not is_link(key):
        check_whole(key, "KEY")
    given = {"personal": to, "dm": mailbox}
    ids = {label: known_ids.enclave(id_, what=label) for label, id_ in given.items() if id_ is not None}
    places = {label: Place(bytes.fromhex(id_), there) for label, id_ in ids.items()}
    with open_book(ctx, listing=True) as book:
        card = checked_card(ctx, key) if is_link(key) else None
        identity = bytes.fromhex(key) if card is None else card.key
        before = book.get(name)
        if before is not None and before.identity != identity:
            if not again:
                raise MisuseError(f"{before.name} is {before.identity.hex()}: --again reassigns the name")
            book.remove(name)
        if card is not None:
            keep_card(ctx, card, book, name)
        found = book.put(Contact(name, identity, places))
    ctx.emit(_wire(found), fields(name=found.name, identity=found.identity.hex()))


@command(app, "enc me forget bob", flags=NODE)
def forget(
    ctx: CommandContext, name: Annotated[str, typer.Argument(metavar="NAME", help="Your name for them.")]
) -> None:
    """Remove a person from your address book."""
    with open_book(ctx, listing=True) as book:
        book.remove(name)
    ctx.emit({"forgotten": name}, f"{name} is forgotten")


@command(app, "enc me whois 'Ada L.'", flags=NODE)
def whois(ctx: CommandContext, who: Who, yes: Yes = False) -> None:
    """Print the key of a person: of a name in your address book, or else in the registry.

    Anybody can register any name: --yes confirms the key of one from the registry, and stores it.
    """
    from enc.apps.people.lookup import find

    with open_book(ctx, listing=True) as book, ctx.client_as(None) as client:
        found = resolve_person(ctx, who, client, book, yes) if yes else find(whole_key(who), book, client)
    wire = {"identity": found.identity.hex(), "name": found.name or "", "source": found.source}
    ctx.emit(wire, fields(**wire))
