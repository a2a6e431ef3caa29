"""`enc queue`: commits that wait in a file until their nodes answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.command import ENCLAVE, NODE, command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.event_flags import as_tag
from enc.cli.common.exits import FAILED
from enc.cli.common.failures import NO_ANSWER
from enc.cli.common.output import OutputRow, short
from enc.cli.enclave.write import File, Tag, Text

if TYPE_CHECKING:
    from enc.client import QueuedCommit, QueueResult
    from enc.client.commit_queue.queue_file import QueueFile
    from enc.core.errors import EncError
    from enc.core.primitives.types import Commit

app = typer.Typer(
    name="queue", help="Write offline: commits wait in a file until their nodes answer.", no_args_is_help=True
)

OWN = ("as_json", "identity", "profile")
_COLUMNS = ("number", "state", "enclave", "type", "result")
Queue = Annotated[
    Path | None,
    typer.Option("--queue", metavar="FILE", help="The queue's file. Default: queue.db in enc's data directory."),
]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="The commit's number in the queue.")]


def _path(given: Path | None) -> Path:
    from enc.client.verify.pins import default_directory
    from enc.runtime import private_file

    if given is not None:
        return given
    folder = default_directory().parent
    private_file.make_directory(folder)
    return folder / "queue.db"


@contextmanager
def _open(ctx: CommandContext, given: Path | None) -> "Iterator[QueueFile]":
    from enc.client.commit_queue.queue_file import QueueFile

    file = QueueFile(_path(given), ctx.public_key())
    try:
        yield file
    finally:
        file.close()


@command(app, 'enc queue add message "hello"', "date | enc queue add entry - --tag host=web1", flags=ENCLAVE)
def add(
    ctx: CommandContext,
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="An event type of the manifest.")],
    text: Text = None,
    file: File = None,
    tags: Tag = None,
    queue: Queue = None,
) -> None:
    """Sign a commit and store it in the queue. Needs no node; `enc queue send` sends it."""
    body, enclave = content(text, file), ctx.enclave_id()
    with ctx.client() as client, client.commit_queue(_path(queue)) as waiting:
        commit = client.enclave(enclave).prepare(type_, body, tags=list(map(as_tag, tags or ())))
        number = waiting.add(commit, at=client.url or None)
    ctx.rows(_COLUMNS, [_row(ctx, number, commit, "waiting")])


@command(app, "enc queue send", "enc queue send --wait 3600", flags=NODE)
def send(
    ctx: CommandContext,
    queue: Queue = None,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="How long to wait for nodes that are away or busy. Default: --timeout."),
    ] = None,
) -> None:
    """Send what waits in the queue, each enclave's commits in order; print what became of them.

    A commit that has expired is signed again. None becomes two events, also if the answer to it was lost or its
    enclave has moved. The exit code is 3 if commits still wait, else 1 if a node rejected some.
    """
    with ctx.client() as client, client.commit_queue(_path(queue)) as waiting:
        results = waiting.send(patience=wait)
    ctx.rows(_COLUMNS, (_outcome(ctx, each) for each in results))
    if any(each.is_waiting for each in results):
        raise typer.Exit(NO_ANSWER)
    if any(_error(each) is not None for each in results):
        raise typer.Exit(FAILED)


@command(app, "enc queue list", "enc queue list --json", flags=OWN, name="list")
def list_(ctx: CommandContext, queue: Queue = None) -> None:
    """List your commits in the queue: those that wait, and those that a node rejected."""
    with _open(ctx, queue) as file:
        waiting, rejected = file.waiting(), file.rejected()
    rows = [_queued(ctx, each, "waiting") for each in waiting]
    ctx.rows(_COLUMNS, rows + [_queued(ctx, each, "rejected") for each in rejected])


@command(app, "enc queue retry 3", flags=OWN)
def retry(ctx: CommandContext, number: Number, queue: Queue = None) -> None:
    """Let a rejected commit wait again, at its old place."""
    with _open(ctx, queue) as file:
        file.retry(number)


@command(app, "enc queue discard 3", flags=OWN)
def discard(ctx: CommandContext, number: Number, queue: Queue = None) -> None:
    """Remove a commit from the queue. One that was sent already may be in the log all the same."""
    with _open(ctx, queue) as file:
        file.discard(number)


def _error(sent: "QueueResult") -> "EncError | None":
    from enc.core.errors import EncError

    return sent.result if isinstance(sent.result, EncError) else None


def _outcome(ctx: CommandContext, sent: "QueueResult") -> OutputRow:
    from enc.core.log.receipt import wire_receipt
    from enc.core.primitives.types import Receipt

    if isinstance(sent.result, Receipt):
        more = {"receipt": wire_receipt(sent.result)}
        return _row(ctx, sent.number, sent.commit, "accepted", f"event {sent.result.seq}", more)
    return _refused(ctx, sent.number, sent.commit, "waiting" if sent.is_waiting else "rejected", sent.result)


def _queued(ctx: CommandContext, queued: "QueuedCommit", state: str) -> OutputRow:
    if queued.error is None:
        return _row(ctx, queued.number, queued.commit, state)
    return _refused(ctx, queued.number, queued.commit, state, queued.error)


def _refused(ctx: CommandContext, number: int, commit: "Commit", state: str, error: "EncError") -> OutputRow:
    return _row(ctx, number, commit, state, f"{error.code}: {error.message}", {"error": error.to_wire()})


def _row(
    ctx: CommandContext, number: int, commit: "Commit", state: str, result: str = "", more: dict[str, Any] | None = None
) -> OutputRow:
    from enc.core.log.commit import wire_commit

    wire = {"number": number, "state": state, "commit": wire_commit(commit), **(more or {})}
    enclave = short(commit.enclave) if ctx.is_terminal else commit.enclave.hex()
    return wire, (str(number), state, enclave, commit.type, result)
