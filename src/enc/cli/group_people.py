"""`enc group invite`, `approve`, `decline`, `remove`, `block`, `mute`, `admin`, `transfer`: who is there, as what."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.command import NODE, command
from enc.cli.group_room import GroupName, Whom, opened, whom
from enc.cli.group_view import untold
from enc.cli.output import fields, when
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.apps.group import Group, Invited
    from enc.core.types import Receipt

app = typer.Typer()
PANEL = "People"

Greeting = Annotated[str | None, typer.Option(metavar="TEXT", help="A word to go with it, sealed to them.")]
PersonalOf = Annotated[
    str | None,
    typer.Option("--personal", metavar="ID", help="Their personal enclave. Else: the one that the registry has."),
]
NoNotice = Annotated[bool, typer.Option("--no-notice", help="Tell them yourself: write nothing to their enclave.")]


@command(app, "enc group invite plans bob", 'enc group invite plans bob --greeting "come in"', flags=NODE, panel=PANEL)
def invite(
    at: Terminal,
    name: GroupName,
    who: Whom,
    greeting: Greeting = None,
    personal: PersonalOf = None,
    no_notice: NoNotice = False,
) -> None:
    """Make somebody a member, as an admin, and tell them in their personal enclave. They read from now on."""
    with opened(at, name) as (group, names, client):
        group.sync()
        told = None if personal is None else client.enclave(personal)
        invited = group.invite(whom(group, names, who), greeting=greeting, personal=told, notify=not no_notice)
        _say_invited(at, group, invited, quiet=no_notice, given=personal is not None)


@command(app, "enc group approve plans bob", flags=NODE, panel=PANEL)
def approve(
    at: Terminal,
    name: GroupName,
    who: Whom,
    greeting: Greeting = None,
    personal: PersonalOf = None,
    no_notice: NoNotice = False,
) -> None:
    """Let an applicant in, as an admin, and tell them."""
    with opened(at, name) as (group, names, client):
        group.sync()
        told = None if personal is None else client.enclave(personal)
        invited = group.approve(whom(group, names, who), greeting=greeting, personal=told, notify=not no_notice)
        _say_invited(at, group, invited, quiet=no_notice, given=personal is not None)


def _say_invited(at: Terminal, group: "Group", invited: "Invited", *, quiet: bool, given: bool) -> None:
    from enc.core.receipt import wire_receipt

    receipt, notice = invited.receipt, invited.notice
    wire = {**wire_receipt(receipt), "enclave": group.hex, "notice": notice and wire_receipt(notice)}
    at.say(wire, fields(seq=receipt.seq, id=receipt.id.hex(), time=when(receipt.timestamp), told=notice is not None))
    if notice is None and not quiet:
        at.note(untold(invited, group, has_registry=given or at.has_registry))


def _about(name: str, help_: str, act: Callable[["Group", bytes], "Receipt"]) -> None:
    """A command that does one thing to one person."""

    def work(at: Terminal, name: GroupName, who: Whom) -> None:
        with opened(at, name) as (group, names, _):
            group.sync()
            at.receipt(group.enclave, act(group, whom(group, names, who)))

    work.__doc__ = help_
    command(app, f"enc group {name} plans bob", flags=NODE, name=name, panel=PANEL)(work)


_about("decline", "Turn an applicant down, as an admin.", lambda group, who: group.decline(who))
_about("remove", "Put a member out, as an admin. They read nothing after it.", lambda group, who: group.remove(who))
_about("block", "Put somebody out for good, member or not, as an admin.", lambda group, who: group.block(who))
_about(
    "unblock", "Block somebody no more, as an admin. They are no member by it.", lambda group, who: group.unblock(who)
)
_about("mute", "Let a member read and not speak, as an admin.", lambda group, who: group.mute(who))
_about("unmute", "Let a member speak again, as an admin.", lambda group, who: group.unmute(who))
_about("admin", "Make a member an admin, as the owner.", lambda group, who: group.make_admin(who))
_about(
    "unadmin", "Make an admin a plain member, as the owner; or yourself.", lambda group, who: group.unmake_admin(who)
)
_about("transfer", "Pass ownership on to a member: you have it no more.", lambda group, who: group.transfer(who))
