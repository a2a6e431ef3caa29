"""`enc migrate` and `enc follow`: move an enclave to another node, and follow one that moved."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from enc.cli.common.book import followed_nodes, open_book
from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.enclave.archive import ProgressBar
from enc.cli.enclave.migrate_all import migrate_all, moves_folder, print_step
from enc.core.errors import MisuseError

app = typer.Typer()
PANEL = "Lifecycle of an enclave"

_ID = "5c1f0a9be5d2416883aa1b0c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80"
"""An id for the examples."""

Loss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Continue even if events you saw on the old node are missing from the log."),
]


@command(
    app,
    "enc migrate --to https://node.example",
    "enc migrate --all --from https://old.example --to https://node.example",
    "enc migrate --force --archive backup.enc --to https://node.example",
    panel=PANEL,
)
def migrate(
    ctx: CommandContext,
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The new node.")],
    which: Annotated[str | None, typer.Argument(metavar="ENCLAVE", help="The enclave. Default: --enclave.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Without the old node, from an archive.")] = False,
    archive: Annotated[Path | None, typer.Option(metavar="FILE", help="With --force: a copy of the whole log.")] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL at which the new node reaches the old one. Default: the one you use."),
    ] = None,
    accept_loss: Loss = False,
    use: Annotated[bool, typer.Option("--use", help="The profile uses the new node from now on.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="All enclaves at the node that you have used and own.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="With --all: the old node. Default: --node.")
    ] = None,
) -> None:
    """Move your enclave to another node, and update the registry. After an interruption, run the same command again.

    The log is first copied and replayed here. Then the old node accepts the Migrate as its last event, and the new node
    pulls the log and replays it, too. At the end its head is checked to extend what you saw at the old node. With
    --force, the new node gets your archive: events that the old node accepted later are lost.
    """
    ctx.moving_to = to
    if force != (archive is not None):
        raise MisuseError("--force and --archive FILE: give both or neither")
    if all_:
        if force or which is not None:
            raise MisuseError("--all: moves the enclaves of a node that answers; give neither ENCLAVE nor --force")
        migrate_all(ctx, from_, to, source, accept_loss=accept_loss)
        if use:
            ctx.settings.store("node", to)
        return
    if from_ is not None:
        raise MisuseError("--from: only with --all; for one enclave, give --node")
    more: dict[str, Any] = {"accept_loss": accept_loss, **({"url": to} if force else {})}
    with ctx.client_as(ctx.identity(), **more) as client, ProgressBar(ctx.is_terminal) as bar:
        enclave, report_step = client.enclave(ctx.enclave_id(which)), partial(print_step, ctx)
        found = enclave.migrate(to, moves_folder(), archive=archive, source=source, tell=report_step, progress=bar.show)
    if use:
        ctx.settings.store("node", to)
    ctx.emit(
        {
            "enclave": found.migrate.enclave.hex(),
            "node": to,
            "sequencer": found.sequencer.hex(),
            "migrate": {"seq": found.migrate.seq, "id": found.migrate.id.hex()},
            "head": found.head.ts,
            "registered": found.registered is not None,
        },
        f"{found.migrate.enclave.hex()} is at {to}: {found.head.ts} bundles",
    )


@command(app, "enc follow", f"enc follow {_ID}", "enc follow --at https://node.example --accept-loss", panel=PANEL)
def follow(
    ctx: CommandContext,
    which: Annotated[str | None, typer.Argument(metavar="ENCLAVE", help="The enclave. Default: --enclave.")] = None,
    there: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="URL",
            help="The new node. Default: the one in the registry, or that your other devices use.",
        ),
    ] = None,
    accept_loss: Loss = False,
    use: Annotated[bool, typer.Option("--use", help="The profile uses that node from now on.")] = False,
) -> None:
    """Switch to the node that an enclave moved to, checked by its Migrates and by what you saw before."""
    wanted = ctx.enclave_id(which)
    with (
        open_book(ctx) as book,
        ctx.client_as(ctx.identity(), accept_loss=accept_loss, **_where(ctx, there, wanted)) as client,
    ):
        enclave = client.enclave(wanted)
        head, history = enclave.head(), enclave.sequencers()
        url = enclave.url
        book.put_follow(enclave.id, url)
    if use:
        ctx.settings.store("node", url)
    terms = [{"sequencer": (term.sequencer or b"").hex(), "from_seq": term.from_seq} for term in history.terms()]
    wire = {"enclave": enclave.hex, "node": url, "head": head.ts, "sequencers": terms}
    lines = {f"from {term['from_seq']}": term["sequencer"] for term in terms}
    ctx.emit(wire, fields(enclave=enclave.hex, node=url, head=f"{head.ts} bundles", **lines))


def _where(ctx: CommandContext, there: str | None, enclave: str) -> dict[str, Any]:
    """Return the client's node: the given one, the registry's, or the one to which the enclave was followed before."""
    if there is None and ctx.has_registry:
        return {"url": None}
    return {"url": there or ctx.settings.values["node"].value, "nodes": () if there else followed_nodes(enclave)}
