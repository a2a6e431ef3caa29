"""Contacts of `enc dm`: who may write to you."""

from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.command import NODE, command
from enc.cli.dm_desk import At, Desk, Where, Who, Yes, desk
from enc.cli.output import Row, short, when
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.apps.dm import Contact

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
        here.mailbox.add(identity, here.place(identity, mailbox, there), greeting=greeting)
        _standing(at, here, identity)


@command(app, "enc dm accept 3f0c…", flags=NODE)
def accept(at: Terminal, who: Who, mailbox: Where = None, there: At = None) -> None:
    """Make somebody a contact who has invited you."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.accept(identity, here.place(identity, mailbox, there))
        _standing(at, here, identity)


@command(app, "enc dm decline 3f0c…", flags=NODE)
def decline(at: Terminal, who: Who) -> None:
    """Delete somebody's invitation."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.decline(identity)
        _standing(at, here, identity)


@command(app, "enc dm remove bob", flags=NODE)
def remove(at: Terminal, who: Who) -> None:
    """Somebody is a contact no more, or blocked no more: a stranger."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.remove(identity)
        _standing(at, here, identity)


@command(app, "enc dm block bob", flags=NODE)
def block(at: Terminal, who: Who) -> None:
    """Somebody may neither write, nor revise what they wrote, nor invite you."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.block(identity)
        _standing(at, here, identity)


@command(app, "enc dm unblock bob", flags=NODE)
def unblock(at: Terminal, who: Who) -> None:
    """Somebody who was blocked is a contact again."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.unblock(identity)
        _standing(at, here, identity)


@command(app, "enc dm rotate bob", flags=NODE)
def rotate(at: Terminal, who: Who) -> None:
    """New keys for what a contact writes to you, from your next message to them on."""
    with desk(at) as here:
        identity = here.who(who)
        here.mailbox.rotate(identity)
        _standing(at, here, identity)


def _standing(at: Terminal, here: Desk, identity: bytes) -> None:
    contact = here.mailbox.contact(identity)
    wire = {"identity": identity.hex(), "state": contact.state, "epoch": contact.own_epoch}
    at.say(wire, f"{here.name(identity)} is {contact.state}")
