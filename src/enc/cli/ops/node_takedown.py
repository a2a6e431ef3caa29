"""`enc node suspend`, `resume`, `suspended` and `purge`: enclaves that a running node does not serve."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from enc.cli.common import exits
from enc.cli.common.output import Output, OutputRow
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with
from enc.cli.ops.node_ban import call, pages
from enc.core.errors import MisuseError
from enc.core.log.withheld import REASONS
from enc.runtime.clock import utc_time

app = node.app

COLUMNS = ("enclave", "reason", "full", "since")

EnclaveId = Annotated[str, typer.Argument(metavar="ENCLAVE", help="The enclave's id, 64 hex digits.")]


@app.command(epilog=epilog_with("Example: enc node suspend ENCLAVE --reason court_order --data /var/lib/enc"))
def suspend(
    enclave: EnclaveId,
    reason: Annotated[
        str, typer.Option(metavar="CODE", help=f"{', '.join(REASONS)}. The node names it to everyone who asks.")
    ] = "other",
    full: Annotated[bool, typer.Option("--full", help="Give content to nobody, not even to a leaving owner.")] = False,
    config: ConfigFile = None,
    data: Data = None,
) -> None:
    """Stop serving an enclave at the running node, at once and after restarts, and keep its data.

    Commits, reads and pulls get ENCLAVE_SUSPENDED with the reason, subscriptions end, and pushes wait. Heads,
    consistency and inclusion proofs stay available. An owner may still move the enclave to another node, unless
    --full. Another suspension of the same enclave replaces the first.
    """
    with exits.exit_on_error(NAME):
        found = call(config, data, "suspend", enclave=enclave, reason=reason, is_full=full)
    typer.echo(f"suspended: {found['target']}")


@app.command(epilog=epilog_with("Example: enc node resume ENCLAVE --data /var/lib/enc"))
def resume(enclave: EnclaveId, config: ConfigFile = None, data: Data = None) -> None:
    """Serve a suspended enclave again. Pushes that wait are sent within half a minute."""
    with exits.exit_on_error(NAME):
        found = call(config, data, "resume", enclave=enclave)
    typer.echo(f"served again: {found['enclave']}")


@app.command(epilog=epilog_with("Example: enc node suspended --data /var/lib/enc"))
def suspended(config: ConfigFile = None, data: Data = None, as_json: AsJson = False) -> None:
    """List the suspended enclaves of the running node, one per line."""
    with exits.exit_on_error(NAME):
        found = list(pages(config, data, "suspended"))
    Output(as_json).rows(COLUMNS, (_row(each) for each in found))


@app.command(epilog=epilog_with("Example: enc node purge ENCLAVE --yes --data /var/lib/enc"))
def purge(
    enclave: EnclaveId,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: the data cannot be restored.")] = False,
    config: ConfigFile = None,
    data: Data = None,
) -> None:
    """Delete all data of an enclave from the running node, for ever. Backups keep what they hold.

    Everything about the enclave gets ENCLAVE_PURGED from then on, also its Manifest and an import of it: the node would
    sign a second log with the same id. The data is deleted in slices; the log says `purged` when the last is gone.
    """
    with exits.exit_on_error(NAME):
        if not yes:
            raise MisuseError(f"purge {enclave}: this deletes the enclave for ever; repeat the command with --yes")
        found = call(config, data, "purge", enclave=enclave)
    typer.echo(f"purged: {found['target']}")


def _row(order: Mapping[str, Any]) -> OutputRow:
    wire = {
        "enclave": order["target"],
        "reason": order["reason"],
        "full": order["is_full"],
        "since": order["made_at"],
    }
    full = "full" if order["is_full"] else "-"
    return wire, (order["target"], order["reason"], full, utc_time(order["made_at"]))
