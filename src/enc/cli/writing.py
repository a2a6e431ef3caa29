"""`enc commit`, `enc update` and `enc delete`: events of the types that the manifest names."""

from pathlib import Path
from typing import Annotated

import typer

from enc.cli.command import command
from enc.cli.search import as_tag
from enc.cli.terminal import Terminal, content, event_id

app = typer.Typer()
PANEL = "Writing"

Event = Annotated[str, typer.Argument(metavar="EVENT", help="The event: its id, or its seq.")]
Text = Annotated[str | None, typer.Argument(metavar="CONTENT", help="The content; - reads stdin.")]
File = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The content is in this file.")]
Tag = Annotated[
    list[str] | None, typer.Option("--tag", metavar="NAME[=VALUE]", help="A tag of the event; may be repeated.")
]


@command(app, 'enc commit message "hello"', "date | enc commit entry - --tag host=web1", panel=PANEL)
def commit(
    at: Terminal,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="A type that the manifest names.")],
    text: Text = None,
    file: File = None,
    tags: Tag = None,
) -> None:
    """Write an event. What is printed is the node's receipt, checked."""
    said = content(text, file)
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.commit(type_, said, tags=list(map(as_tag, tags or ()))))


@command(app, 'enc update 7 "hello, all"', panel=PANEL)
def update(at: Terminal, event: Event, text: Text = None, file: File = None, tags: Tag = None) -> None:
    """Replace an event's content. The old one is erased; that there was one stays provable."""
    said = content(text, file)
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.update(event_id(enclave, event), said, tags=list(map(as_tag, tags or ()))))


@command(app, "enc delete 7", 'enc delete 7 --moderator --note "off topic"', panel=PANEL)
def delete(
    at: Terminal,
    event: Event,
    moderator: Annotated[bool, typer.Option("--moderator", help="It is not your own that you delete.")] = False,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; it stays in the log.")] = None,
) -> None:
    """Take an event away for good. Its content is erased; that there was one stays provable."""
    with at.enclave() as enclave:
        id_ = event_id(enclave, event)
        at.receipt(enclave, enclave.delete(id_, reason="moderator" if moderator else "author", note=note))
