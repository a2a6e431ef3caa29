"""`enc group`: end-to-end encrypted groups. Commands that create, name and show them."""

from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.group import chat, join, messages, people
from enc.cli.group.context import GroupName, NewName, open_group
from enc.cli.group.view import GroupView, epoch_text, role_text, topic_text, wire
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.group import EpochView

app = typer.Typer(
    name="group",
    help="End-to-end encrypted groups: create, join, moderate, chat.",
    no_args_is_help=True,
)
NAMES, GROUP = "Names", "The group"

_ID = "5c1f0a9be5d2416883aa1b0c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80"
"""An id for the examples."""


@command(app, 'enc group create plans --topic "the summer"', flags=NODE, panel=GROUP)
def create(
    ctx: CommandContext,
    name: NewName,
    topic: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The topic. Not sealed: the node can read it.")
    ] = None,
) -> None:
    """Create a group. You are its owner, first admin and first member; nobody joins without an admin's consent."""
    from enc.apps.group import Group
    from enc.apps.people.address_book import Place

    with open_book(ctx) as book, ctx.client() as client:
        book.check_free(name)
        group = Group.create(client, topic=topic)
        book.put_group(name, Place(group.id, client.url))
        ctx.emit({"group": name, "enclave": group.hex, "node": client.url}, group.hex)
        if group.unannounced:
            ctx.note(f"not registered in the registry yet: {group.unannounced}")


@command(app, "enc group list", name="list", flags=NODE, panel=NAMES)
def list_(ctx: CommandContext) -> None:
    """List the groups in your address book. Works offline, with the copy on this machine."""
    with open_book(ctx, listing=True) as book:
        ctx.rows(
            ("name", "node", "enclave"),
            (
                (
                    {"name": each.name, "enclave": each.place.enclave.hex(), "node": each.place.node},
                    (each.name, each.place.node or "-", each.place.enclave.hex()),
                )
                for each in book.groups()
            ),
        )


@command(app, f"enc group add plans {_ID} --at https://enc.example.org", flags=NODE, panel=NAMES)
def add(
    ctx: CommandContext,
    name: NewName,
    enclave: Annotated[str, typer.Argument(metavar="ID", help="The group's id.")],
    there: Annotated[
        str | None, typer.Option("--at", metavar="URL", help="The group's node. Default: the node in use.")
    ] = None,
) -> None:
    """Add a group to your address book under a name. Works offline."""
    from enc.apps.people.address_book import Place

    place = Place(bytes.fromhex(known_ids.enclave(enclave, what="ID")), there or ctx.settings.values["node"].value)
    with open_book(ctx, listing=True) as book:
        book.put_group(name, place)
    ctx.emit({"group": name, "enclave": place.enclave.hex(), "node": place.node}, f"{name}  {place.enclave.hex()}")


@command(app, "enc group forget plans", flags=NODE, panel=NAMES)
def forget(ctx: CommandContext, name: Annotated[str, typer.Argument(metavar="NAME", help="Your name for it.")]) -> None:
    """Remove a group from your address book. You stay a member: `enc group leave` leaves it.

    `enc me forget` removes people.
    """
    with open_book(ctx, listing=True) as book:
        book.remove_group(name)
    ctx.emit({"forgotten": name}, f"{name} is forgotten")


@command(app, "enc group status plans", flags=NODE, panel=GROUP)
def status(ctx: CommandContext, name: GroupName) -> None:
    """Show your role in the group, its members, whether its epoch is fresh, and which gates are open."""
    with open_group(ctx, name) as (group, *_):
        group.sync()
        found = group.status()
    gates = {gate: "open" if is_open else "closed" for gate, is_open in found.gates.items()}
    text = fields(
        group=group.hex,
        topic=topic_text(found.topic),
        you=role_text(found),
        members=found.members,
        epoch=epoch_text(found),
        lifecycle=found.lifecycle,
        **gates,
    )
    ctx.emit({"enclave": group.hex, **wire(found)}, text)


@command(app, "enc group who plans", "enc group who plans --json", flags=NODE, panel=GROUP)
def who(ctx: CommandContext, name: GroupName) -> None:
    """List members, applicants and blocked people. A name with ~ is self-chosen; others are from your address book."""
    with open_group(ctx, name) as (group, book, _):
        group.sync()
        view = GroupView(group, book.names())
        ctx.rows(
            ("who", "state", "traits", "identity"), [(wire(person), view.person(person)) for person in group.people()]
        )


@command(app, "enc group epochs plans", flags=NODE, panel=GROUP)
def epochs(ctx: CommandContext, name: GroupName) -> None:
    """List all epochs, and why some do not count."""
    with open_group(ctx, name) as (group, book, _):
        group.sync()
        view = GroupView(group, book.names())
        rows = [
            (
                wire(epoch),
                (
                    "-" if epoch.n is None else str(epoch.n),
                    str(epoch.seq),
                    view.display_name(epoch.author),
                    _verdict(epoch),
                ),
            )
            for epoch in group.epochs()
        ]
    ctx.rows(("epoch", "seq", "by", "state"), rows)


def _verdict(epoch: "EpochView") -> str:
    if not epoch.counts:
        return f"does not count: {epoch.why}"
    return "counts" if epoch.is_open else f"counts, but does not open here: {epoch.trouble or 'from before you joined'}"


@command(app, "enc group rotate plans", flags=NODE, panel=GROUP)
def rotate(ctx: CommandContext, name: GroupName) -> None:
    """Make a new epoch, as an admin. Clients of admins do this automatically when members change."""
    with open_group(ctx, name) as (group, *_):
        epoch = group.rotate()
    ctx.emit(wire(epoch), fields(epoch=epoch.n, seq=epoch.seq))


@command(app, 'enc group topic plans "the winter"', "enc group topic plans", flags=NODE, panel=GROUP)
def topic(
    ctx: CommandContext,
    name: GroupName,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The new topic, as an admin.")] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the topic.")] = False,
) -> None:
    """Print the topic, or set it. It is not sealed: the node can read it."""
    with open_group(ctx, name) as (group, *_):
        if text is not None or unset:
            ctx.print_receipt(group.enclave, group.set_topic(None if unset else text))
            return
        group.sync()
        found = group.status().topic
    ctx.emit({"topic": found}, topic_text(found))


@command(app, "enc group profile plans Ann", "enc group profile plans --unset", flags=NODE, panel=GROUP)
def profile(
    ctx: CommandContext,
    name: GroupName,
    called: Annotated[str | None, typer.Argument(metavar="[YOUR-NAME]", help="Your name in this group.")] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove your name.")] = False,
) -> None:
    """Set your name in this group. It is not sealed: the node can read it."""
    if (called is None) != unset:
        raise MisuseError("give a name, or --unset")
    with open_group(ctx, name) as (group, *_):
        ctx.print_receipt(group.enclave, group.set_profile(None if unset else {"name": called}))


for part in (join, people, messages, chat):
    app.registered_commands += part.app.registered_commands
