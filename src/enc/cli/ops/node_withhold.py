"""`enc node withhold`, `unwithhold` and `withheld`: contents of single events that a node withholds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from enc.cli.common import exits
from enc.cli.common.output import Output, OutputRow
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with
from enc.cli.ops.node_ban import call
from enc.core.log.withheld import REASONS
from enc.runtime.clock import utc_time

app = node.app

COLUMNS = ("enclave", "seq", "id", "reason", "since", "content", "note")

EventRef = Annotated[str, typer.Argument(metavar="EVENT", help="An event's id, or ENCLAVE/SEQ.", show_default=False)]


@app.command(epilog=epilog_with("Example: enc node withhold ENCLAVE/SEQ --reason court_order --note 'case 12/34'"))
def withhold(
    event: EventRef,
    reason: Annotated[str, typer.Option(metavar="CODE", help=f"One of {', '.join(REASONS)}.")],
    note: Annotated[str, typer.Option(metavar="TEXT", help="For yourself: only `enc node withheld` shows it.")] = "",
    destroy: Annotated[bool, typer.Option("--destroy", help="Delete the content for good.")] = False,
    config: ConfigFile = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Withhold the content of one event: the running node serves its signed statement with the reason instead.

    The content is kept aside until `enc node unwithhold`, unless you destroy it. An Update, a Delete or the event's
    auto-delete time erases it there, too. Use the command again to state another reason, or to destroy the content.
    """
    with exits.exit_on_error(NAME):
        found = call(config, data, "withhold", event=event, reason=reason, note=note, destroy=destroy)
    Output(as_json).emit(found, f"{_place(found)}: withheld, {found['reason']}; its content is {found['content']}")


@app.command(epilog=epilog_with("Example: enc node unwithhold ENCLAVE/SEQ --data /var/lib/enc"))
def unwithhold(event: EventRef, config: ConfigFile = None, data: Data = None, as_json: AsJson = False) -> None:
    """Show a withheld content again, as it was. It fails if the content was destroyed."""
    with exits.exit_on_error(NAME):
        found = call(config, data, "unwithhold", event=event)
    Output(as_json).emit(found, f"{_place(found)}: shown again")


@app.command(epilog=epilog_with("Example: enc node withheld --data /var/lib/enc --json"))
def withheld(config: ConfigFile = None, data: Data = None, as_json: AsJson = False) -> None:
    """Print the events of the running node whose content a node withholds.

    The content is kept aside, destroyed, or absent: then another node's statement came with an imported log.
    """
    with exits.exit_on_error(NAME):
        Output(as_json).rows(COLUMNS, map(_row, _pages(config, data)))


def _pages(config: Path | None, data: str | None) -> Iterator[Mapping[str, Any]]:
    skip = 0
    while page := call(config, data, "withheld", skip=skip):
        yield from page
        skip += len(page)


def _place(found: Mapping[str, Any]) -> str:
    return f"{found['enclave']}/{found['seq']}"


def _row(found: Mapping[str, Any]) -> OutputRow:
    cells = {**found, "since": utc_time(found["since"]), "note": found["note"] or "-"}
    return found, [str(cells[column]) for column in COLUMNS]
