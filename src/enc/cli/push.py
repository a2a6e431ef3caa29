"""`enc push`: the state of pushes to endpoints, and a receiver of pushes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.command import ENCLAVE, command
from enc.cli.output import Row, short, when
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.client import Delivery

app = typer.Typer(
    name="push",
    help="Events that a node pushes to endpoints: show their delivery, or receive them.",
    no_args_is_help=True,
)

_COLUMNS = ("identity", "trait", "batches", "waiting", "since", "delivered", "dead", "last error", "url")


@command(app, "enc push status", "enc push status --enclave $ENCLAVE --json", flags=ENCLAVE)
def status(at: Terminal) -> None:
    """Show the deliveries to each endpoint in the enclave: to its owner all of them, to others their own.

    Waiting batches are retried; dead ones are not, but their recipient can pull them while the node keeps them; they
    still count as dead. The last error stays, with its time, after deliveries succeed again. The figures are the
    node's, without proof. A recipient has one queue for all enclaves on a node, so the figures cover all of them.
    """
    with at.enclave() as enclave:
        found = enclave.deliveries()
    if not found:
        at.note(
            "no endpoint of yours is registered in this enclave: enc grant IDENTITY TRAIT --endpoint URL registers one"
        )
    at.rows(_COLUMNS, (_row(at, delivery) for delivery in found))


@command(
    app,
    "enc push receive --url https://me.example/push --state inbox.db",
    "enc push receive --url https://me.example/push --state inbox.db --listen [::]:8443 --exec ./on-event",
    flags=("as_json", "identity", "profile", "timeout", "evidence"),
)
def receive(
    at: Terminal,
    url: Annotated[str, typer.Option(metavar="URL", help="The public URL of this receiver, as registered for pushes.")],
    state: Annotated[
        Path, typer.Option(metavar="FILE", help="State file: received events and progress. It must be private.")
    ],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: a free one.")] = (
        "127.0.0.1:7780"
    ),
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="URL", help="A node that may push; may be repeated. Default: ENC_NODE, or the profile's."
        ),
    ] = None,
    enclaves: Annotated[
        list[str] | None,
        typer.Option(
            "--enclave",
            metavar="ID",
            help="An enclave on each node, for the first request with a new state file; may be repeated. "
            "Default: ENC_ENCLAVE, or the profile's.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Accept only events of this enclave; may be repeated."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("--exec", metavar="COMMAND", help="Command to run for each event, with the event on stdin."),
    ] = None,
    cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS certificate. Not needed behind a proxy that ends TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key.")] = None,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Continue past lost batches whose events you have no right to read.")
    ] = False,
) -> None:
    """Receive pushes, verify them, and print each event as a line of JSON, in order, until SIGTERM or Ctrl-C.

    A notice is a line whose only member is `notice`. A signal lets the running command finish; a second one kills it.

    Events stay in the state file until they are printed, or until the command exits with code 0. A command that fails
    runs again; its enclave waits meanwhile. Each event is delivered once; if the program is killed during a line or a
    command, that event is delivered again.
    """
    from enc.cli import handing, receiving
    from enc.client import PushReceiver

    receiving.check_tls(cert, key)
    with receiving.telling_on_stderr(), receiving.listen(listen) as listening:
        serving = receiving.Receiving()
        hand: handing.Hand = handing.Printing(serving.end) if command is None else handing.Running(command)
        known = at.settings.values["enclave"].value
        receiver = PushReceiver(
            at.identity(),
            url,
            nodes or [at.settings.get("node")],
            state,
            hand.event,
            on_notice=hand.notice,
            on_gap=receiving.on_gap(skip_lost),
            on_distrust=serving.end,
            accepts=receiving.accepting(only),
            enclave=enclaves or ([] if known is None else [known]),
            timeout=at.timeout,
        )
        serving.serve(receiver, hand, listening, cert, key)


def _row(at: Terminal, delivery: "Delivery") -> Row:
    from enc.client.deliveries import wire_delivery

    queue = delivery.queue
    return wire_delivery(delivery), (
        short(delivery.identity) if at.is_terminal else delivery.identity.hex(),
        delivery.trait,
        str(queue.push_seq) if queue else "",
        str(queue.waiting) if queue else "",
        when(queue.oldest) if queue and queue.oldest is not None else "",
        str(queue.delivered) if queue else "",
        str(queue.dead) if queue else "yes" * delivery.has_dead,
        delivery.last_error and f"{delivery.last_error} at {when(delivery.last_error_at or 0)}",
        delivery.url,
    )
