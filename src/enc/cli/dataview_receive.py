"""`enc dataview receive`: pushes into a landing zone, for `enc dataview run --landing`."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from enc.cli.command import command
from enc.cli.dataview import MISSING, app
from enc.cli.output import fields
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

WAIT_S = 1.0
"""How often it is looked whether the server has ended by itself."""


@command(
    app,
    "enc dataview receive --url https://me.example/push --landing landing --state inbox.db",
    "enc dataview receive --url https://me.example/push --landing landing --state inbox.db --notices notices",
    flags=("as_json", "identity", "profile", "timeout"),
)
def receive(
    at: Terminal,
    url: Annotated[str, typer.Option(metavar="URL", help="Where pushes come to, as it is registered.")],
    landing: Annotated[Path, typer.Option(metavar="DIR", help="Where each batch is written.")],
    state: Annotated[Path, typer.Option(metavar="FILE", help="Which batches have come: yours alone.")],
    notices: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where notifications are noted: the option notices of --pull."),
    ] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: a free one.")] = (
        "127.0.0.1:7781"
    ),
    nodes: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="URL", help="Who may push; may be repeated. Else: ENC_NODE, or the profile's."),
    ] = None,
    enclaves: Annotated[
        list[str] | None,
        typer.Option("--enclave", metavar="ID", help="One on each node, to ask by with a new state file."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Take events of this enclave and no other; may be repeated."),
    ] = None,
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate; else a proxy has it.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key.")] = None,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on where batches are lost whose events you may not read.")
    ] = False,
) -> None:
    """Take pushes and write each batch to a landing zone before the node is told so: until SIGTERM or Ctrl-C.

    What is missing is pulled, and lands too. The first line on stdout says where it listens.
    """
    try:
        from enc.dataview.landing import Landing
        from enc.dataview.notify import NoticeBoard
        from enc.dataview.receive import LandingReceiver, Listener
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    from enc.cli import receiving

    receiving.check_tls(cert, key)
    with receiving.telling_on_stderr(), receiving.listen(listen) as listening:
        made = LandingReceiver(
            at.identity(),
            url,
            nodes or [at.settings.get("node")],
            state,
            Landing(landing),
            None if notices is None else NoticeBoard(notices),
            skip_lost=skip_lost,
            accepts=receiving.accepting(only),
            enclave=enclaves or [],
            timeout=at.timeout,
        )
        stop = _stopping()
        with Listener(made.app, listening, cert, key) as listener:
            wire = {"host": listening.getsockname()[0], "port": listener.port, "url": url}
            at.say(wire, fields(**{name: str(value) for name, value in wire.items()}))
            while not stop.wait(WAIT_S):
                if listener.wait(0):
                    raise MisuseError("the receiver has ended")


def _stopping() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
