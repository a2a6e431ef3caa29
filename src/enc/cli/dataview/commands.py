"""`enc dataview`: turns the events of many enclaves into tables, and serves them."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from enc.cli.common.command import LOCAL, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.core.errors import MisuseError

app = typer.Typer(
    name="dataview",
    help="Turn the events of many enclaves into tables, and serve them.",
    no_args_is_help=True,
)

MISSING = "this needs `pip install enc-protocol[dataview]`"


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Arguments and flags of `enc dataview serve`."""

    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML; flags override them.")] = None
    database: Annotated[
        str | None, typer.Option(metavar="PLACE", help="A file's path, or postgresql://…. Default: serving.db.")
    ] = None
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen. Default: 127.0.0.1:7780.")
    ] = None
    public: Annotated[
        list[str] | None, typer.Option(metavar="VIEW", help="A view that anybody may read; may be repeated.")
    ] = None
    tokens: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Access tokens: a NAME and a TOKEN per line; the file must be private."),
    ] = None
    key: Annotated[str | None, typer.Option(metavar="FILE", help="The server's key file, for sessions.")] = None
    node: Annotated[str | None, typer.Option(metavar="URL", help="The node to ask for proofs.")] = None
    registry: Annotated[
        str | None, typer.Option(metavar="URL#ID:KEY", help="The registry that locates the nodes to ask for proofs.")
    ] = None
    identity: Annotated[
        str | None, typer.Option(metavar="FILE", help="Key file of the identity that asks for proofs.")
    ] = None
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate in PEM: serve HTTPS.")] = None
    cert_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key, if --cert does not hold it.")
    ] = None


@command(
    app,
    "enc dataview serve --database serving.db --public timeline",
    "enc dataview serve --config serve.toml --listen 0.0.0.0:7780",
    flags=LOCAL,
)
def serve(ctx: CommandContext, options: ServeOptions) -> None:
    """Serve the views of a serving database over HTTP, until a signal.

    Every view is private unless the settings or --public allow reading it. The first line on stdout is the server's
    URL; its /openapi.json describes the API.
    """
    try:
        from enc.dataview.serving.config import load
        from enc.dataview.serving.server import ServingServer
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    server = ServingServer(
        load(options.config, _serving_flags(options), options.public or ()), cert=options.cert, key=options.cert_key
    )
    wire = {"url": server.url, "session_pub": server.session_pub}
    server.run(lambda: ctx.emit(wire, fields(**{name: text for name, text in wire.items() if text})))


def _serving_flags(options: ServeOptions) -> dict[str, str | None]:
    """Return the flags that override settings. Their paths are relative to this directory, not to the file's."""
    names, paths = (
        ("database", "listen", "tokens", "key", "node", "registry", "identity"),
        ("tokens", "key", "identity"),
    )
    given: dict[str, str | None] = {name: getattr(options, name) for name in names}
    return {name: str(Path(text).absolute()) if text and name in paths else text for name, text in given.items()}
