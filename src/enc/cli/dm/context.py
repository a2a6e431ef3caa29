"""What a command of `enc dm` works with: one's mailbox, and the people that arguments name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import short
from enc.cli.common.prefixes import MIN_ENTRY, is_prefix, is_whole, pick
from enc.cli.me.context import Who, Yes, resolve_person
from enc.core.errors import EncError, MisuseError, WorldError

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox
    from enc.apps.people.address_book import AddressBook, Place
    from enc.client import Client

__all__ = ["At", "MailboxContext", "Where", "Who", "Yes", "find_mailbox", "open_mailbox"]

Where = Annotated[
    str | None,
    typer.Option("--mailbox", metavar="ID", help="Their mailbox, if no registry knows it. It is remembered."),
]
At = Annotated[str | None, typer.Option("--at", metavar="URL", help="The node of their mailbox.")]


class MailboxContext:
    """One's mailbox, with the address book that resolves names."""

    def __init__(self, ctx: CommandContext, client: "Client", book: "AddressBook", mailbox: "Mailbox") -> None:
        self._ctx, self._client, self._book, self.mailbox = ctx, client, book, mailbox

    def resolve(self, word: str, yes: bool = False) -> bytes:
        """Return the key of a person given by key or name.

        A name that only a registry knows is shown with its key, and kept once the user confirms it.
        """
        invited = {each.author: "invites you" for each in self.mailbox.invites()}
        met = {**invited, **{each.identity: "" for each in self.mailbox.contacts()}}
        return resolve_person(self._ctx, word, self._client, self._book, yes, met).identity

    @contextmanager
    def place_of(self, identity: bytes, mailbox: str | None, there: str | None) -> Iterator["Place | None"]:
        """Yield a contact's mailbox: the one given, else the known one.

        A given mailbox is stored in the address book if the block succeeds.
        """
        from enc.apps.people.address_book import Contact, Place

        known = self._book.of(identity)
        if mailbox is None:
            if there is not None:
                raise MisuseError("--at: needs --mailbox")
            yield None if known is None else known.places.get("dm")
            return
        place = Place(bytes.fromhex(known_ids.enclave(mailbox, what="--mailbox")), there)
        yield place
        if known is not None:
            self._book.put(Contact(known.name, identity, {"dm": place}))

    @cached_property
    def _names(self) -> dict[bytes, str]:
        return self._book.names()

    def name(self, identity: bytes) -> str:
        return self._names.get(identity, identity.hex())

    def explain(self, error: EncError) -> str:
        """Return an error's message with names instead of keys, and with commands instead of methods."""
        from enc.apps.dm import NoPlace

        if isinstance(error, NoPlace):
            return "their mailbox is unknown: give --mailbox ID, and --at URL if it is on another node"
        contact, own = error.context.get("contact"), self.mailbox.enclave.url
        message = error.message
        if contact is not None:
            message = message.replace(contact, self._name_and_key(contact), 1)
        elif isinstance(error, WorldError) and own and own in message:
            message = f"your own node does not answer: {message}"
        named = re.sub("[0-9a-f]{64}", lambda key: self.name(bytes.fromhex(key[0])), message)
        return named.replace(
            "`repair` sends it", "`enc dm repair`, or the next `enc dm chat` with them, sends it"
        ).replace("`repair`", "`enc dm repair`")

    def _name_and_key(self, key: str) -> str:
        """Return a person's name with the start of the key; of a person without a name the whole key."""
        identity = bytes.fromhex(key)
        return f"{self._names[identity]} ({short(identity)})" if identity in self._names else key

    def message_ref(self, who: bytes, id_: str | None, *, mine: bool) -> bytes:
        """Return the ref of one's own last message in any state, or of the message whose id starts with it."""
        if id_ is None:
            return self.mailbox.last(who).ref
        author = self.mailbox.identity if mine else who
        thread = self.mailbox.thread(who)
        refs = {each.id: each.ref for each in thread if each.author == author}
        if not (is_whole(id_) or is_prefix(id_, MIN_ENTRY)):
            raise MisuseError(f"{id_}: expected a message's id, or its first {MIN_ENTRY} or more digits")
        return refs[pick(id_, dict.fromkeys(refs, ""), "message")]


@contextmanager
def open_mailbox(ctx: CommandContext) -> Iterator[MailboxContext]:
    """Yield the mailbox of the profile's identity, synced."""
    with open_book(ctx) as book, ctx.client() as client:
        mailbox = find_mailbox(client, book)
        dm = MailboxContext(ctx, client, book, mailbox)
        try:
            mailbox.sync()
            yield dm
        except EncError as e:
            e.message = dm.explain(e)
            raise


def find_mailbox(client: "Client", book: "AddressBook") -> "Mailbox":
    from enc.apps.dm import Mailbox, NoPlace

    try:
        return Mailbox.find(client, book=book)
    except NoPlace:
        where = f"at {client.url}" if client.url else "in the registry"
        raise MisuseError(
            f"no mailbox of yours was found {where}. If you have one on another node, run `enc config set node URL`; "
            "`enc dm use ID` uses one on this node; otherwise `enc dm create` makes one"
        ) from None
