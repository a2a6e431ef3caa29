"""Contacts of `enc dm`: who may write to you."""

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
    """Everybody with whom there is, or was, anything."""
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
    """Who wants to be your contact. What they say of themselves is their word: look at the key."""
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
    greeting: Annotated[str, typer.Option(metavar="TEXT", help="What your invitation says; sealed.")] = "",
    mailbox: Where = None,
    there: At = None,
    yes: Yes = False,
) -> None:
    """Make somebody a contact, and invite them to do the same."""
    with desk(at) as here:
        identity = here.who(who, yes)
        with here.place(identity, mailbox, there) as place:
            here.mailbox.add(identity, place, greeting=greeting)
        _standing(at, here, identity)


@command(app, "enc dm accept 3f0c…", flags=NODE)
def accept(at: Terminal, who: Who, mailbox: Where = None, there: At = None, yes: Yes = False) -> None:
    """Make somebody a contact who has invited you."""
    with desk(at) as here:
        identity = here.who(who, yes)
        with here.place(identity, mailbox, there) as place:
            here.mailbox.accept(identity, place)
        _standing(at, here, identity)


@command(app, "enc dm rotate bob", flags=NODE)
def rotate(at: Terminal, who: Who, yes: Yes = False) -> None:
    """New keys for what a contact writes to you, from your next message to them on."""
    with desk(at) as here:
        identity = here.who(who, yes)
        epoch = here.mailbox.rotate(identity)
        wire = {"identity": identity.hex(), "state": here.mailbox.contact(identity).state, "epoch": epoch}
        at.say(wire, f"epoch {epoch} goes to {here.name(identity)} with your next message")


def _standing(at: Terminal, here: Desk, identity: bytes) -> None:
    contact = here.mailbox.contact(identity)
    wire = {"identity": identity.hex(), "state": contact.state, "epoch": contact.own_epoch}
    at.say(wire, f"{here.name(identity)} is {contact.state}")


def _about(name: str, help_: str, act: Callable[["Mailbox", bytes], object]) -> None:
    """A command that does one thing to one person."""

    def work(at: Terminal, who: Who, yes: Yes = False) -> None:
        with desk(at) as here:
            identity = here.who(who, yes)
            act(here.mailbox, identity)
            _standing(at, here, identity)

    work.__doc__ = help_
    command(app, f"enc dm {name} bob", flags=NODE, name=name)(work)


_about("decline", "Delete somebody's invitation.", lambda mailbox, who: mailbox.decline(who))
_about(
    "remove",
    "Somebody is a contact no more, or blocked no more: a stranger.",
    lambda mailbox, who: mailbox.remove(who),
)
_about(
    "block",
    "Somebody may neither write, nor revise what they wrote, nor invite you.",
    lambda mailbox, who: mailbox.block(who),
)
_about("unblock", "Somebody who was blocked is a contact again.", lambda mailbox, who: mailbox.unblock(who))
