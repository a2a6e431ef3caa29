"""The address book of a command: synced with the other devices through the personal store."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from enc.core.errors import EncError, MisuseError

if TYPE_CHECKING:
    from enc.apps.people.address_book import AddressBook
    from enc.apps.personal.book_sync import Synced
    from enc.cli.common.command_context import CommandContext
    from enc.client import Identity

PAUSE_MS = 60_000
"""After a sync that failed, commands use the copy on this machine for this long."""


@contextmanager
def open_book(ctx: "CommandContext", *, listing: bool = False) -> Iterator["AddressBook"]:
    """Yield the address book, synced before the block and, if it changes the book, after it.

    A sync that fails does not fail the command, and is not repeated by it: the copy on this machine is used,
    and the next command tries again. `listing`: the command is about the book itself, so it tries even soon
    after a failure, and does not ask for a passphrase.
    """
    from enc.apps import AddressBook

    book = AddressBook()
    has_failed = not _try_sync(ctx, book, now=listing, asks=not listing)
    before = book.contents()
    yield book
    if book.contents() != before and not has_failed:
        _try_sync(ctx, book, now=True, asks=not listing)


def followed_nodes(enclave: str) -> list[str]:
    """Return the node to which this or another device of the user followed an enclave, if any."""
    from enc.client.enclave.writes import as_bytes
    from enc.client.verify.pins import default_directory

    id_ = as_bytes(enclave, "enclave")
    if not (default_directory().parent / "contacts.json").exists():
        return []  # spares the import of the apps
    from enc.apps import AddressBook

    with suppress(MisuseError):  # a book that cannot be read is reported by the commands that need it
        node = AddressBook().follows().get(id_)
        return [] if node is None else [node]
    return []


def sync(ctx: "CommandContext", book: "AddressBook", identity: "Identity") -> "Synced":
    """Sync the book with the identity's store; raise NoPersonalStore if it has none."""
    from enc.apps import Personal
    from enc.apps.personal.book_sync import sync_book

    with ctx.client_as(identity, patience=0.0) as client:
        return sync_book(Personal.find(client, book=book), book)


def _try_sync(ctx: "CommandContext", book: "AddressBook", *, now: bool, asks: bool) -> bool:
    """Sync the book, unless that must wait; return False if it failed."""
    from enc.apps.personal.book_sync import is_paused, pause_sync
    from enc.apps.personal.send_notice import NoPersonalStore
    from enc.cli.common.failures import is_distrust

    identity = _identity(ctx, asks)
    if identity is None or (not now and is_paused(book, identity.public, PAUSE_MS)):
        return True
    try:
        sync(ctx, book, identity)
    except NoPersonalStore:
        pause_sync(book, identity.public, PAUSE_MS)
    except EncError as e:
        if is_distrust(e):
            raise
        pause_sync(book, identity.public, PAUSE_MS)
        if isinstance(e, MisuseError) or book.own(identity.public, "personal") is not None:
            ctx.note(f"names are not synced with your other devices: {e.message}; later commands try again")
        return False
    return True


def _identity(ctx: "CommandContext", asks: bool) -> "Identity | None":
    """Return the identity if there is one, and a node to ask; unless `asks`, only if its key opens without asking."""
    values = ctx.settings.values
    if values["identity"].value is None or (values["node"].value is None and values["registry"].value is None):
        return None
    return ctx.identity() if asks else ctx.identity_at_hand()
