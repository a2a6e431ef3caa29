"""`enc witness`: run a service that follows enclaves' heads, co-signs them, and publishes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import exits, passphrase

if TYPE_CHECKING:
    from enc.client import Identity

app = typer.Typer(
    name="witness",
    help="Follow the heads of enclaves, co-sign heads that extend earlier ones, and publish them.",
    epilog=exits.HELP,
    no_args_is_help=True,
)

NAME = "enc witness"


@app.callback()
def witness() -> None:
    """Follow the heads of enclaves, co-sign heads that extend earlier ones, and publish them."""


@app.command(
    epilog="Example: enc witness run --enclave $ENCLAVE@https://enc.example.org --data /var/lib/enc-witness\n\n"
    + exits.HELP
)
def run(
    enclave: Annotated[
        list[str] | None,
        typer.Option(metavar="ID[@NODE[#KEY]]", help="An enclave to follow, its node's URL and key; may be repeated."),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings in TOML; flags override them.")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The witness's key file. Default: witness.key in --data, created if missing."
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address to listen on. Default: 127.0.0.1:7800.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Directory of the ledger and the evidence. Default: ./witness-data."),
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL#ID:KEY", help="The registry that locates enclaves.")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Another node to which an enclave may move; may be repeated."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Interval between two checks of an enclave. Default: 10.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error. Default: info.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="json or console. Default: json.")] = None,
) -> None:
    """Run a witness until a signal. The first line on stdout holds its URL; logs are written to stderr.

    SIGTERM or Ctrl-C stops it gracefully, with exit code 0; a second one ends it at once.
    """
    flags = {
        "enclaves": enclave,
        "key": key,
        "listen": listen,
        "data": data,
        "registry": registry,
        "nodes": node,
        "interval_s": interval,
        "log_level": log_level,
        "log_format": log_format,
    }
    with exits.exit_on_error(NAME):
        code = _serve(config, flags)
    raise typer.Exit(code)


def _serve(config: Path | None, flags: Mapping[str, object]) -> int:
    """Run the witness that the configuration file and the flags describe, and return its exit code."""
    from enc.runtime.logs import setup_logs
    from enc.runtime.serving.listening import listen_at
    from enc.witness import main
    from enc.witness.config import load_config

    settings = load_config(config, flags)
    setup_logs(settings.log_level, settings.log_format)
    identity = _identity(settings.key_path, settings.folder)
    with listen_at(settings.listen, field="--listen") as socket:
        return main.run(settings, identity, socket)


def _identity(path: Path, folder: Path) -> "Identity":
    """Return the witness's key. The first start creates it, unless there is a ledger, which then has another key."""
    from enc.client import Identity
    from enc.runtime import private_file

    if not path.exists():
        if (folder / "witness.db").exists():
            private_file.refuse(path, f"is missing, and {folder / 'witness.db'} is another key's")
        private_file.make_directory(path.absolute().parent)
        Identity.new().save(path)
    return passphrase.load_identity(path)
