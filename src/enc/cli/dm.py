"""`enc dm`: direct messages. Whatever is written is sealed here; no node sees a text."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from enc.cli import dm_contacts
from enc.cli.command import NODE, command
from enc.cli.dm_desk import At, Desk, Where, Who, Yes, desk, open_mailbox
from enc.cli.exits import FAILED
from enc.cli.output import Row, fields, when
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.dm import Entry, Mailbox
    from enc.client import Client

DAY_S = 86_400.0
"""How long a chat waits for a line that was cut."""

app = typer.Typer(
    name="dm",
    help="Direct messages: a mailbox of your own, contacts, and what you say to each other, sealed.",
    no_args_is_help=True,
)
app.add_typer(dm_contacts.app)

Message = Annotated[
    str | None, typer.Option("--message", metavar="ID", help="Which, by its id or the start of it. Default: your last.")
]


# The mailbox


@command(app, "enc dm create --name Alice", flags=NODE)
def create(
    at: Terminal,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="What others find you by in the registry.")] = None,
) -> None:
    """Found your mailbox on the node, and make it known in the registry, if there is one."""
    from enc.apps.address_book import AddressBook, Place
    from enc.apps.dm import Mailbox

    with at.client() as client:
        book = AddressBook()
        if book.own(client.identity.public, "dm") is not None:
            raise MisuseError("you have a mailbox already: `enc dm status` shows it")
        mailbox = Mailbox.create(client, name=name)
        book.set_own(client.identity.public, "dm", Place(mailbox.enclave.id, client.url or None))
        _told(at, mailbox, client)


@command(app, "enc dm use 5c1f…", flags=NODE)
def use(at: Terminal, which: Annotated[str, typer.Argument(metavar="ENCLAVE", help="Your mailbox's id.")]) -> None:
    """Use a mailbox that you have, on a new device for example: everything in it is yours again by your key alone."""
    from enc.apps.address_book import AddressBook, Place
    from enc.apps.dm import Mailbox

    with at.client() as client:
        mailbox = Mailbox(client, which)
        mailbox.sync()
        AddressBook().set_own(client.identity.public, "dm", Place(mailbox.enclave.id, client.url or None))
        _told(at, mailbox, client)


def _told(at: Terminal, mailbox: "Mailbox", client: "Client") -> None:
    wire = {"mailbox": mailbox.enclave.hex, "identity": client.identity.hex, "node": mailbox.enclave.url}
    at.say(wire, fields(**wire))


@command(app, "enc dm status", flags=NODE)
def status(at: Terminal) -> None:
    """Your mailbox: where it is, who waits, and what in it could not be read."""
    with desk(at) as here:
        mailbox = here.mailbox
        refused = [{"seq": each.seq, "author": each.author.hex(), "code": each.error.code} for each in mailbox.refusals]
        wire = {
            "mailbox": mailbox.enclave.hex,
            "node": mailbox.enclave.url,
            "contacts": sum(each.state == "FRIEND" for each in mailbox.contacts()),
            "invites": len(mailbox.invites()),
            "open": mailbox.is_open,
            "refused": refused,
        }
        told = ", ".join(f"{each['code']} at seq {each['seq']}" for each in refused) or "nothing"
        at.say(wire, fields(**{**wire, "refused": told}))


@command(app, "enc dm invitations closed", flags=NODE)
def invitations(
    at: Terminal,
    state: Annotated[Literal["open", "closed"], typer.Argument(metavar="open|closed", help="What it becomes.")],
) -> None:
    """Open or close the mailbox to strangers."""
    with desk(at) as here:
        here.mailbox.take_invites(state == "open")
        at.say({"open": state == "open"}, state)


# Messages


@command(app, "enc dm send bob 'See you at 8'", flags=NODE)
def send(
    at: Terminal,
    who: Who,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; -: from stdin.")],
    mailbox: Where = None,
    there: At = None,
    yes: Yes = False,
) -> None:
    """Send a message. One that is refused stays in the thread as refused."""
    said = sys.stdin.read().rstrip("\n") if text == "-" else text
    with desk(at) as here:
        identity = here.who(who, yes)
        _said(at, here, here.mailbox.send(identity, said, here.place(identity, mailbox, there)))


@command(app, "enc dm edit bob 'See you at 9'", flags=NODE)
def edit(
    at: Terminal,
    who: Who,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What it says from now on.")],
    message: Message = None,
) -> None:
    """Replace what a message of yours says."""
    with desk(at) as here:
        identity = here.who(who)
        _said(at, here, here.mailbox.edit(identity, here.message(identity, message, mine=True), text))


@command(app, "enc dm retract bob", flags=NODE)
def retract(at: Terminal, who: Who, message: Message = None) -> None:
    """Take back a message of yours: its text is erased in both mailboxes."""
    with desk(at) as here:
        identity = here.who(who)
        _said(at, here, here.mailbox.retract(identity, here.message(identity, message, mine=True)))


@command(app, "enc dm delete bob 5c1f", flags=NODE)
def delete(
    at: Terminal,
    who: Who,
    message: Annotated[str, typer.Argument(metavar="ID", help="Which, by its id or the start of it.")],
) -> None:
    """Delete what a contact wrote from your mailbox. They are not told."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.delete(identity, here.message(identity, message, mine=False))
        at.say({"deleted": message}, "deleted")


@command(app, "enc dm read bob", "enc dm read bob --limit 10 --json", flags=NODE)
def read(
    at: Terminal,
    who: Who,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="The last so many.")] = None,
) -> None:
    """What you and a contact said."""
    with desk(at) as here:
        thread = here.mailbox.thread(here.who(who))
        at.rows(("time", "who", "state", "text"), (_row(here, entry) for entry in thread[-(limit or len(thread)) :]))


@command(app, "enc dm repair", flags=NODE)
def repair(at: Terminal) -> None:
    """Send what was begun, here or on another device, and is not known to have arrived. Nothing arrives twice."""
    with desk(at) as here:
        failed = here.mailbox.repair()
        wire = {"failed": [{"identity": who.hex(), "code": error.code} for who, error in failed]}
        at.say(wire, "\n".join(f"{here.name(who)}: {error.code}" for who, error in failed) or "nothing is pending")


@command(app, "enc dm chat bob", "enc dm chat bob --history 100", flags=NODE)
def chat(
    at: Terminal,
    who: Who,
    history: Annotated[int, typer.Option(min=0, metavar="N", help="How much of what was said to show.")] = 20,
    yes: Yes = False,
) -> None:
    """Talk with a contact: what was said, what comes, and each line that you type. /help tells the rest.

    Through a pipe, each line of stdin is sent; it ends when they do, and all is delivered.
    """
    from enc.cli.chat import Chat, typed_lines
    from enc.cli.chat_screen import Screen

    me = at.identity()
    with at.client_as(me) as shows, at.client_as(me) as writes, at.client_as(me, patience=DAY_S) as listens:
        (book, shown), (_, written), (_, heard) = open_mailbox(shows), open_mailbox(writes), open_mailbox(listens)
        here = Desk(at, shows, book, shown)
        identity = here.who(who, yes)
        screen = Screen(me.public, here.name(identity), is_typed=sys.stdin.isatty())
        talk = Chat(shown, written, identity, screen, (lambda entry: at.say(_wire(entry), "")) if at.as_json else None)
        talk.history(history)
        with typed_lines() as lines:
            talk.run(heard.enclave, lines)
    if talk.has_failed and not sys.stdin.isatty():
        raise typer.Exit(FAILED)


def _said(at: Terminal, here: Desk, entry: "Entry") -> None:
    at.say(_wire(entry), f"{entry.state} {entry.id.hex()}")


def _row(here: Desk, entry: "Entry") -> Row:
    wire, is_mine = _wire(entry), entry.author == here.mailbox.identity
    state = f"{entry.state}{', edited' if entry.is_edited else ''}{f', {entry.code}' if entry.code else ''}"
    name = "you" if is_mine else here.name(entry.author)
    return wire, (when(entry.at), name, state, entry.text or "")


def _wire(entry: "Entry") -> dict[str, Any]:
    return {
        "id": entry.id.hex(),
        "at": entry.at,
        "author": entry.author.hex(),
        "text": entry.text,
        "state": entry.state,
        "edited": entry.is_edited,
        "code": entry.code,
        "kind": entry.kind,
    }
