"""Contacts of `enc dm`: the people who may write to you."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.command import NODE, command
from enc.cli.dm_desk import At, Desk, Where, Who, Yes, desk
from enc.cli.output import Row, short, when
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.apps.dm import Contact, Mailbox

app = typer.Typer()


@command(app, "enc dm contacts", flags=NODE)
def contacts(at: Terminal) -> None:
    """List everybody you exchanged messages or invitations with."""
    with desk(at) as here:
        found = here.mailbox.contacts()
        columns = ("who", "state", "messages", "last", "key")
        at.rows(columns, (_contact(here, each) for each in found))


def _contact(here: Desk, contact: "Contact") -> Row:
    name, key = here.name(contact.identity), contact.identity.hex()
    wire = {
        "name": name,
        "identity": key,
        "state": contact.state,
        "messages": contact.messages,
        "last_at": contact.last_at,
        "own_epoch": contact.own_epoch,
        "given_epoch": contact.given_epoch,
    }
    last = when(contact.last_at) if contact.messages else ""
    return wire, (name if name != key else short(contact.identity), contact.state, str(contact.messages), last, key)


@command(app, "enc dm invites", flags=NODE)
def invites(at: Terminal) -> None:
    """List the people who want to be your contact. Anybody can write any greeting: check the key."""
    with desk(at) as here:
        at.rows(
            ("time", "key", "greeting"),
            (
                (
                    {"identity": each.author.hex(), "at": each.at, "greeting": each.greeting},
                    (when(each.at), each.author.hex(), each.greeting),
                )
                for each in here.mailbox.invites()
            ),
        )


@command(
    app, "enc dm add bob --greeting 'Hi, Bob'", "enc dm add 3f0c… --mailbox 5c1f… --at https://node.example", flags=NODE
)
def add(
    at: Terminal,
    who: Who,
    greeting: Annotated[str, typer.Option(metavar="TEXT", help="Text of the invitation; sealed.")] = "",
    mailbox: Where = None,
    there: At = None,
    yes: Yes = False,
) -> None:
    """Add a contact, and invite them to do the same."""
    with desk(at) as here:
        identity = here.who(who, yes)
        with here.place(identity, mailbox, there) as place:
            here.mailbox.add(identity, place, greeting=greeting)
        _standing(at, here, identity)


@command(app, "enc dm accept 3f0c…", flags=NODE)
def accept(at: Terminal, who: Who, mailbox: Where = None, there: At = None, yes: Yes = False) -> None:
    """Accept an invitation: its sender becomes a contact."""
    with desk(at) as here:
        identity = here.who(who, yes)
        with here.place(identity, mailbox, there) as place:
            here.mailbox.accept(identity, place)
        _standing(at, here, identity)


@command(app, "enc dm rotate bob", flags=NODE)
def rotate(at: Terminal, who: Who, yes: Yes = False) -> None:
    """Make new keys for a contact's messages to you. They are sent with your next message."""
    with desk(at) as here:
        identity = here.who(who, yes)
        epoch = here.mailbox.rotate(identity)
        wire = {"identity": identity.hex(), "state": here.mailbox.contact(identity).state, "epoch": epoch}
        at.say(wire, f"epoch {epoch} is sent to {here.name(identity)} with your next message")


def _standing(at: Terminal, here: Desk, identity: bytes) -> None:
    contact = here.mailbox.contact(identity)
    wire = {"identity": identity.hex(), "state": contact.state, "epoch": contact.own_epoch}
    at.say(wire, f"{here.name(identity)} is {contact.state}")


def _about(name: str, help_: str, act: Callable[["Mailbox", bytes], object]) -> None:
    """Register a command that acts on one person."""

    def work(at: Terminal, who: Who, yes: Yes = False) -> None:
        with desk(at) as here:
            identity = here.who(who, yes)
            act(here.mailbox, identity)
            _standing(at, here, identity)

    work.__doc__ = help_
    command(app, f"enc dm {name} bob", flags=NODE, name=name)(work)


_about("decline", "Delete an invitation.", lambda mailbox, who: mailbox.decline(who))
_about(
    "remove",
    "Remove or unblock a contact: they become a stranger.",
    lambda mailbox, who: mailbox.remove(who),
)
_about(
    "block",
    "Block a person: they can neither write, nor edit their messages, nor invite you.",
    lambda mailbox, who: mailbox.block(who),
)
_about("unblock", "Unblock a person: they become a contact again.", lambda mailbox, who: mailbox.unblock(who))
