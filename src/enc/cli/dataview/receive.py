"""`enc dataview receive`: writes pushes to a landing zone, for `enc dataview run --landing` or beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from enc.cli.common import known_ids
from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.dataview.commands import MISSING, app
from enc.core.errors import MisuseError
from enc.runtime.signals import stop_event

if TYPE_CHECKING:
    from enc.cli.enclave.receiver import Listener

WAIT_S = 1.0
"""Interval between two checks whether the server has ended by itself."""

Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node", metavar="URL", help="A node that may push; may be repeated. Default: ENC_NODE, or the profile's."
    ),
]
Enclaves = Annotated[
    list[str] | None,
    typer.Option(
        "--enclave",
        metavar="ID",
        help="An enclave on each node, for the first request with a new state file; may be repeated.",
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="Accept only events of this enclave; may be repeated.")
]
Cert = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TLS certificate. Not needed behind a proxy that ends TLS.")
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key.")]
SkipLost = Annotated[
    bool, typer.Option("--skip-lost", help="Continue past lost batches whose events you have no right to read.")
]


class PushOptions(Struct, frozen=True, kw_only=True):
    """Settings of a push receiver: its address, the accepted nodes and enclaves, TLS."""

    url: str
    listen: str
    nodes: list[str]
    enclaves: list[str]
    only: list[str]
    cert: Path | None
    key: Path | None
    skip_lost: bool


@contextmanager
def running_receiver(
    ctx: CommandContext, pushes: PushOptions, landing: Path, state: Path, notices: Path | None
) -> Iterator["Listener"]:
    """Run a receiver for as long as the block runs."""
    try:
        from enc.client import ReceiverSettings
        from enc.dataview.source.landing import LandingZone
        from enc.dataview.source.notice_board import NoticeBoard
        from enc.dataview.source.receive import LandingReceiver
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    from enc.cli.enclave.receiver import Listener, check_tls, enclave_filter, log_to_stderr
    from enc.runtime.serving.listening import listen_at

    check_tls(pushes.cert, pushes.key)
    with log_to_stderr(), listen_at(pushes.listen, field="--listen") as listening:
        made = LandingReceiver(
            ctx.identity(),
            pushes.url,
            pushes.nodes or [ctx.settings.get("node")],
            state,
            LandingZone(landing),
            None if notices is None else NoticeBoard(notices),
            skip_lost=pushes.skip_lost,
            accepts=enclave_filter(pushes.only),
            enclave=[known_ids.enclave(each, what="--enclave") for each in pushes.enclaves],
            registry=ctx.registry(),
            settings=ReceiverSettings(timeout=ctx.timeout),
        )
        with Listener(made.app, pushes.url, listening, pushes.cert, pushes.key) as listener:
            yield listener


class LandingOptions(Struct, frozen=True, kw_only=True):
    """Arguments and flags of `enc dataview receive`."""

    url: Annotated[str, typer.Option(metavar="URL", help="The public URL of this receiver, as registered for pushes.")]
    landing: Annotated[Path, typer.Option(metavar="DIR", help="Folder where each batch is written.")]
    state: Annotated[Path, typer.Option(metavar="FILE", help="State file: which batches arrived. It must be private.")]
    notices: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for notifications: the option notices of --pull."),
    ] = None
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: a free one.")] = (
        "127.0.0.1:7781"
    )
    nodes: Nodes = None
    enclaves: Enclaves = None
    only: Only = None
    cert: Cert = None
    key: Key = None
    skip_lost: SkipLost = False


@command(
    app,
    "enc dataview receive --url https://me.example/push --landing landing --state inbox.db",
    "enc dataview receive --url https://me.example/push --landing landing --state inbox.db --notices notices",
    flags=("as_json", "identity", "registry", "profile", "timeout"),
)
def receive(ctx: CommandContext, options: LandingOptions) -> None:
    """Receive pushes until SIGTERM or Ctrl-C. Each batch is written to a landing zone before it is acknowledged.

    Missing batches are pulled and written, too. The first line on stdout is the address it listens on.
    `run --receive` does the same beside the pipeline.
    """
    pushes = PushOptions(
        url=options.url,
        listen=options.listen,
        nodes=options.nodes or [],
        enclaves=options.enclaves or [],
        only=options.only or [],
        cert=options.cert,
        key=options.key,
        skip_lost=options.skip_lost,
    )
    stop = stop_event()
    with running_receiver(ctx, pushes, options.landing, options.state, options.notices) as listener:
        host, port = listener.address
        wire = {"host": host, "port": port, "url": options.url}
        ctx.emit(wire, fields(**{name: str(value) for name, value in wire.items()}))
        while not stop.wait(WAIT_S):
            listener.check()
