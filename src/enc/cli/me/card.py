"""The contact card of `enc me`, and the sync of the address book."""

from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common.book import open_book, sync
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox
    from enc.apps.people.address_book import AddressBook
    from enc.apps.personal import Personal
    from enc.client import Client

app = typer.Typer()


@command(app, "enc me card", "enc me card --name 'Ada L.'", flags=NODE)
def card(
    ctx: CommandContext,
    name: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The name on it. Default: the display name of your profile.")
    ] = None,
) -> None:
    """Print your contact card: a link with your key, your name, and where your store and your mailbox are.

    Your key signs it. It is not secret. Others give it as WHO, for example `enc dm add LINK`.
    """
    from enc.apps.people.contact_card import MAILBOX, STORE, card_enclave, card_registry, sign_card
    from enc.runtime.clock import now_ms

    with open_book(ctx) as book, ctx.client() as client:
        store, mailbox = _own_store(client, book), _own_mailbox(client, book)
        name = name or (store.profile().display_name if store is not None else None)
        if not name:
            raise MisuseError("your profile has no name: give --name TEXT, or set one: `enc me profile --name TEXT`")
        own = {STORE: store, MAILBOX: mailbox}
        enclaves = {label: card_enclave(each.enclave) for label, each in own.items() if each is not None}
        link = sign_card(client.identity, name, now_ms(), enclaves, card_registry(client))
        ids = {"store": store and store.enclave.hex, "mailbox": mailbox and mailbox.enclave.hex}
        ctx.emit({"card": link, "identity": client.identity.hex, "name": name, **ids}, link)
    if store is None:
        ctx.note("the card names no personal store: `enc me create` makes one")
    if mailbox is None:
        ctx.note("the card names no mailbox: `enc dm create` makes one")


def _own_store(client: "Client", book: "AddressBook") -> "Personal | None":
    from enc.apps import Personal
    from enc.apps.personal.send_notice import NoPersonalStore

    try:
        return Personal.find(client, book=book)
    except NoPersonalStore:
        return None


def _own_mailbox(client: "Client", book: "AddressBook") -> "Mailbox | None":
    from enc.apps.dm import Mailbox, NoPlace

    try:
        return Mailbox.find(client, book=book)
    except NoPlace:
        return None


@command(app, "enc me sync", flags=NODE, name="sync")
def sync_now(ctx: CommandContext) -> None:
    """Sync your address book with your other devices, now. Other commands do so when they use names."""
    from enc.apps import AddressBook

    done = sync(ctx, AddressBook(), ctx.identity())
    wire = {"received": done.received, "sent": done.sent}
    ctx.emit(wire, fields(**wire))
