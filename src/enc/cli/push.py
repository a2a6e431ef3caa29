"""`enc push`: how an enclave's events reach those who have them pushed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.command import ENCLAVE, command
from enc.cli.output import Row, short, when
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.client import Delivery

app = typer.Typer(name="push", help="Events that a node delivers by itself.", no_args_is_help=True)

_COLUMNS = ("identity", "trait", "batches", "waiting", "since", "delivered", "dead", "last error", "url")


@command(app, "enc push status", "enc push status --enclave $ENCLAVE --json", flags=ENCLAVE)
def status(at: Terminal) -> None:
    """How pushes fare at each endpoint that is registered in the enclave: for its owner; for others, at their own.

    What waits is tried again; what is dead is not, but its recipient can pull it while the node keeps it, and it counts
    as dead even then. The last error stays, with its time, when all is well again. The figures are the node's word. A
    recipient's queue is one for all enclaves on a node, and so are its figures.
    """
    with at.enclave() as enclave:
        found = enclave.deliveries()
    if not found:
        at.note("no endpoint is registered in this enclave, or none of yours: enc grant IDENTITY TRAIT --endpoint URL")
    at.rows(_COLUMNS, (_row(at, delivery) for delivery in found))


@command(
    app,
    "enc push receive --url https://me.example/push --state inbox.db",
    "enc push receive --url https://me.example/push --state inbox.db --listen [::]:8443 --exec ./on-event",
    flags=("as_json", "identity", "profile", "timeout", "evidence"),
)
def receive(
    at: Terminal,
    url: Annotated[str, typer.Option(metavar="URL", help="Where pushes come to, as it is registered.")],
    state: Annotated[Path, typer.Option(metavar="FILE", help="What has come and how far it is: yours alone.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: a free one.")] = (
        "127.0.0.1:7780"
    ),
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="URL", help="Who may push; may be repeated. Else: ENC_NODE, or the profile's."),
    ] = None,
    enclaves: Annotated[
        list[str] | None,
        typer.Option(
            "--enclave",
            metavar="ID",
            help="One on each node, to ask by with a new state file. Else: ENC_ENCLAVE, or the profile's.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Take events of this enclave and no other; may be repeated."),
    ] = None,
    command: Annotated[
        str | None, typer.Option("--exec", metavar="COMMAND", help="Run this for each event, with the event on stdin.")
    ] = None,
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate; else a proxy has it.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key.")] = None,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on where batches are lost whose events you may not read.")
    ] = False,
) -> None:
    """Take pushes, check them, and print each event as a line of JSON, in order: until SIGTERM or Ctrl-C.

    A notice is a line of its own kind, with the one member `notice`. A signal lets the command that runs end; a second
    one kills it.

    What comes is kept in the state file until it is printed, or until the command has ended with code 0: one that fails
    is run again, and meanwhile its enclave waits. Each event comes once; but one whose line or command was under way
    when the program was killed comes again.
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
