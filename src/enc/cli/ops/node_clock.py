"""`enc node clock`: what a node has recorded of its clock, and how to repair that."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.common import exits
from enc.cli.common.output import fields
from enc.cli.ops import node
from enc.cli.ops.node import NAME, AsJson, ConfigFile, Data, epilog_with, load
from enc.runtime.clock import now_ms, utc_time

if TYPE_CHECKING:
    from enc.node.ops.recorded_clock import RecordedClock

app = node.app

MAX_SHOWN = 100
"""Enclaves that are shown one by one."""


@app.command(epilog=epilog_with("Example: enc node clock --data /var/lib/enc"))
def clock(
    config: ConfigFile = None,
    data: Data = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Lower the recorded time. The node must not be running.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do not ask whether the clock is right.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the wall clock, the time that the node has recorded, and its newest event, also while the node runs.

    While the clock is more than a minute behind the recorded time, the node accepts no commits. If the clock ran ahead
    by mistake and is right now, --repair records the time of the newest event that is not ahead instead. Enclaves whose
    last event is ahead of the clock wait until then; the others go on.
    """
    from enc.node.ops.recorded_clock import read_clock, repair_clock
    from enc.node.store.sqlite.connection import open_existing
    from enc.node.store.sqlite.store import SqliteStore

    with exits.exit_on_error(NAME):
        path = load(config, data)[0].store_path
        with closing(open_existing(path)) as db:
            found = read_clock(db, now_ms())
        if repair and found.behind_ms:
            if not yes:
                typer.echo(_text(found), err=True)
                typer.confirm("Is the wall clock right?", abort=True, err=True)
            with closing(SqliteStore(path)) as store:
                found = repair_clock(store, now_ms())
    typer.echo(_json(found) if as_json else _text(found))


def _text(found: "RecordedClock") -> str:
    note = ""
    if found.behind_ms:
        note = f": the node accepts no commits for {found.behind_ms // 1000} s (see --repair)"
    times = fields(
        wall_clock=utc_time(found.now),
        recorded=_time(found.recorded) + note,
        newest_event=_time(found.newest_event),
        ahead=f"{len(found.ahead)} enclaves",
    )
    shown = [f"{enclave.hex()} waits until {utc_time(time)}" for enclave, time in found.ahead[:MAX_SHOWN]]
    return "\n".join([times, *shown])


def _time(ms: int) -> str:
    return utc_time(ms) if ms else "none"


def _json(found: "RecordedClock") -> str:
    ahead = [{"enclave": enclave.hex(), "last_event": time} for enclave, time in found.ahead]
    return json.dumps(
        {
            "now": found.now,
            "recorded": found.recorded,
            "newest_event": found.newest_event,
            "behind_ms": found.behind_ms,
            "ahead": ahead,
        }
    )
