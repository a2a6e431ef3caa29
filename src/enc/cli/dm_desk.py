"""Whose mailbox a command of `enc dm` is about, and who is meant by a word."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.me_desk import Who, Yes, person
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.address_book import AddressBook, Place
    from enc.apps.dm import Mailbox
    from enc.client import Client

__all__ = ["At", "Desk", "Where", "Who", "Yes", "desk", "open_mailbox"]

Where = Annotated[
    str | None, typer.Option("--mailbox", metavar="ID", help="Their mailbox, if no registry knows it. It is kept.")
]
At = Annotated[str | None, typer.Option("--at", metavar="URL", help="The node that their mailbox is on.")]


class Desk:
    """One's mailbox, and who is meant by a word."""

    def __init__(self, at: Terminal, client: "Client", book: "AddressBook", mailbox: "Mailbox") -> None:
        self._at, self._client, self._book, self.mailbox = at, client, book, mailbox

    def who(self, word: str, yes: bool = False) -> bytes:
        """A key, or a name; one that only a registry knows is shown with its key, and kept if that is right."""
        return person(self._at, word, self._client, self._book, yes).identity

    def place(self, identity: bytes, mailbox: str | None, there: str | None) -> "Place | None":
        """Where a contact's mailbox is: as it is given now, which is kept under their name; or as it was before."""
        from enc.apps.address_book import Contact, Place
        from enc.client.writes import as_bytes

        known = self._book.of(identity)
        if mailbox is None:
            if there is not None:
                raise MisuseError("--at goes with --mailbox")
            return None if known is None else known.places.get("dm")
        place = Place(as_bytes(mailbox, "mailbox"), there)
        if known is not None:
            self._book.put(Contact(known.name, identity, {"dm": place}))
        return place

    def name(self, identity: bytes) -> str:
        known = self._book.of(identity)
        return identity.hex() if known is None else known.name

    def message(self, who: bytes, id_: str | None, *, mine: bool) -> bytes:
        """Which message: the last of one's own that can be revised, or the one whose id begins so."""
        author = self.mailbox.identity if mine else who
        found = [entry for entry in self.mailbox.thread(who) if entry.author == author]
        if id_ is None:
            found = [entry for entry in found if entry.state == "delivered" and entry.kind == "message"][-1:]
        else:
            found = [entry for entry in found if entry.id.hex().startswith(id_.lower())]
        if len(found) != 1:
            raise MisuseError("several messages have an id that begins so" if found else "there is no such message")
        return found[0].ref


@contextmanager
def desk(at: Terminal) -> Iterator[Desk]:
    """The mailbox of the profile's identity, up to date."""
    with at.client() as client:
        book, mailbox = open_mailbox(client)
        mailbox.sync()
        yield Desk(at, client, book, mailbox)


def open_mailbox(client: "Client") -> "tuple[AddressBook, Mailbox]":
    from enc.apps.address_book import AddressBook
    from enc.apps.announcing import registered
    from enc.apps.dm import Mailbox

    book = AddressBook()
    own = book.own(client.identity.public, "dm")
    found = registered(client, "dm") if own is None else own.enclave
    if found is None:
        raise MisuseError("you have no mailbox yet: `enc dm create`; if you have, `enc dm use ID`")
    node = None if own is None or own.node == client.url else own.node
    return book, Mailbox(client, found, at=node)
