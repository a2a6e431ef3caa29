"""`enc migrate --all`: move every enclave that this identity owns from one node to another."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from enc.cli.common.command_context import CommandContext
from enc.cli.common.exits import FAILED
from enc.cli.enclave.archive import ProgressBar
from enc.core.errors import EncError, EnclaveTerminated, MisuseError

if TYPE_CHECKING:
    from enc.client import Client


def migrate_all(ctx: CommandContext, from_: str | None, to: str, source: str | None, *, accept_loss: bool) -> None:
    """Move them one after the other, and print what became of each. Ends with exit code 1 if some
    were not moved; the next call goes on with those.
    """
    old_url = from_ or ctx.settings.get("node")
    with ctx.client_as(None, url=to) as client:
        new = client.seq_pub()
    with ctx.client_as(ctx.identity(), url=old_url, accept_loss=accept_loss) as client:
        old = client.seq_pub()
        if old == new:
            raise MisuseError(f"--to {to}: is the node that has the enclaves now, key {old.hex()}; give another node")
        results = [_migrate(ctx, client, enclave, to, source) for enclave in _candidates(old, new)]
    moved, failed = results.count("moved"), results.count("failed")
    ctx.emit({"moved": moved, "failed": failed}, f"{moved} moved, {failed} failed")
    if failed:
        raise typer.Exit(FAILED)


def _migrate(ctx: CommandContext, client: "Client", id_: str, to: str, source: str | None) -> str:
    """Move an enclave if this identity owns it; return `moved`, `not an owner`, `terminated` or `failed`."""
    from enc.client import Distrust

    result, why = "moved", ""
    try:
        enclave = client.enclave(id_)
        is_begun = _is_begun(id_)
        if not (is_begun or enclave.may_migrate()):
            result = "not an owner"
        elif not is_begun and enclave.overview().lifecycle == "terminated":
            result = "terminated"
        else:
            with ProgressBar(ctx.is_terminal) as bar:
                step = partial(print_step, ctx)
                enclave.migrate(to, moves_folder(), source=source, tell=step, progress=bar.show)
    except EnclaveTerminated:
        result = "terminated"
    except Distrust:  # evidence, which the command saves
        raise
    except EncError as e:
        result, why = "failed", e.message
    ctx.emit({"enclave": id_, "result": result, "message": why}, f"{id_}: {result}{why and ': '}{why}")
    return result


def _candidates(old: bytes, new: bytes) -> Iterator[str]:
    """Yield the enclaves that are at the old node as far as known here, and those of unfinished moves."""
    from enc.client.verify.pins import FilePins, default_directory

    pins = FilePins(default_directory())
    for path in sorted(default_directory().glob(f"{'[0-9a-f]' * 64}.json")):
        pin = pins.load(bytes.fromhex(path.stem))
        is_there = pin is not None and pin.named[0] == old
        if is_there or (moves_folder() / f"{path.stem}-{new.hex()[:16]}").is_dir():
            yield path.stem


def _is_begun(enclave: str) -> bool:
    """Return whether a move of the enclave was interrupted: then the old node may have let it go."""
    folder = moves_folder()
    begun = re.compile(f"{enclave}-[0-9a-f]{{16}}")
    return folder.is_dir() and any(begun.fullmatch(path.name) for path in folder.iterdir())


def moves_folder() -> Path:
    from enc.client.verify.pins import default_directory

    return default_directory().parent / "moves"


def print_step(ctx: CommandContext, step: str, what: str) -> None:
    """Print a line for each step: on stdout for programs, on stderr for people."""
    if ctx.as_json:
        ctx.emit({"step": step, "what": what}, "")
    else:
        ctx.note(f"{step:<8}  {what}")
