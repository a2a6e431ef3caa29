"""`enc query` and `enc watch`: stored events, and new ones as they arrive."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import Struct

from enc.cli.common import known_ids
from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.event_flags import Authors, Ids, SearchTags, Seqs, Since, Types, Until, as_search
from enc.cli.common.output import OutputRow, format_time, short, withheld_text

if TYPE_CHECKING:
    from enc.client import Item

app = typer.Typer()

Limit = Annotated[int | None, typer.Option(min=0, metavar="N", help="At most this many events.")]


class QueryOptions(Struct, frozen=True, kw_only=True):
    """Arguments and flags of `enc query`."""

    types: Types = None
    authors: Authors = None
    ids: Ids = None
    seq: Seqs = None
    tags: SearchTags = None
    since: Since = None
    until: Until = None
    limit: Limit = None
    reverse: Annotated[bool, typer.Option("--reverse", help="Print the newest first.")] = False
    proof: Annotated[bool, typer.Option("--proof", help="Also verify a proof that each event is in the log.")] = False
    valid: Annotated[
        bool | None,
        typer.Option(
            "--valid/--invalid", help="Only events whose content satisfies, or violates, its schema in the manifest."
        ),
    ] = None


@command(
    app,
    "enc query",
    "enc query --type message --since 2026-01-31 --limit 20 --reverse",
    "enc query --seq 10:20 --proof --json",
    panel="Reading",
)
def query(ctx: CommandContext, options: QueryOptions) -> None:
    """Print events of the enclave, each verified: a table on a terminal, lines elsewhere.

    With --proof, each event's place in the log is verified, too. A search cannot show that the node left out no match.
    With --valid and --invalid, the content of an updated event is that of its latest Update.
    """
    authors = _authors(ctx, options.authors)
    search = as_search(options.types, authors, options.tags, None, options.seq, options.since, options.until)
    with ctx.enclave() as enclave:
        search["id"] = [known_ids.event(enclave, each) for each in options.ids or ()] or None
        found = enclave.query(
            proof=options.proof, limit=options.limit, reverse=options.reverse, valid=options.valid, **search
        )
        extra = [*(["bundle"] if options.proof else []), *(["violations"] if options.valid is False else [])]
        columns = ("seq", "time", "type", "author", *extra, "content")
        rows = (_row(ctx, item, enclave.sequencer() if options.proof else None) for item in found)
        ctx.rows(columns, rows, cut=True)
        ctx.note_if_moved(enclave)


@command(app, "enc watch", "enc watch --after 41 --type message --json", panel="Reading")
def watch(
    ctx: CommandContext,
    after: Annotated[
        int | None,
        typer.Option(
            min=-1, metavar="SEQ", help="Start after this seq; -1: from the first event. Default: only new events."
        ),
    ] = None,
    types: Types = None,
    authors: Authors = None,
    tags: SearchTags = None,
    limit: Limit = None,
) -> None:
    """Print new events as they arrive, one line each, until Ctrl-C. Reconnects without gaps or repeats."""
    with (
        ctx.enclave() as enclave,
        enclave.subscribe(after=after, **as_search(types, _authors(ctx, authors), tags)) as events,
    ):
        ctx.stream(_row(ctx, item) for item in islice(events, limit))


def _authors(ctx: CommandContext, words: list[str] | None) -> list[str]:
    return [known_ids.identity(each, {ctx.identity().public: "you"}, what="--author") for each in words or ()]


def _row(ctx: CommandContext, item: "Item", sequencer: bytes | None = None) -> OutputRow:
    """Return an item's row; with its proof if `sequencer` is given, which signed the proof's head."""
    place = (str(item.seq), format_time(item.event.timestamp), item.type)
    author = short(item.author) if ctx.is_terminal else item.author.hex()
    content = _missing(item) if item.content is None else item.content
    wire, cells = wire_item(item), [*place, author]
    if sequencer is not None:
        wire["proof"] = _wire_proof(item, sequencer)
        cells.append("open" if item.fact is None else str(item.fact.anchor.index))
    if item.violations:
        wire["violations"] = list(item.violations)
        cells.append("; ".join(item.violations))
    return wire, (*cells, content)


def _missing(item: "Item") -> str:
    if item.updated_by:
        return "(updated)"
    stated = item.withheld
    return "(erased)" if stated is None else f"[{withheld_text(stated.reason, stated.ts)}]"


def wire_item(item: "Item") -> dict[str, object]:
    from enc.core.log.event import wire_event

    updated_by = None if item.updated_by is None else item.updated_by.hex()
    wire = {**wire_event(item.event), "content": item.content, "status": item.status, "updated_by": updated_by}
    if item.content is not None:  # of an Update: the statement is about the event's own content
        wire.pop("withheld", None)
    return wire


def _wire_proof(item: "Item", sequencer: bytes) -> object:
    """Return the proof as `enc prove` would write it to a file."""
    from enc.client.verify.proof_file import Proof

    if item.fact is None:
        return None
    return msgspec.json.decode(Proof(item.event.enclave, sequencer, item.fact).json())
