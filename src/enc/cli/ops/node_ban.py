"""`enc node ban`, `unban` and `bans`: identities and addresses that a running node refuses."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from enc.cli.common import exits
from enc.cli.common.output import Output, OutputRow
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with, load
from enc.core.errors import MisuseError
from enc.runtime.clock import utc_time

app = node.app

COLUMNS = ("banned", "until", "since", "reason")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])").fullmatch

Target = Annotated[
    str, typer.Argument(metavar="IDENTITY|ADDRESS|NETWORK", help="64 hex digits, an IP address, or a network in CIDR.")
]


def call(config: Path | None, data: str | None, name: str, **params: Any) -> Any:
    """Run an operation of the running node that uses this data directory."""
    from enc.node.control import client

    return client.call(load(config, data)[0].data_path, name, params)


def pages(config: Path | None, data: str | None, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the items of all pages of a listing of the running node."""
    after: str | None = ""
    while after is not None:
        page = call(config, data, name, after=after)
        yield from page["items"]
        after = page.get("next")


@app.command(epilog=epilog_with("Example: enc node ban 203.0.113.0/24 --for 7d --data /var/lib/enc"))
def ban(
    target: Target,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="As 90s, 30m, 12h, 7d or 4w. Default: until unban.")
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="For your own records.")] = "",
    config: ConfigFile = None,
    data: Data = None,
) -> None:
    """Refuse an identity, or the addresses of a network, at the running node, at once and after restarts.

    A banned identity cannot commit or read with a session, and its subscriptions end. It may still leave: export its
    enclaves, ask for their checkpoints, and commit a Migrate. A banned address gets BANNED for everything, and its
    connections are closed. Another ban of the same target replaces the first.
    """
    with exits.exit_on_error(NAME):
        limit = {} if for_ is None else {"seconds": parse_duration(for_)}
        found = call(config, data, "ban", target=target, reason=reason, **limit)
    end = "" if found["until"] is None else f", until {utc_time(found['until'])}"
    typer.echo(f"banned: {found['target']}{end}")


@app.command(epilog=epilog_with("Example: enc node unban 203.0.113.0/24 --data /var/lib/enc"))
def unban(target: Target, config: ConfigFile = None, data: Data = None) -> None:
    """End a ban of the running node. Give the target as `enc node bans` lists it."""
    with exits.exit_on_error(NAME):
        found = call(config, data, "unban", target=target)
    typer.echo(f"no longer banned: {found['target']}")


@app.command(epilog=epilog_with("Example: enc node bans --data /var/lib/enc"))
def bans(config: ConfigFile = None, data: Data = None, as_json: AsJson = False) -> None:
    """List the bans of the running node that have not ended, one per line."""
    with exits.exit_on_error(NAME):
        found = list(pages(config, data, "bans"))
    Output(as_json).rows(COLUMNS, (_row(each) for each in found))


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as 7d."""
    match = _DURATION(text)
    if match is None:
        raise MisuseError(f"--for {text}: expected a number and a unit, s, m, h, d or w: for example 7d")
    return int(match[1]) * UNITS[match[2]]


def _row(ban: Mapping[str, Any]) -> OutputRow:
    until = "-" if ban["until"] is None else utc_time(ban["until"])
    wire = {"target": ban["target"], "since": ban["made_at"], "until": ban["until"], "reason": ban["reason"]}
    return wire, (ban["target"], until, utc_time(ban["made_at"]), ban["reason"] or "-")
