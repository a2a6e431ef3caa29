"""`enc group invite`, `approve`, `decline`, `remove`, `block`, `mute`, `admin`, `transfer`: members and roles."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields, format_time
from enc.cli.group.context import GroupName, Whom, confirmed_person, hint_at_yes, open_group
from enc.cli.group.view import not_notified
from enc.cli.me.context import Yes, place_of_store

if TYPE_CHECKING:
    from enc.apps.group import Group, Invited
    from enc.core.primitives.types import Receipt

app = typer.Typer()
PANEL = "People"

Greeting = Annotated[str | None, typer.Option(metavar="TEXT", help="A text for the invitation, sealed to them.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="ID", help="Their personal store, if neither your address book nor the registry has it."
    ),
]
There = Annotated[str | None, typer.Option("--at", metavar="URL", help="The node of their store.")]
NoNotice = Annotated[bool, typer.Option("--no-notice", help="Write no notice to their store: tell them yourself.")]


def _admission_command(name: str, example: str, help_: str, act: Callable[["Group"], Callable[..., "Invited"]]) -> None:
    """Register a command that makes a person a member and notifies them."""

    def work(
        ctx: CommandContext,
        name: GroupName,
        who: Whom,
        greeting: Greeting = None,
        store: Store = None,
        there: There = None,
        no_notice: NoNotice = False,
        yes: Yes = False,
    ) -> None:
        given = place_of_store(store, there)
        with open_group(ctx, name) as (group, book, client):
            group.sync()
            person = confirmed_person(ctx, group, book, client, who, yes)
            place = given or person.places.get("personal")
            invited = act(group)(person.identity, greeting=greeting, place=place, notify=not no_notice)
            _print_invited(ctx, group, invited, quiet=no_notice)

    work.__doc__ = help_
    command(app, f"enc group {name} plans bob", example, flags=NODE, name=name, panel=PANEL)(work)


_admission_command(
    "invite",
    'enc group invite plans bob --greeting "come in"',
    "Make a person a member, as an admin, and notify them in their personal store. They can read from now on.",
    lambda group: group.invite,
)
_admission_command(
    "approve",
    "enc group approve plans bob --no-notice",
    "Approve an applicant, as an admin, and notify them.",
    lambda group: group.approve,
)


def _print_invited(ctx: CommandContext, group: "Group", invited: "Invited", *, quiet: bool) -> None:
    from enc.core.log.receipt import wire_receipt

    receipt, notice = invited.receipt, invited.notice
    wire = {**wire_receipt(receipt), "enclave": group.hex, "notice": notice and wire_receipt(notice)}
    ctx.emit(
        wire,
        fields(seq=receipt.seq, id=receipt.id.hex(), time=format_time(receipt.timestamp), notified=notice is not None),
    )
    if notice is None and not quiet:
        ctx.note(not_notified(invited, group))


def _person_command(name: str, help_: str, act: Callable[["Group", bytes], "Receipt"]) -> None:
    """Register a command that acts on one person."""

    def work(ctx: CommandContext, name: GroupName, who: Whom, yes: Yes = False) -> None:
        with open_group(ctx, name) as (group, book, client):
            group.sync()
            ctx.print_receipt(group.enclave, act(group, confirmed_person(ctx, group, book, client, who, yes).identity))

    work.__doc__ = help_
    command(app, f"enc group {name} plans bob", flags=NODE, name=name, panel=PANEL)(work)


_person_command("decline", "Decline an application, as an admin.", lambda group, who: group.decline(who))
_person_command(
    "remove", "Remove a member, as an admin. They cannot read later messages.", lambda group, who: group.remove(who)
)


@command(app, "enc group block plans bob", flags=NODE, panel=PANEL)
def block(ctx: CommandContext, name: GroupName, who: Whom, yes: Yes = False) -> None:
    """Block a person, member or not, as an admin."""
    with open_group(ctx, name) as (group, book, client), hint_at_yes():
        group.sync()
        ctx.print_receipt(
            group.enclave, group.block(confirmed_person(ctx, group, book, client, who, yes).identity, even_so=yes)
        )


_person_command(
    "unblock", "Unblock a person, as an admin. It does not make them a member.", lambda group, who: group.unblock(who)
)
_person_command("mute", "Mute a member, as an admin: they can read but not write.", lambda group, who: group.mute(who))
_person_command("unmute", "Unmute a member, as an admin.", lambda group, who: group.unmute(who))
_person_command("admin", "Make a member an admin, as the owner.", lambda group, who: group.make_admin(who))
_person_command(
    "unadmin",
    "Make an admin a plain member, as the owner or as that admin.",
    lambda group, who: group.unmake_admin(who),
)
_person_command("transfer", "Transfer the ownership to a member; you lose it.", lambda group, who: group.transfer(who))
