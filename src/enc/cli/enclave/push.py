"""`enc push`: the state of pushes to endpoints, and a receiver of pushes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from enc.cli.common import known_ids
from enc.cli.common.command import ENCLAVE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import OutputRow, format_time, short

if TYPE_CHECKING:
    from enc.client import Delivery

app = typer.Typer(
    name="push",
    help="Events that a node pushes to endpoints: show their delivery, or receive them.",
    no_args_is_help=True,
)

_COLUMNS = ("identity", "trait", "batches", "waiting", "since", "delivered", "dead", "last error", "url", "endpoint")


@command(app, "enc push status", "enc push status --enclave $ENCLAVE --json", flags=ENCLAVE)
def status(ctx: CommandContext) -> None:
    """Show the deliveries to each endpoint in the enclave: to its owner all of them, to others their own.

    Waiting batches are retried; dead ones are not, but their recipient can pull them while the node keeps them; they
    still count as dead. An endpoint is `unconfirmed` until it answers the node's challenge; until then its batches
    wait. A `suspended` one answered 404 or 410: register it again once it is back. The last error stays, with its
    time, after deliveries succeed again. The figures are the node's, without proof. A recipient has one queue for all
    enclaves on a node, so the figures cover all of them.
    """
    with ctx.enclave() as enclave:
        found = enclave.deliveries()
    if not found:
        ctx.note(
            "no endpoint of yours is registered in this enclave: enc grant IDENTITY TRAIT --endpoint URL registers one"
        )
    ctx.rows(_COLUMNS, (_row(ctx, delivery) for delivery in found))


class PushReceiveOptions(Struct, frozen=True, kw_only=True):
    """Arguments and flags of `enc push receive`."""

    url: Annotated[str, typer.Option(metavar="URL", help="The public URL of this receiver, as registered for pushes.")]
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="State file: received events and progress. It must be private.")
    ]
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: a free one.")] = (
        "127.0.0.1:7780"
    )
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="URL", help="A node that may push; may be repeated. Default: ENC_NODE, or the profile's."
        ),
    ] = None
    enclaves: Annotated[
        list[str] | None,
        typer.Option(
            "--enclave",
            metavar="ID",
            help="An enclave on each node, for the first request with a new state file; may be repeated. "
            "Default: ENC_ENCLAVE, or the profile's.",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Accept only events of this enclave; may be repeated."),
    ] = None
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Command to run for each event, with the event on stdin."),
    ] = None
    cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS certificate. Not needed behind a proxy that ends TLS.")
    ] = None
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key.")] = None
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue past lost batches whose events you have no right to read.")
    ] = False


@command(
    app,
    "enc push receive --url https://me.example/push --state inbox.db",
    "enc push receive --url https://me.example/push --state inbox.db --listen [::]:8443 --exec ./on-event",
    flags=("as_json", "identity", "registry", "profile", "timeout", "evidence"),
)
def receive(ctx: CommandContext, options: PushReceiveOptions) -> None:
    """Receive pushes, verify them, and print each event as a line of JSON, in order, until SIGTERM or Ctrl-C.

    A notice is a line whose only member is `notice`. A signal lets the running command finish; a second one kills it.

    Events stay in the state file until they are printed, or until the command exits with code 0. A command that fails
    runs again; its enclave waits meanwhile. Each event is delivered once; if the program is killed during a line or a
    command, that event is delivered again.
    """
    from enc.cli.enclave import event_sink
    from enc.cli.enclave.receiver import ReceiverServer, check_tls, enclave_filter, gap_handler, log_to_stderr
    from enc.client import PushReceiver, ReceiverSettings
    from enc.runtime.serving.listening import listen_at

    check_tls(options.cert, options.key)
    with log_to_stderr(), listen_at(options.listen, field="--listen") as listening:
        serving = ReceiverServer()
        sink: event_sink.EventSink = (
            event_sink.JsonLines(serving.end) if options.command is None else event_sink.CommandRunner(options.command)
        )
        known = ctx.settings.values["enclave"].value
        enclaves = options.enclaves or ([] if known is None else [known])
        receiver = PushReceiver(
            ctx.identity(),
            options.url,
            options.nodes or [ctx.settings.get("node")],
            options.state,
            sink.event,
            accepts=enclave_filter(options.only),
            enclave=[known_ids.enclave(each) for each in enclaves],
            registry=ctx.registry(),
            settings=ReceiverSettings(
                on_notice=sink.notice,
                on_gap=gap_handler(options.skip_lost),
                on_distrust=serving.end,
                timeout=ctx.timeout,
            ),
        )
        serving.serve(receiver, sink, listening, options.cert, options.key)


def _row(ctx: CommandContext, delivery: "Delivery") -> OutputRow:
    from enc.client.enclave.deliveries import wire_delivery

    queue = delivery.queue
    return wire_delivery(delivery), (
        short(delivery.identity) if ctx.is_terminal else delivery.identity.hex(),
        delivery.trait,
        str(queue.push_seq) if queue else "",
        str(queue.waiting) if queue else "",
        format_time(queue.oldest) if queue and queue.oldest is not None else "",
        str(queue.delivered) if queue else "",
        str(queue.dead) if queue else "yes" * delivery.has_dead,
        delivery.last_error and f"{delivery.last_error} at {format_time(delivery.last_error_at or 0)}",
        delivery.url,
        delivery.state,
    )
