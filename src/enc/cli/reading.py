"""`enc query` and `enc watch`: events, as they are stored and as they come."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from enc.cli.command import command
from enc.cli.output import Row, short, when
from enc.cli.search import Authors, Ids, SearchTags, Seqs, Since, Types, Until, as_search
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.client import Item

app = typer.Typer()

Limit = Annotated[int | None, typer.Option(min=0, metavar="N", help="At most this many events.")]


@command(
    app,
    "enc query",
    "enc query --type message --since 2026-01-31 --limit 20 --reverse",
    "enc query --seq 10:20 --proof --json",
    panel="Reading",
)
def query(
    at: Terminal,
    types: Types = None,
    authors: Authors = None,
    ids: Ids = None,
    seq: Seqs = None,
    tags: SearchTags = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The newest first.")] = False,
    proof: Annotated[bool, typer.Option("--proof", help="Also prove that each event is in the log.")] = False,
) -> None:
    """Events of the enclave: a table on a terminal, lines elsewhere. Each is checked; with --proof, also its place.

    That nothing which matches was withheld cannot be seen from a search.
    """
    search = as_search(types, authors, tags, ids, seq, since, until)
    with at.enclave() as enclave:
        found = enclave.query(proof=proof, limit=limit, reverse=reverse, **search)
        columns = ("seq", "time", "type", "author", *(["bundle"] if proof else []), "content")
        at.rows(columns, (_row(at, item, enclave.sequencer() if proof else None) for item in found), cut=True)
        at.note_left(enclave)


@command(app, "enc watch", "enc watch --after 41 --type message --json", panel="Reading")
def watch(
    at: Terminal,
    after: Annotated[
        int | None,
        typer.Option(min=-1, metavar="SEQ", help="Begin after this place; -1: with all. Default: from now on."),
    ] = None,
    types: Types = None,
    authors: Authors = None,
    tags: SearchTags = None,
    limit: Limit = None,
) -> None:
    """Events as they come, a line each, until Ctrl-C. Lost connections are made again, without gaps or repeats."""
    with (
        at.enclave() as enclave,
        enclave.subscribe(after=after, **as_search(types, authors, tags)) as events,
    ):
        at.stream(_row(at, item) for item in islice(events, limit))


def _row(at: Terminal, item: "Item", sequencer: bytes | None = None) -> Row:
    """`sequencer`: who signed the head that the item is proved under, if it is to be."""
    place = (str(item.seq), when(item.event.timestamp), item.type)
    author = short(item.author) if at.is_terminal else item.author.hex()
    content = f"({'updated' if item.updated_by else 'erased'})" if item.content is None else item.content
    if sequencer is None:
        return wire_item(item), (*place, author, content)
    bundle = "open" if item.fact is None else str(item.fact.anchor.index)
    return {**wire_item(item), "proof": _wire_proof(item, sequencer)}, (*place, author, bundle, content)


def wire_item(item: "Item") -> dict[str, object]:
    from enc.core.event import wire_event

    updated_by = None if item.updated_by is None else item.updated_by.hex()
    return {**wire_event(item.event), "status": item.status, "updated_by": updated_by}


def _wire_proof(item: "Item", sequencer: bytes) -> object:
    """What `enc prove` would write to a file."""
    from enc.client.proof_file import Proof

    if item.fact is None:
        return None
    return msgspec.json.decode(Proof(item.event.enclave, sequencer, item.fact).json())
