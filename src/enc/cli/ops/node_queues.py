"""`enc node queues` and `enc node redeliver`: push queues, and their dead letters."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import exits
from enc.cli.common.output import Output, OutputRow, short
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with, load
from enc.core.errors import MisuseError
from enc.runtime.clock import now_ms

if TYPE_CHECKING:
    from enc.node.store.push_interface import QueueReport

app = node.app

COLUMNS = ("identity", "push_seq", "waiting", "oldest", "delivered", "dead", "url", "last error", "endpoint")

MAX_QUEUES = 10_000
"""Maximum number of queues to look through."""

_HEX64 = re.compile(r"[0-9a-f]{64}").fullmatch


@app.command(epilog=epilog_with("Example: enc node queues --data /var/lib/enc"))
def queues(config: ConfigFile = None, data: Data = None, as_json: AsJson = False) -> None:
    """Print the push queue of each endpoint, whether the node runs or not: one line per identity and URL.

    Counts are batches; `oldest` is the age of the oldest waiting batch. Batches wait until the endpoint is confirmed:
    until it has answered a challenge. A suspended endpoint answered 404 or 410.
    """
    from enc.node.store.sqlite.push.reader import read_reports

    with exits.exit_on_error(NAME):
        reports = read_reports(load(config, data)[0].store_path)
    output = Output(as_json)
    output.rows(COLUMNS, _rows(reports, now_ms(), is_cut=output.is_terminal))


@app.command(epilog=epilog_with("Example: enc node redeliver --data /var/lib/enc --url https://example.com/hook"))
def redeliver(
    config: ConfigFile = None,
    data: Data = None,
    identity: Annotated[str | None, typer.Option(metavar="HEX", help="Only batches for this identity.")] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Only batches for this endpoint.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All dead letters of the node.")] = False,
) -> None:
    """Requeue dead letters as if never tried, whether the node runs or not. A running node sends them soon.

    The batches keep their numbers, so that receivers recognise duplicates.

    Endpoints that are suspended, or whose challenge failed, get a new challenge at once. Endpoints that
    wait after failed deliveries are tried at once.
    """
    from enc.node.store.sqlite.push.reader import redeliver_at

    with exits.exit_on_error(NAME):
        path = load(config, data)[0].store_path
        is_named = identity is not None or url is not None
        if all_ and is_named:
            raise MisuseError("redeliver: --all cannot be used with --identity or --url")
        if not all_ and not is_named:
            raise MisuseError("redeliver: give --identity, --url or both, or --all")
        if identity is not None and not _HEX64(identity):
            raise MisuseError("--identity: expected 64 lower-case hex digits")
        named = None if identity is None else bytes.fromhex(identity)
        count, resumed = redeliver_at(path, now_ms(), named, url)
        if is_named and not count and not resumed and not _has_queue(path, named, url):
            typer.echo(f"{NAME}: no such queue; `enc node queues` lists all queues", err=True)
    typer.echo("1 batch waits again" if count == 1 else f"{count} batches wait again")
    if resumed:
        typer.echo("1 endpoint is tried again" if resumed == 1 else f"{resumed} endpoints are tried again")


def _has_queue(path: Path, identity: bytes | None, url: str | None) -> bool:
    from enc.node.store.sqlite.push.reader import read_reports

    reports = read_reports(path, MAX_QUEUES)
    is_cut = len(reports) == MAX_QUEUES  # the queue may be among those that were not read
    return is_cut or any(identity in (None, each.identity) and url in (None, each.url) for each in reports)


def _rows(reports: "Iterable[QueueReport]", now: int, *, is_cut: bool) -> Iterator[OutputRow]:
    for report in reports:
        wire = {
            "identity": report.identity.hex(),
            "url": report.url,
            "push_seq": report.push_seq,
            "waiting": report.waiting,
            "waiting_events": report.waiting_events,
            "oldest": report.oldest,
            "delivered": report.delivered,
            "dead": report.dead,
            "last_error": report.last_error or None,
            "last_error_at": report.last_error_at,
            "state": report.state,
            "confirmed_at": report.confirmed_at,
            "held_until": report.held_until or None,
        }
        cells = (
            short(report.identity) if is_cut else report.identity.hex(),
            str(report.push_seq),
            str(report.waiting),
            "-" if report.oldest is None else age(now - report.oldest),
            str(report.delivered),
            str(report.dead),
            report.url,
            f"{report.last_error}, {age(now - (report.last_error_at or now))} ago" if report.last_error else "-",
            f"{report.state}, held for {age(report.held_until - now)}" if report.held_until > now else report.state,
        )
        yield wire, cells


def age(ms: int) -> str:
    """Format a duration in the largest unit that fits at least once."""
    seconds = max(ms, 0) // 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
