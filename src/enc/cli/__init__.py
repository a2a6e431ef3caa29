"""The command line. It may import every other package; no other package imports it."""

import sys
from typing import Any

import typer

from enc.cli.common import exits
from enc.cli.common.command import CommandGroup
from enc.cli.common.lazy_commands import LazyCommands
from enc.cli.common.parameters import use_plain_parameters
from enc.version import __version__

MODULES = {
    "enc.cli.up.commands": "up",
    "enc.cli.setup.key": "key",
    "enc.cli.setup.config": "config",
    "enc.cli.enclave.commands": "enclave",
    "enc.cli.enclave.write": "commit update delete",
    "enc.cli.enclave.queue": "queue",
    "enc.cli.enclave.access": "move grant revoke revoke-self transfer gate pause resume terminate",
    "enc.cli.enclave.slots": "get set",
    "enc.cli.enclave.read": "query watch",
    "enc.cli.enclave.proofs": "head prove verify",
    "enc.cli.ops.audit": "audit",
    "enc.cli.enclave.archive": "archive",
    "enc.cli.enclave.push": "push",
    "enc.cli.enclave.registry": "registry",
    "enc.cli.enclave.migrate": "migrate follow",
    "enc.cli.group.commands": "group",
    "enc.cli.ops.node_commands": "node",
    "enc.cli.ops.witness": "witness",
    "enc.cli.me.commands": "me",
    "enc.cli.dm.commands": "dm",
    "enc.cli.ops.bench": "bench",
    "enc.cli.dataview": "dataview",
}
"""The modules of commands, with the commands of each, in the order of the help."""


class AllCommands(CommandGroup):
    """The command `enc`. It imports only the module of the command that is run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LazyCommands(MODULES)


use_plain_parameters()
app = typer.Typer(
    name="enc",
    help="ENC: verifiable, sovereign, access-controlled logs.",
    cls=AllCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


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
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx's own command: it imports rich
    try:
        app()
    except Exception as e:
        sys.exit(exits.report_unexpected(e))
