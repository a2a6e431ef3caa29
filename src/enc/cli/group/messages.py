"""`enc group say`, `reply`, `edit`, `delete`, `react`, `announce`, `read`: messages, without a chat."""

from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.output import fields
from enc.cli.group.context import EntryId, GroupName, find_entry, open_group, own_reaction
from enc.cli.group.view import STALE, GroupView, wire
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.group import Group, Sent

app = typer.Typer()
PANEL = "Talking"

Text = Annotated[str, typer.Argument(metavar="TEXT", help="The message; - reads stdin.")]
OnlyFresh = Annotated[bool, typer.Option("--only-fresh", help="Send nothing while the epoch is stale.")]


def _check_epoch(ctx: CommandContext, group: "Group", only_fresh: bool) -> None:
    """Sync, and warn before sending if the epoch is stale. An admin's client makes a new epoch by syncing.

    Raises MisuseError with `only_fresh`.
    """
    group.sync()
    if not group.status().is_stale:
        return
    if only_fresh:
        raise MisuseError(f"not sent: {STALE}")
    ctx.note(STALE)


def _print_sent(ctx: CommandContext, group: "Group", sent: "Sent") -> None:
    ctx.emit({"enclave": group.hex, **wire(sent)}, fields(seq=sent.seq, id=sent.id.hex(), epoch=sent.epoch))


@command(app, 'enc group say plans "hello"', "date | enc group say plans -", flags=NODE, panel=PANEL)
def say(ctx: CommandContext, name: GroupName, text: Text, only_fresh: OnlyFresh = False) -> None:
    """Send a message, sealed to the members."""
    message = content(text, None)
    with open_group(ctx, name) as (group, *_):
        _check_epoch(ctx, group, only_fresh)
        _print_sent(ctx, group, group.say(message))


@command(app, 'enc group reply plans 12 "so do I"', flags=NODE, panel=PANEL)
def reply(ctx: CommandContext, name: GroupName, entry: EntryId, text: Text, only_fresh: OnlyFresh = False) -> None:
    """Reply to an entry."""
    message = content(text, None)
    with open_group(ctx, name) as (group, *_):
        _check_epoch(ctx, group, only_fresh)
        _print_sent(ctx, group, group.say(message, reply_to=find_entry(group, entry).id))


@command(app, 'enc group announce plans "we meet at noon"', flags=NODE, panel=PANEL)
def announce(ctx: CommandContext, name: GroupName, text: Text, only_fresh: OnlyFresh = False) -> None:
    """Send an announcement, as an admin."""
    message = content(text, None)
    with open_group(ctx, name) as (group, *_):
        _check_epoch(ctx, group, only_fresh)
        _print_sent(ctx, group, group.announce(message))


@command(app, 'enc group edit plans 12 "hello, all"', flags=NODE, panel=PANEL)
def edit(ctx: CommandContext, name: GroupName, entry: EntryId, text: Text, only_fresh: OnlyFresh = False) -> None:
    """Replace one of your messages. The node erases the old text; members may have read it already."""
    message = content(text, None)
    with open_group(ctx, name) as (group, *_):
        _check_epoch(ctx, group, only_fresh)
        _print_sent(ctx, group, group.edit(find_entry(group, entry).id, message))


@command(app, "enc group react plans 12 👍", flags=NODE, panel=PANEL)
def react(
    ctx: CommandContext,
    name: GroupName,
    entry: EntryId,
    text: Annotated[str, typer.Argument(metavar="REACTION", help="A short text, such as 👍.")],
    only_fresh: OnlyFresh = False,
) -> None:
    """React to an entry."""
    with open_group(ctx, name) as (group, *_):
        _check_epoch(ctx, group, only_fresh)
        _print_sent(ctx, group, group.react(find_entry(group, entry).id, text))


@command(app, "enc group unreact plans 12", "enc group unreact plans 12 👍", flags=NODE, panel=PANEL)
def unreact(
    ctx: CommandContext,
    name: GroupName,
    entry: EntryId,
    text: Annotated[
        str | None, typer.Argument(metavar="[REACTION]", help="The reaction. Default: your last one.")
    ] = None,
) -> None:
    """Remove your reaction to an entry."""
    with open_group(ctx, name) as (group, *_):
        group.sync()
        ctx.print_receipt(group.enclave, group.delete(own_reaction(group, entry, text)))


@command(app, "enc group delete plans 12", 'enc group delete plans 12 --note "off topic"', flags=NODE, panel=PANEL)
def delete(
    ctx: CommandContext,
    name: GroupName,
    entry: EntryId,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The reason. It stays in the log, not sealed.")
    ] = None,
) -> None:
    """Delete an entry: your own, or anybody's as an admin. The node erases the text; the log keeps that it existed."""
    with open_group(ctx, name) as (group, *_):
        group.sync()
        ctx.print_receipt(group.enclave, group.delete(find_entry(group, entry).id, note=note))


@command(app, "enc group read plans --last 20", "enc group read plans --json", flags=NODE, panel=PANEL)
def read(
    ctx: CommandContext,
    name: GroupName,
    last: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most this many, the newest.")] = None,
) -> None:
    """Print the messages that you can decrypt: one line each, or one JSON object with --json."""
    with open_group(ctx, name) as (group, book, _):
        group.sync()
        view = GroupView(group, book.names())
        for entry in group.entries(last):
            ctx.emit(wire(entry), view.entry(entry).plain())
