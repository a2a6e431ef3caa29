"""`enc node salvage`: copy what still replays from a damaged store into a new one."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from enc.cli.common import exits
from enc.cli.common.exits import one_line
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, ask_passphrase, enclave_id, epilog_with, load
from enc.core.errors import MisuseError
from enc.node.config import NodeConfig

if TYPE_CHECKING:
    from enc.node.salvage.enclaves import LeftOut
    from enc.node.salvage.salvage import SalvageReport, SalvageSteps

app = node.app


@app.command(epilog=epilog_with("Example: enc node salvage --data /var/lib/enc --to /var/lib/enc-salvaged"))
def salvage(
    to: Annotated[Path, typer.Option(metavar="NEWDIR", help="New data directory to write. It must not exist.")],
    config: ConfigFile = None,
    data: Data = None,
    enclave: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Salvage only this enclave; may be repeated.")
    ] = None,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Salvage also the beginnings of logs whose later events are lost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy every enclave that still replays from a damaged store into a new one, and list the others.

    The node must not be running. The damaged store is only read. The new store is checked as by `enc node fsck`, and is
    in the state `restored`: run `enc node adopt` before its node signs again. The key file is copied if it is in DIR.

    With --prefix, an enclave may lack its newest events. Such a store cannot be adopted, except with --new-key.
    Exit code 1: an enclave is left out or lacks events, or nothing could be written.
    """
    from enc.node.ops.signer import open_signer
    from enc.node.salvage.salvage import salvage as run

    with exits.exit_on_error(NAME):
        settings, _ = load(config, data)
        chosen = [enclave_id(text) for text in enclave or ()]
        if not settings.store_path.is_file():  # else a key would be created
            raise MisuseError(f"{settings.store_path}: no such file")
        key = open_signer(settings, ask_passphrase)
        files = _key_files(settings)
        with _progress() as steps:
            report = run(settings.store_path, to, key, steps, chosen=chosen, prefixes=prefix, files=files)
    typer.echo(_json(report) if as_json else _text(report, to, settings, bool(files)))
    raise typer.Exit(exits.DONE if report.is_whole else exits.FAILED)


def _key_files(settings: NodeConfig) -> list[Path]:
    """Return the key file, if the node finds it in its data directory."""
    is_there = os.path.lexists(settings.key_path) and settings.key_path.parent == settings.store_path.parent
    return [settings.key_path] if is_there and not settings.key.signer else []


@contextmanager
def _progress() -> "Iterator[SalvageSteps]":
    """Show what is being done if stderr is a terminal."""
    from enc.node.salvage.salvage import SalvageSteps

    if not sys.stderr.isatty():
        yield SalvageSteps(*[_ignore] * 3)
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:

        def advance(description: str) -> Callable[[int], None]:
            task = bar.add_task(description, total=None)
            return lambda more: bar.advance(task, more)

        yield SalvageSteps(advance("pages read"), advance("events salvaged"), advance("events checked"))


def _ignore(more: int) -> None:
    """Show nothing."""


def _text(report: "SalvageReport", to: Path, settings: NodeConfig, has_key: bool) -> str:
    found = report.enclaves
    lines = [_left_out(each) for each in found.left_out]
    if report.unnamed:
        lines.append(f"of {report.unnamed} more enclaves in the store nothing was found")
    lines += [f"note: {each}" for each in _notes(report)]
    if not has_key:
        where = settings.key.signer or settings.key_path
        lines.append(f"note: the key was not copied: it stays at {where}")
    purged = f", {found.tombstones} purged ones" if found.tombstones else ""
    lines.append(f"{to}: {found.enclaves} enclaves, {found.events} events{purged}; {_left(report)}")
    lines.append(_next_step(report, to))
    return "\n".join(map(one_line, lines))


def _next_step(report: "SalvageReport", to: Path) -> str:
    found = report.enclaves
    if not found.enclaves:
        return "no enclave was salvaged: restore a backup, or let the owners move from their archives"
    if any(each.kept for each in found.left_out):
        return f"next: enc node adopt --data {to} --new-key NEWDIR; the node must not sign for logs that end early"
    lost = f"; with witnesses, --lost ID for each of the {len(found.left_out)} left out" if found.left_out else ""
    return f"next: enc node adopt --data {to}{lost}; until then the node signs nothing"


def _left(report: "SalvageReport") -> str:
    shortened = sum(each.kept > 0 for each in report.enclaves.left_out)
    left = len(report.enclaves.left_out) - shortened + report.unnamed
    return f"{left} left out" + (f", {shortened} WITHOUT THEIR NEWEST EVENTS" if shortened else "")


def _left_out(each: "LeftOut") -> str:
    name = each.enclave.hex() or f"the enclave with the number {each.number}, whose id cannot be read"
    what = f"ONLY EVENTS 0 TO {each.kept - 1}" if each.kept else "left out"
    ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in each.missing)
    return f"{name}: {what}: {each.reason}{': ' * bool(ranges)}{ranges}"


def _notes(report: "SalvageReport") -> Iterator[str]:
    found, queues = report.enclaves, report.queues
    if report.unreadable_pages:
        yield f"{report.unreadable_pages} of {report.pages} pages could not be read from the disk"
    if report.damaged_frames:
        yield f"{report.damaged_frames} pages in the write-ahead log are damaged: the newest commits may be lost"
    if found.unconfirmed:
        yield f"the states of {found.unconfirmed} enclaves could not be read: their newest events may be lost"
    if found.signed_again:
        yield f"{found.signed_again} heads could not be read: the node signed the same sizes and roots again"
    if found.without_head:
        bundles = f"{found.without_head} heads of earlier sequencers' bundles"
        yield f"{bundles} could not be read: the new store has none of these sizes"
    if not report.has_clock:
        yield "the recorded time could not be read: the new store has the time of the newest event"
    if queues.lost:
        yield f"{queues.lost} batches of pushes are lost: their recipients fetch the events from the enclaves"
    if queues.dropped:
        yield "the queues of pushes contradicted each other: no waiting batch was kept"
    for identity, url in queues.restarted:
        queue = f"the queue of {identity.hex()} at {urlsplit(url).hostname}"
        todo = "its recipient must start with a new state file"
        yield f"{queue} could not be read: its numbers begin at 1 again, and {todo}"


def _json(report: "SalvageReport") -> str:
    found = report.enclaves

    def entry(each: "LeftOut") -> dict[str, Any]:
        enclave = each.enclave.hex() or None
        return {"enclave": enclave, "reason": each.reason, "missing": each.missing, "kept": each.kept}

    return json.dumps(
        {
            "enclaves": found.enclaves,
            "events": found.events,
            "purged": found.tombstones,
            "left_out": [entry(each) for each in found.left_out],
            "unnamed": report.unnamed,
            "notes": [*_notes(report)],
        }
    )
