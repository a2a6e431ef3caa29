"""The command line. May import everything; nobody imports it."""

import typer

from enc import __version__
from enc.cli import node

app = typer.Typer(
    name="enc",
    help="ENC: verifiable, sovereign, access-controlled logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.add_typer(node.app)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"enc {__version__}")
        raise typer.Exit


@app.callback()
def enc(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """ENC: verifiable, sovereign, access-controlled logs."""


def main() -> None:
    app()
