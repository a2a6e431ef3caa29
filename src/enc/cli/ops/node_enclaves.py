"""`enc node enclaves`: the largest enclaves of a node."""

from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import exits
from enc.cli.common.output import Output, OutputRow
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with, load

if TYPE_CHECKING:
    from enc.node.store.sqlite.enclave_list import EnclaveSize

app = node.app

COLUMNS = ("enclave", "events", "bytes", "lifecycle")


@app.command(epilog=epilog_with("Example: enc node enclaves --data /var/lib/enc --limit 5"))
def enclaves(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Number of enclaves to print.")] = 20,
    config: ConfigFile = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Print the largest enclaves, whether the node runs or not: the one with the most bytes first.

    Bytes are those of events and tree nodes, without erased contents, as admission.max_bytes_per_enclave counts them.
    """
    from enc.node.store.sqlite.enclave_list import read_largest

    with exits.exit_on_error(NAME):
        found = read_largest(load(config, data)[0].store_path, limit)
    Output(as_json).rows(COLUMNS, map(_row, found))


def _row(found: "EnclaveSize") -> OutputRow:
    enclave = found.enclave.hex()
    wire = {"enclave": enclave, "events": found.events, "bytes": found.bytes, "terminated": found.terminated}
    return wire, (enclave, str(found.events), str(found.bytes), "terminated" if found.terminated else "-")
