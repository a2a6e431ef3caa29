"""`enc node evacuate`: ask owners to move their enclaves to another node, and show what is left."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from enc.cli.common import exits
from enc.cli.common.exits import one_line
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with, load
from enc.core.errors import MisuseError
from enc.runtime.clock import utc_time

app = node.app

LEFT = ("moved", "elsewhere", "terminated")
"""Results of enclaves that no longer need this node."""
MAX_SHOWN = 100
"""Enclaves that are shown one by one."""
TIMEOUT_S = 10.0


@app.command(
    epilog=epilog_with(
        "Example: enc node evacuate --data /var/lib/enc --to https://new.example --deadline 2027-03-31\n\n"
        "Example: enc node evacuate --data /var/lib/enc --status"
    )
)
def evacuate(
    config: ConfigFile = None,
    data: Data = None,
    to: Annotated[str | None, typer.Option("--to", metavar="URL", help="Ask owners to move to this node.")] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL at which that node reaches this one. Default: public_url."),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="DATE", help="When this node will stop, as 2027-03-31 or 2027-03-31T12:00Z.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Withdraw the request; the copies are dropped.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Show what is left. Default without --to.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the owners of a running node's enclaves to move them to another node, which copies them ahead of time.

    The node signs the request and shows it in /info; clients show it to their users. The other node's operator must
    allow the copies: imports.ahead_from there must name this node's key. An owner moves with `enc migrate ENCLAVE --to
    URL`; the node cannot do it without them.

    Repeat the command with --status until no enclave is left.
    """
    from enc.node.control.client import call

    with exits.exit_on_error(NAME):
        if (to is not None) + stop + status > 1:
            raise MisuseError("give one of --to, --stop and --status")
        if to is None and (source or deadline):
            raise MisuseError("--source, --deadline: only with --to")
        folder = load(config, data)[0].data_path
        if stop:
            found = call(folder, "stop-evacuation")
            typer.echo(
                json.dumps(found) if as_json else "stopped" if found["stopped"] else "no evacuation was going on"
            )
            return
        if to is not None:
            until = 0 if deadline is None else _time(deadline)
            call(folder, "evacuate", {"to": to, "to_key": _key(to), "source": source or "", "deadline": until})
        pages = list(_pages(folder))
        typer.echo(json.dumps(_wire(pages)) if as_json else _text(pages))


def _key(url: str) -> str:
    from enc.client import Client

    with Client(url, pins=None, timeout=TIMEOUT_S, patience=0) as client:
        return client.seq_pub().hex()


def _time(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise MisuseError(f"--deadline {text}: expected a date, such as 2027-03-31 or 2027-03-31T12:00Z") from None


def _pages(folder: Path) -> Iterator[dict[str, Any]]:
    from enc.node.control.client import call

    after = ""
    while True:
        page = call(folder, "evacuation", {"after": after})
        yield page
        if not page["more"]:
            return
        after = page["enclaves"][-1]["enclave"]


def _wire(pages: list[dict[str, Any]]) -> dict[str, Any]:
    first = {name: pages[0][name] for name in ("evacuation", "source", "problem")}
    return {**first, "enclaves": [enclave for page in pages for enclave in page["enclaves"]]}


def _text(pages: list[dict[str, Any]]) -> str:
    evacuation, enclaves = pages[0]["evacuation"], _wire(pages)["enclaves"]
    if evacuation is None:
        return "no evacuation is going on: enc node evacuate --to URL"
    until = f" by {utc_time(evacuation['deadline'])}" if evacuation["deadline"] else ""
    lines = [f"asks owners to move to {evacuation['to']} (key {evacuation['to_key']}){until}"]
    lines.append(f"copies are fetched from {pages[0]['source']}")
    if pages[0]["problem"]:
        lines.append(f"no copies are made: {pages[0]['problem']}")
    here = [each for each in enclaves if each["result"] not in LEFT]
    lines += [_line(each) for each in here[:MAX_SHOWN]]
    if len(here) > MAX_SHOWN:
        lines.append(f"{len(here) - MAX_SHOWN} more: see --json")
    counts = Counter(each["result"] for each in enclaves)
    lines.append(", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "no enclaves")
    lines.append(_conclusion(len(here)))
    return "\n".join(map(one_line, lines))


def _line(report: dict[str, Any]) -> str:
    reason = f": {report['reason']}" if report.get("reason") else ""
    behind = f", {report['behind']} events behind" if report.get("behind") else ""
    owners = ", ".join(report.get("owners") or ["none"])
    return f"{report['enclave']}  {report['result']}{behind}{reason}; owners: {owners}"


def _conclusion(here: int) -> str:
    if here:
        return f"{here} still here: their owners have to move them"
    return (
        "every enclave has left: the node may be stopped once clients have followed. Keep its key and a backup: "
        "it answers for what it signed, and owners may come back for an archive"
    )
