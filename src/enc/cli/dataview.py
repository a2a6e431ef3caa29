"""`enc dataview`: the events of many enclaves as tables, and what people and programs read of them."""

from pathlib import Path
from typing import Annotated

import typer

from enc.cli.command import LOCAL, command
from enc.cli.output import fields
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

app = typer.Typer(
    name="dataview",
    help="Turn the events of many enclaves into tables, and serve them.",
    no_args_is_help=True,
)

MISSING = "this needs what `pip install enc-protocol[dataview]` brings"


def _serving_flags(**given: str | None) -> dict[str, str | None]:
    """Paths as they are seen from here, and not from the configuration's folder."""
    paths = ("tokens", "key", "identity")
    return {name: str(Path(text).absolute()) if text and name in paths else text for name, text in given.items()}


@command(
    app,
    "enc dataview serve --database serving.db --public timeline",
    "enc dataview serve --config serve.toml --listen 0.0.0.0:7780",
    flags=LOCAL,
)
def serve(
    at: Terminal,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML; flags win over them.")] = None,
    database: Annotated[
        str | None, typer.Option(metavar="PLACE", help="A file's path, or postgresql://…. Default: serving.db.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen. Default: 127.0.0.1:7780.")
    ] = None,
    public: Annotated[
        list[str] | None, typer.Option(metavar="VIEW", help="A view that anybody may read; may be repeated.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="FILE", help="A NAME and a TOKEN on each line; its owner's alone.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="FILE", help="The server's own key file, for sessions.")] = None,
    node: Annotated[str | None, typer.Option(metavar="URL", help="Who is asked for proofs.")] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL#ID:KEY", help="Who knows where enclaves are, to ask for proofs there.")
    ] = None,
    identity: Annotated[str | None, typer.Option(metavar="FILE", help="As whom proofs are asked for.")] = None,
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate in PEM: serve HTTPS.")] = None,
    cert_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key, if it is not in there.")
    ] = None,
) -> None:
    """Serve the views of a serving database over HTTP, until a signal.

    Nothing may be read by anybody unless the settings or --public say so. The first line on stdout says where it
    listens; /openapi.json there says what can be asked.
    """
    try:
        from enc.dataview.serving.config import load
        from enc.dataview.serving.server import ServingServer
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    flags = _serving_flags(
        database=database, listen=listen, tokens=tokens, key=key, node=node, registry=registry, identity=identity
    )
    server = ServingServer(load(config, flags, public or ()), cert=cert, key=cert_key)
    wire = {"url": server.url, "session_pub": server.session_pub}
    server.run(lambda: at.say(wire, fields(**{name: text for name, text in wire.items() if text})))
