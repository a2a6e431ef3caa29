"""`enc node evacuate`: ask owners to move their enclaves to another node, and show what is left."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common import exits
from enc.cli.common.exits import one_line
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with, load
from enc.core.errors import MisuseError
from enc.runtime.clock import utc_time

if TYPE_CHECKING:
    from enc.client import Registry

app = node.app

LEFT = ("moved", "elsewhere", "terminated")
"""Results of enclaves that no longer need this node."""
MAX_SHOWN = 100
"""Enclaves that are shown one by one."""
TIMEOUT_S = 10.0


@app.command(
    epilog=epilog_with(
        "Example: enc node evacuate --data /var/lib/enc --to https://new.example --deadline 2027-03-31\n\n"
        "Example: enc node evacuate --data /var/lib/enc --status --notify"
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
    notify: Annotated[
        bool | None,
        typer.Option("--notify/--no-notify", help="Notify owners who were not notified yet. Default: with --to."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL#ID:KEY", help="Finds personal stores. Default: registry.announce_to."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the owners of a running node's enclaves to move them to another node, which copies them ahead of time.

    The node signs the request and shows it in /info; clients show it to their users. The other node's operator must
    allow the copies: imports.ahead_from there must name this node's key. An owner moves with `enc migrate ENCLAVE --to
    URL`; the node cannot do it without them.

    Each owner whose personal store is found gets one sealed notice there, signed by the node. Repeat the command with
    --status until no enclave is left, and with --notify to try again where a notice could not be sent.
    """
    from enc.node.control.client import call

    with exits.exit_on_error(NAME):
        if (to is not None) + stop + status > 1:
            raise MisuseError("give one of --to, --stop and --status")
        if to is None and (source or deadline):
            raise MisuseError("--source, --deadline: only with --to")
        if stop and notify:
            raise MisuseError("--notify: not with --stop")
        settings = load(config, data)[0]
        folder, where = settings.data_path, _registry(registry or settings.registry.announce_to)
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
        if notify if notify is not None else to is not None:
            _notify(folder, where, pages)
        found = _report(folder, pages)
        typer.echo(json.dumps(found) if as_json else _text(found))


def _registry(text: str) -> "Registry | None":
    from enc.client.registry.registry_client import parse_registry

    return parse_registry(text) if text else None


def _notify(folder: Path, registry: "Registry | None", pages: list[dict[str, Any]]) -> None:
    from enc.cli.ops.evacuation_notices import notify_owners

    if pages[0]["evacuation"] is None:
        raise MisuseError("--notify: no evacuation is going on: enc node evacuate --to URL")
    notify_owners(folder, pages[0], _enclaves(pages), registry)


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


def _enclaves(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [enclave for page in pages for enclave in page["enclaves"]]


def _report(folder: Path, pages: list[dict[str, Any]]) -> dict[str, Any]:
    from enc.cli.ops.evacuation_notices import owner_reports

    first = {name: pages[0][name] for name in ("evacuation", "source", "problem")}
    enclaves = _enclaves(pages)
    return {**first, "enclaves": enclaves, "owners": owner_reports(folder, enclaves)}


def _text(report: dict[str, Any]) -> str:
    from enc.cli.ops.evacuation_notices import owner_line

    evacuation, enclaves = report["evacuation"], report["enclaves"]
    if evacuation is None:
        return "no evacuation is going on: enc node evacuate --to URL"
    until = f" by {utc_time(evacuation['deadline'])}" if evacuation["deadline"] else ""
    lines = [f"asks owners to move to {evacuation['to']} (key {evacuation['to_key']}){until}"]
    lines.append(f"copies are fetched from {report['source']}")
    if report["problem"]:
        lines.append(f"no copies are made: {report['problem']}")
    here = [each for each in enclaves if each["result"] not in LEFT]
    lines += [*_first(here, _line), *_first(report["owners"], owner_line)]
    counts = Counter(each["result"] for each in enclaves)
    lines.append(", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "no enclaves")
    lines.append(_conclusion(len(here)))
    return "\n".join(map(one_line, lines))


def _first(reports: list[dict[str, Any]], line: Callable[[dict[str, Any]], str]) -> list[str]:
    """Return a line for each of the first reports, and how many more there are."""
    more = len(reports) - MAX_SHOWN
    return [*map(line, reports[:MAX_SHOWN]), *([f"{more} more: see --json"] if more > 0 else [])]


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
