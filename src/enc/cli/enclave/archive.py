"""`enc archive`: back up a whole enclave to one file, and verify such a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.command import ENCLAVE, LOCAL, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.exits import FAILED
from enc.cli.common.output import fields, visible, withheld_text
from enc.core.errors import MisuseError, PeerError, ReplayFailed

if TYPE_CHECKING:
    from enc.core.machine.archive import Header

CHUNK = 1 << 20

app = typer.Typer(name="archive", help="Back up a whole enclave to one file, and verify it.", no_args_is_help=True)


@command(app, "enc archive pull backup.enc", flags=ENCLAVE)
def pull(
    ctx: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write. The file must not exist.")],
) -> None:
    """Back up the whole enclave, as its owner. Every event is replayed as it arrives.

    To continue an interrupted pull, run the same command again.
    """
    with ctx.enclave() as enclave, ProgressBar(ctx.is_terminal) as bar:
        header = enclave.archive(file, bar.show)
    wire = {"file": str(file), "enclave": enclave.hex, "events": header.events, "head": header.sth and header.sth.ts}
    ctx.emit(wire, fields(**wire))


@command(app, "enc archive verify backup.enc", "enc archive verify backup.enc --json", flags=LOCAL)
def verify(ctx: CommandContext, file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive.")]) -> None:
    """Replay an archive in full, without a node: every hash, signature, right and root is derived again.

    A content that a node of the log withholds by its signed statement is listed; it is not a fault.

    Exit code 0: the archive is valid. 1: it is not; the first fault is printed.
    """
    try:
        found = _verify(file)
    except PeerError as e:
        seq = e.seq if isinstance(e, ReplayFailed) else None
        found = {"ok": False, "code": e.code, "seq": seq, "message": e.message}
    ctx.emit(found, _text(found))
    if not found["ok"]:
        raise typer.Exit(FAILED)


def _verify(file: Path) -> dict[str, Any]:
    from enc.client.enclave.backup import summarise
    from enc.core.log.withheld import wire_withheld
    from enc.core.machine.archive import read_archive

    header, events = read_archive(_chunks(file))
    found = summarise(header, events)
    return {
        "ok": True,
        "events": header.events,
        "bundles": found.bundles,
        "state_hash": found.state_hash.hex(),
        "ct_root": found.ct_root.hex(),
        "checkpoint_root": header.checkpoint_root.hex(),
        **_about(header),
        "withheld": [{"seq": seq, **wire_withheld(statement)} for seq, statement in found.withheld],
    }


def _text(found: dict[str, Any]) -> str:
    """Format the result for people: the number of withheld contents, then one line for each."""
    withheld = found.get("withheld", [])
    words = (f"event {each['seq']}: {withheld_text(each['reason'], each['ts'])}" for each in withheld)
    counted = {"withheld": len(withheld)} if found["ok"] else {}
    return "\n".join([fields(**{**found, **counted}), *map(visible, words)])


def _about(header: "Header") -> dict[str, Any]:
    return {"enclave": header.enclave.hex(), "sequencer": header.sequencers[-1][0].hex()}


def _chunks(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as source:
            while chunk := source.read(CHUNK):
                yield chunk
    except OSError as e:
        raise MisuseError(f"{file}: {e.strerror}") from None


class ProgressBar:
    """A progress bar on stderr, shown only on a terminal."""

    def __init__(self, is_shown: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), disable=not is_shown)
        self._task = self._bar.add_task("events", total=None)

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, here: int, total: int) -> None:
        self._bar.update(self._task, completed=here, total=total)
