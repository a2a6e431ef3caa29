"""`enc commit`, `enc update` and `enc delete`: events of the manifest's types."""

from pathlib import Path
from typing import Annotated

import typer

from enc.cli.common import known_ids
from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.event_flags import as_tag

app = typer.Typer()
PANEL = "Writing"

Event = Annotated[
    str, typer.Argument(metavar="EVENT", help="The event: its seq, its id, or the first 8 or more digits of it.")
]
Text = Annotated[str | None, typer.Argument(metavar="CONTENT", help="The content; - reads stdin.")]
File = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Read the content from this file.")]
Tag = Annotated[
    list[str] | None, typer.Option("--tag", metavar="NAME[=VALUE]", help="A tag of the event; may be repeated.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Send nothing if the content violates its schema in the manifest.")
]


@command(app, 'enc commit message "hello"', "date | enc commit entry - --tag host=web1", panel=PANEL)
def commit(
    ctx: CommandContext,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="An event type of the manifest.")],
    text: Text = None,
    file: File = None,
    tags: Tag = None,
    check: Check = False,
) -> None:
    """Write an event, and print the node's verified receipt."""
    body = content(text, file)
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.commit(type_, body, tags=list(map(as_tag, tags or ())), check=check))


@command(app, 'enc update 7 "hello, all"', panel=PANEL)
def update(
    ctx: CommandContext,
    event: Event,
    text: Text = None,
    file: File = None,
    tags: Tag = None,
    check: Check = False,
) -> None:
    """Replace an event's content. The node erases the old content; the old event stays provable."""
    body = content(text, file)
    with ctx.enclave() as enclave:
        listed = list(map(as_tag, tags or ()))
        ctx.print_receipt(enclave, enclave.update(known_ids.event(enclave, event), body, tags=listed, check=check))


@command(app, "enc delete 7", 'enc delete 7 --moderator --note "off topic"', panel=PANEL)
def delete(
    ctx: CommandContext,
    event: Event,
    moderator: Annotated[
        bool, typer.Option("--moderator", help="Delete another author's event, as a moderator.")
    ] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason. It stays in the log.")] = None,
) -> None:
    """Delete an event. The node erases its content; the event stays provable. This cannot be undone."""
    with ctx.enclave() as enclave:
        id_ = known_ids.event(enclave, event)
        ctx.print_receipt(enclave, enclave.delete(id_, reason="moderator" if moderator else "author", note=note))
