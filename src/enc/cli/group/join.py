"""`enc group invitations`, `accept`, `apply`, `join`, `leave`, `gate`: joining and leaving a group."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.group.context import GroupName, NewName, Yes, hint_at_yes, open_group, own_store
from enc.cli.group.view import display_name, epoch_text, wire
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.group import Invitation
    from enc.apps.people.address_book import AddressBook

app = typer.Typer()
PANEL = "Joining and leaving"
_ID = "5c1f0a9be5d2416883aa1b0c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80"
"""An id for the examples."""


@command(app, "enc group gate plans applications open", flags=NODE, panel=PANEL)
def gate(
    ctx: CommandContext,
    name: GroupName,
    which: Annotated[
        Literal["applications", "auto-join"], typer.Argument(help="Whether people may apply, or join without approval.")
    ],
    state: Annotated[Literal["open", "closed"], typer.Argument(help="Its new state.")],
) -> None:
    """Open or close a gate: applications as an admin, joining without approval as the owner."""
    with open_group(ctx, name) as (group, *_):
        ctx.print_receipt(group.enclave, group.set_gate(which.replace("-", "_"), open=state == "open"))


@command(app, "enc group apply plans", flags=NODE, panel=PANEL)
def apply(ctx: CommandContext, name: GroupName) -> None:
    """Apply for membership, while applications are open."""
    with open_group(ctx, name) as (group, *_):
        ctx.print_receipt(group.enclave, group.apply())


@command(app, "enc group withdraw plans", flags=NODE, panel=PANEL)
def withdraw(ctx: CommandContext, name: GroupName) -> None:
    """Withdraw your application."""
    with open_group(ctx, name) as (group, *_):
        ctx.print_receipt(group.enclave, group.withdraw())


@command(app, "enc group join plans", flags=NODE, panel=PANEL)
def join(ctx: CommandContext, name: GroupName) -> None:
    """Join without approval, while auto-join is open.

    You can read and write from the next epoch on, which an admin's client makes.
    """
    with open_group(ctx, name) as (group, *_):
        ctx.print_receipt(group.enclave, group.join())
    ctx.note("you can read and write from the next epoch on, which an admin's client makes")


@command(app, "enc group leave plans", flags=NODE, panel=PANEL)
def leave(ctx: CommandContext, name: GroupName, yes: Yes = False) -> None:
    """Leave the group. You could still read messages until an admin's client makes the next epoch."""
    with open_group(ctx, name) as (group, *_), hint_at_yes():
        ctx.print_receipt(group.enclave, group.leave(even_so=yes))


Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="ID", help="Your personal store, if neither your address book nor the registry has it."
    ),
]


@command(app, "enc group invitations", f"enc group invitations --store {_ID}", flags=NODE, panel=PANEL)
def invitations(ctx: CommandContext, store: Store = None) -> None:
    """List invitations to groups in your personal store, each verified in the group's log.

    A pending invitation is not proved; the command prints why. If the group is on another node, `enc group add` with
    that node's URL lets it be verified. To delete it, run `enc me dismiss` with its seq from
    `enc me notices`.
    """
    from enc.apps.group import invitations_in

    with open_book(ctx) as book, ctx.client() as client:
        names = book.names()
        found = invitations_in(own_store(client, book, store))
    shown = [_shown(each) for each in found if not each.is_refuted]
    ctx.rows(
        ("invitation", "by", "topic", "greeting", "state"),
        [
            (
                wire(each),
                (
                    each.enclave.hex(),
                    display_name(each.inviter, names),
                    each.topic or "-",
                    each.greeting or "-",
                    "confirmed" if each.is_confirmed else f"UNPROVED: {each.why}",
                ),
            )
            for each in shown
        ],
    )
    if len(shown) < len(found):
        ctx.note(f"{len(found) - len(shown)} more are refuted: enc me notices deletes them")
    if not all(each.is_confirmed for each in shown):
        ctx.note("not proved: they cannot be accepted; to delete one: enc me dismiss, with its seq from enc me notices")
    for each in shown:
        if not each.is_confirmed and book.node_of(each.enclave) is None:
            ctx.note(_way_to_confirm(each, book))


def _way_to_confirm(invitation: "Invitation", book: "AddressBook") -> str:
    """Return how to confirm an invitation to a group on another node: that of its author, if the book has it."""
    inviter = book.of(invitation.inviter)
    nodes = {place.node: None for place in inviter.places.values() if place.node} if inviter is not None else {}
    at, whose = (next(iter(nodes)), f" (the node of {inviter.name})") if inviter is not None and nodes else ("URL", "")
    command_line = f"enc group add NAME {invitation.enclave.hex()} --at {at}"
    return f"if the group is on another node: {command_line}{whose}, then enc group invitations again"


def _shown(invitation: "Invitation") -> "Invitation":
    """Return an invitation without its texts if it is not confirmed: anybody may have written them."""
    from msgspec.structs import replace

    return invitation if invitation.is_confirmed else replace(invitation, topic=None, greeting=None)


@command(app, f"enc group accept plans {_ID}", flags=NODE, panel=PANEL)
def accept(
    ctx: CommandContext,
    name: NewName,
    enclave: Annotated[str, typer.Argument(metavar="ID", help="The group's id, from `enc group invitations`.")],
    store: Store = None,
) -> None:
    """Accept an invitation, and name the group. You are a member already: this gets the keys you were sent."""
    from enc.apps.group import Group, invitations_in
    from enc.apps.people.address_book import Place

    with open_book(ctx) as book, ctx.client() as client:
        invitations = invitations_in(own_store(client, book, store))
        wanted = bytes.fromhex(known_ids.enclave(enclave, (each.enclave for each in invitations), what="ID"))
        found = [each for each in invitations if each.enclave == wanted]
        invitation = next((each for each in reversed(found) if each.is_confirmed), None)
        if invitation is None:
            if not found:
                raise MisuseError("no confirmed invitation: there is no invitation to that group")
            way = "" if book.node_of(wanted) else f"; {_way_to_confirm(found[-1], book)}"
            raise MisuseError(f"no confirmed invitation: {found[-1].why}{way}")
        group = Group(client, client.enclave(invitation.enclave, at=book.node_of(invitation.enclave)))
        group.accept(invitation)
        book.put_group(name, Place(group.id, group.enclave.url))
        found_status = group.status()
    ctx.emit({"group": name, **wire(found_status)}, fields(group=group.hex, epoch=epoch_text(found_status)))
