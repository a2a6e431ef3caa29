"""Documents of `enc me`: encrypted, decrypted and searched on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.output import OutputRow, format_time, visible, withheld_text
from enc.cli.me.context import Which, find_id, open_store
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.personal import Document, Personal
    from enc.apps.personal.documents import Unreadable

app = typer.Typer()

Text = Annotated[str | None, typer.Argument(metavar="TEXT", help="- reads stdin.")]
File = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Read the text from this file.")]


@command(app, "enc me add Diary 'It rained.'", "enc me add Recipe --file soup.md --kind recipe", flags=NODE)
def add(
    ctx: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The document's name. It is sealed, too.")],
    text: Text = None,
    file: File = None,
    kind: Annotated[str, typer.Option(metavar="WORD", help="The kind of document.")] = "note",
) -> None:
    """Store a document. Only you can read it: it is sealed on this machine."""
    body = content(text, file)
    with open_store(ctx) as mine:
        ctx.print_receipt(mine.enclave, mine.add(name, body, kind=kind))


@command(app, "enc me list", "enc me list soup leek", name="list", flags=NODE)
def list_(
    ctx: CommandContext,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORD…", help="Only documents with all of these words.")
    ] = None,
) -> None:
    """List your documents, the oldest first. The search runs on this machine: the node never sees the words."""
    with open_store(ctx) as mine:
        found = mine.documents(" ".join(words or ()))
        ctx.rows(("seq", "id", "kind", "changed", "name"), map(_row, found), cut=True)
        for each in mine.unreadable():
            ctx.note(f"{each.seq} ({each.id.hex()[:8]}) {_why(each)}")


def _why(document: "Unreadable") -> str:
    stated = document.withheld
    return f"cannot be opened: {document.error.message}" if stated is None else withheld_text(stated.reason, stated.ts)


def wire(document: "Document") -> dict[str, Any]:
    return {
        "id": document.id.hex(),
        "seq": document.seq,
        "kind": document.kind,
        "name": document.name,
        "text": document.text,
        "created": document.created,
        "changed": document.changed,
        "more": dict(document.more),
    }


def _row(document: "Document") -> OutputRow:
    cells = (str(document.seq), document.id.hex()[:8], document.kind, format_time(document.changed), document.name)
    return wire(document), cells


@command(app, "enc me cat 7", flags=NODE)
def cat(ctx: CommandContext, which: Which) -> None:
    """Print a document's text."""
    with open_store(ctx) as mine:
        found = mine.document(_id(mine, which))
    text = "\n".join(map(visible, found.text.split("\n"))) if ctx.is_terminal else found.text
    ctx.emit(wire(found), text)


@command(app, "enc me edit 7 'It rained again.'", "enc me edit 7 --name 'Dear diary'", flags=NODE)
def edit(
    ctx: CommandContext,
    which: Which,
    text: Text = None,
    file: File = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="The new name.")] = None,
) -> None:
    """Replace a document's text or name. The old ones are erased."""
    if text is None and file is None and name is None:
        raise MisuseError("give a text, --file FILE or --name TEXT")
    body = None if text is None and file is None else content(text, file)
    with open_store(ctx) as mine:
        ctx.print_receipt(mine.enclave, mine.change(_id(mine, which), name=name, text=body))


@command(app, "enc me rm 7", flags=NODE)
def rm(ctx: CommandContext, which: Which) -> None:
    """Delete a document. Its content is erased."""
    with open_store(ctx) as mine:
        ctx.print_receipt(mine.enclave, mine.remove(_id(mine, which)))


def _id(mine: "Personal", word: str) -> bytes:
    known = {each.id: each.seq for each in mine.documents()} | {each.id: each.seq for each in mine.unreadable()}
    return find_id(word, known)
