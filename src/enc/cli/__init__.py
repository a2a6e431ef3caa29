"""The command line. It may import every other package; no other package imports it."""

import sys

import typer

from enc.cli import (
    access,
    archive,
    audit,
    bench,
    config,
    dataview,
    dataview_job,
    dataview_receive,
    dataview_run,
    dm,
    enclave,
    exits,
    group,
    key,
    me,
    migrate,
    node_queues,
    proofs,
    push,
    reading,
    registry,
    slots,
    up,
    witness,
    writing,
)
from enc.cli.command import Group
from enc.version import __version__

app = typer.Typer(
    name="enc",
    help="ENC: verifiable, sovereign, access-controlled logs.",
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(up.app)
for part in (key, config, enclave, writing, access, slots, reading, proofs, audit, archive, push, registry, migrate):
    app.add_typer(part.app)
app.add_typer(group.app)
app.add_typer(node_queues.app)
app.add_typer(witness.app)
app.add_typer(me.app)
app.add_typer(dm.app)
app.add_typer(bench.app)
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
