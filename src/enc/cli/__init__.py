"""The command line. It may import every other package; no other package imports it."""

import sys

import typer

from enc.cli.common import exits
from enc.cli.common.command import CommandGroup
from enc.cli.dataview import commands as dataview
from enc.cli.dataview import lake_commands as dataview_job
from enc.cli.dataview import receive as dataview_receive
from enc.cli.dataview import run as dataview_run
from enc.cli.dm import commands as dm
from enc.cli.enclave import access, archive, migrate, proofs, push, read, registry, slots, write
from enc.cli.enclave import commands as enclave
from enc.cli.group import commands as group
from enc.cli.me import commands as me
from enc.cli.ops import audit, bench, node_queues, witness
from enc.cli.setup import config, key
from enc.cli.up import commands as up
from enc.version import __version__

app = typer.Typer(
    name="enc",
    help="ENC: verifiable, sovereign, access-controlled logs.",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(up.app)
for part in (key, config, enclave, write, access, slots, read, proofs, audit, archive, push, registry, migrate):
    app.add_typer(part.app)
app.add_typer(group.app)
app.add_typer(node_queues.app)
app.add_typer(witness.app)
app.add_typer(me.app)
app.add_typer(dm.app)
app.add_typer(bench.app, hidden=not bench.is_installed())
app.add_typer(dataview.app)
# Importing these modules adds their commands to the group `dataview`.
_ = dataview_run, dataview_job, dataview_receive


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
    try:
        app()
    except Exception as e:
        sys.exit(exits.report_unexpected(e))
