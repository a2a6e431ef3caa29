"""The inbox of `enc me`: notices, verified at their sources; its gate; and the dataviews."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from enc.cli.common import known_ids
from enc.cli.common.book import open_book
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import OutputRow, format_time, short
from enc.cli.me.context import Who, Yes, find_id, open_store, place_of_store, resolve_person
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.personal import Dataview, Received

app = typer.Typer()


@command(app, "enc me notices", "enc me notices --all --keep", flags=NODE)
def notices(
    ctx: CommandContext,
    everything: Annotated[bool, typer.Option("--all", help="Also refuted notices, which are then deleted.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete refuted notices.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Verify at most this many.")] = 256,
) -> None:
    """List notices of others' actions that concern you, verified in the enclave that they name.

    Act only on confirmed ones. Pending ones are not proved: the command prints why, and verifies them again the next
    time, until you dismiss them. It deletes those that are refuted, or that cannot be opened, at once.
    """
    with open_book(ctx) as book, open_store(ctx, book) as mine:
        found = mine.notices(discard=not keep, limit=limit)
        shown = [each for each in found if everything or each.state != "refuted"]
        columns = ("seq", "state", "time", "kind", "enclave", "from", "about")
        ctx.rows(columns, (_row(ctx, each) for each in shown), cut=True)
        left = len({each.id for each in mine.inbox()} - {each.id for each in found})
    if left:
        ctx.note(f"{left} more were not verified: enc me notices --limit {limit + left}")
    waiting = sum(each.state == "pending" for each in found)
    if waiting:
        ctx.note(f"{waiting} not proved: do not act on them; to delete one: enc me dismiss SEQ")


def _row(ctx: CommandContext, received: "Received") -> OutputRow:
    claims = received.claims
    wire: dict[str, Any] = {
        "id": received.id.hex(),
        "seq": received.seq,
        "state": received.state,
        "actionable": received.is_actionable,
        "reason": received.reason,
        "author": received.author.hex(),
        "timestamp": received.timestamp,
        "claims": None if claims is None else _claims(claims),
        "text": received.text,
    }
    about, summary = received.reason, received.text
    if received.is_actionable:
        about = summary
    elif summary:
        about = f"UNPROVED: {summary} ({received.reason})"
    return wire, (
        str(received.seq),
        received.state,
        format_time(received.timestamp),
        "" if claims is None else claims.kind,
        "" if claims is None else claims.enclave_id,
        short(received.author) if ctx.is_terminal else received.author.hex(),
        about,
    )


def _claims(notice: Any) -> dict[str, Any]:
    """Return the sealed fields without the secret: only whether there is one."""
    from msgspec import UNSET
    from msgspec.structs import asdict

    given = {name: value for name, value in asdict(notice).items() if value is not UNSET}
    return {**given, "handoff": True} if "handoff" in given else given


@command(app, "enc me dismiss 9", "enc me dismiss 9 12 15", flags=NODE)
def dismiss(
    ctx: CommandContext,
    which: Annotated[
        list[str], typer.Argument(metavar="SEQ|ID", help="Seqs of the notices, or the starts of their ids.")
    ],
) -> None:
    """Delete notices, whatever their state."""
    with open_store(ctx) as mine:
        known = {each.id: each.seq for each in mine.inbox()}
        for id_ in [find_id(each, known) for each in which]:
            ctx.print_receipt(mine.enclave, mine.remove(id_))


class NotifyOptions(Struct, frozen=True, kw_only=True):
    """Arguments and flags of `enc me notify`."""

    who: Who
    kind: Annotated[str, typer.Argument(metavar="KIND", help="group_invite, dm_invite, or x-…")]
    source: Annotated[str, typer.Argument(metavar="ENCLAVE", help="The enclave where it happened, which proves it.")]
    of: Annotated[str, typer.Option(metavar="WORD", help="The kind of that enclave: group, dm, …")]
    move: Annotated[str | None, typer.Option(metavar="ID", help="The id of the Move.")] = None
    topic: Annotated[str | None, typer.Option(metavar="TEXT", help="The enclave's topic.")] = None
    greeting: Annotated[str | None, typer.Option(metavar="TEXT", help="A text for them.")] = None
    there: Annotated[str | None, typer.Option("--at", metavar="URL", help="The node of their store.")] = None
    to: Annotated[str | None, typer.Option("--store", metavar="ID", help="Their store, if no registry knows it.")] = (
        None
    )
    yes: Yes = False


@command(
    app,
    "enc me notify bob group_invite 5c1f… --of group --move 8e02… --topic Garden",
    "enc me notify 3f0c… x-poke 5c1f… --of personal --store 77ab… --at https://node.example",
    flags=NODE,
)
def notify(ctx: CommandContext, options: NotifyOptions) -> None:
    """Notify a person of something you did in another enclave. The notice is sealed to them."""
    place = place_of_store(options.to, options.there)
    with open_book(ctx) as book, open_store(ctx, book) as mine:
        person = resolve_person(ctx, options.who, mine.client, book, options.yes)
        receipt = mine.notify(
            person,
            options.kind,
            known_ids.enclave(options.source),
            options.of,
            place=place,
            move_ref=options.move,
            topic=options.topic,
            greeting=options.greeting,
        )
        ctx.emit({"id": receipt.id.hex(), "seq": receipt.seq, "to": person.identity.hex()}, receipt.id.hex())


@command(app, "enc me gate closed", flags=NODE)
def gate(
    ctx: CommandContext,
    state: Annotated[str | None, typer.Argument(metavar="[open|closed]", help="The new state.")] = None,
) -> None:
    """Show whether your store accepts notices; or open or close it."""
    if state not in (None, "open", "closed"):
        raise MisuseError(f"{state}: expected open or closed")
    with open_store(ctx) as mine:
        if state is not None:
            ctx.print_receipt(mine.enclave, mine.set_open(state == "open"))
            return
        is_open = mine.is_open()
    ctx.emit({"open": is_open}, "open" if is_open else "closed")


# Dataviews


@command(app, "enc me grant 3f0c… --endpoint https://view.example/push", flags=NODE)
def grant(
    ctx: CommandContext,
    who: Who,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="The URL that the node pushes to.")] = None,
    yes: Yes = False,
) -> None:
    """Let the node push your profile, your posts and the arrival of notices, still sealed, to a service."""
    with open_book(ctx) as book, open_store(ctx, book) as mine:
        person = resolve_person(ctx, who, mine.client, book, yes)
        ctx.print_receipt(mine.enclave, mine.grant_dataview(person.identity, endpoint=endpoint))


@command(app, "enc me revoke 3f0c…", flags=NODE)
def revoke(ctx: CommandContext, who: Who, yes: Yes = False) -> None:
    """Stop pushes to a service."""
    with open_book(ctx) as book, open_store(ctx, book) as mine:
        person = resolve_person(ctx, who, mine.client, book, yes)
        ctx.print_receipt(mine.enclave, mine.revoke_dataview(person.identity))


@command(app, "enc me dataviews", flags=NODE)
def dataviews(ctx: CommandContext) -> None:
    """List the services that receive your public data."""
    with open_store(ctx) as mine:
        found = mine.dataviews()
        ctx.rows(("identity", "proved"), map(_view, found))
    if not all(each.proved for each in found):
        ctx.note("not proved yet: no closed bundle contains it")


def _view(view: "Dataview") -> OutputRow:
    key = view.identity.hex()
    return {"identity": key, "proved": view.proved}, (key, "proved" if view.proved else "not proved yet")
