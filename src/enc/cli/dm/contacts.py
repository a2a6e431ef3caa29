"""Contacts of `enc dm`: the people who may write to you."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import OutputRow, format_time, short
from enc.cli.dm.context import At, MailboxContext, Where, Who, Yes, open_mailbox

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox, MailboxContact

app = typer.Typer()


@command(app, "enc dm contacts", flags=NODE)
def contacts(ctx: CommandContext) -> None:
    """List everybody you exchanged messages or invitations with."""
    with open_mailbox(ctx) as dm:
        found = dm.mailbox.contacts()
        columns = ("who", "state", "messages", "last", "key")
        ctx.rows(columns, (_contact(dm, each) for each in found))


def _contact(dm: MailboxContext, contact: "MailboxContact") -> OutputRow:
    name, key = dm.name(contact.identity), contact.identity.hex()
    wire = {
        "name": name,
        "identity": key,
        "state": contact.state,
        "messages": contact.messages,
        "last_at": contact.last_at,
        "own_epoch": contact.own_epoch,
        "given_epoch": contact.given_epoch,
    }
    last = format_time(contact.last_at) if contact.messages else ""
    return wire, (name if name != key else short(contact.identity), contact.state, str(contact.messages), last, key)


@command(app, "enc dm invites", flags=NODE)
def invites(ctx: CommandContext) -> None:
    """List the people who want to be your contact. Anybody can write any greeting: check the key."""
    with open_mailbox(ctx) as dm:
        ctx.rows(
            ("time", "key", "greeting"),
            (
                (
                    {"identity": each.author.hex(), "at": each.at, "greeting": each.greeting},
                    (format_time(each.at), each.author.hex(), each.greeting),
                )
                for each in dm.mailbox.invites()
            ),
        )


@command(
    app, "enc dm add bob --greeting 'Hi, Bob'", "enc dm add 3f0c… --mailbox 5c1f… --at https://node.example", flags=NODE
)
def add(
    ctx: CommandContext,
    who: Who,
    greeting: Annotated[str, typer.Option(metavar="TEXT", help="Text of the invitation; sealed.")] = "",
    mailbox: Where = None,
    there: At = None,
    yes: Yes = False,
) -> None:
    """Add a contact, and invite them to do the same."""
    with open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        with dm.place_of(identity, mailbox, there) as place:
            dm.mailbox.add(identity, place, greeting=greeting)
        _print_contact(ctx, dm, identity)


@command(app, "enc dm accept 3f0c…", flags=NODE)
def accept(ctx: CommandContext, who: Who, mailbox: Where = None, there: At = None, yes: Yes = False) -> None:
    """Accept an invitation: its sender becomes a contact."""
    with open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        with dm.place_of(identity, mailbox, there) as place:
            dm.mailbox.accept(identity, place)
        _print_contact(ctx, dm, identity)


@command(app, "enc dm rotate bob", flags=NODE)
def rotate(ctx: CommandContext, who: Who, yes: Yes = False) -> None:
    """Make new keys for a contact's messages to you. They are sent with your next message."""
    with open_mailbox(ctx) as dm:
        identity = dm.resolve(who, yes)
        epoch = dm.mailbox.rotate(identity)
        wire = {"identity": identity.hex(), "state": dm.mailbox.contact(identity).state, "epoch": epoch}
        ctx.emit(wire, f"epoch {epoch} is sent to {dm.name(identity)} with your next message")


def _print_contact(ctx: CommandContext, dm: MailboxContext, identity: bytes) -> None:
    contact = dm.mailbox.contact(identity)
    wire = {"identity": identity.hex(), "state": contact.state, "epoch": contact.own_epoch}
    ctx.emit(wire, f"{dm.name(identity)} is {contact.state}")


def _person_command(name: str, help_: str, act: Callable[["Mailbox", bytes], object]) -> None:
    """Register a command that acts on one person."""

    def work(ctx: CommandContext, who: Who, yes: Yes = False) -> None:
        with open_mailbox(ctx) as dm:
            identity = dm.resolve(who, yes)
            act(dm.mailbox, identity)
            _print_contact(ctx, dm, identity)

    work.__doc__ = help_
    command(app, f"enc dm {name} bob", flags=NODE, name=name)(work)


_person_command("decline", "Delete an invitation.", lambda mailbox, who: mailbox.decline(who))
_person_command(
    "remove",
    "Remove or unblock a contact: they become a stranger.",
    lambda mailbox, who: mailbox.remove(who),
)
_person_command(
    "block",
    "Block a person: they can neither write, nor edit their messages, nor invite you.",
    lambda mailbox, who: mailbox.block(who),
)
_person_command("unblock", "Unblock a person: they become a contact again.", lambda mailbox, who: mailbox.unblock(who))
