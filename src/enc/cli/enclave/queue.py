"""`enc queue`: commits that wait in a file until their nodes answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli.common.book import followed_nodes
from enc.cli.common.command import ENCLAVE, NODE, command
from enc.cli.common.command_context import CommandContext, content
from enc.cli.common.event_flags import as_tag
from enc.cli.common.exits import FAILED
from enc.cli.common.failures import NO_ANSWER, hint
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

MAX_WAIT_S = 1e9
OWN = ("as_json", "identity", "profile")
_COLUMNS = ("number", "state", "enclave", "type", "content", "result")
SHOWN = 40
"""Characters of a content that are printed."""
_AGAIN = "EXPIRED: the commit is signed again within a minute: run `enc queue send` again, or wait with --wait 120"
_REJECTED = "`enc queue retry NUMBER` lets a rejected commit wait again, `enc queue discard NUMBER` removes it"
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
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for nodes that are away or busy. Default: --timeout.",
            min=0.0,
            max=MAX_WAIT_S,
        ),
    ] = None,
) -> None:
    """Send what waits in the queue, each enclave's commits in order; print what became of them.

    Each enclave is looked for at the node that was set when its commits were added; with --node, first at that one.
    A commit that has expired is signed again. None becomes two events, also if the answer to it was lost or its
    enclave has moved. The exit code is 3 if commits still wait, else 1 if a node rejected some.
    """
    with ctx.client_as(ctx.identity(), **_followed(ctx, queue)) as client, client.commit_queue(_path(queue)) as waiting:
        results, damaged = waiting.send(patience=wait, own_node_first=ctx.is_given("node")), waiting.damaged()
    _note_hints(ctx, [(error, each.is_waiting) for each in results if (error := _error(each)) is not None])
    ctx.rows(_COLUMNS, [*(_outcome(ctx, each) for each in results), *map(_damaged, damaged)])
    if any(each.is_waiting for each in results):
        raise typer.Exit(NO_ANSWER)
    if damaged or any(_error(each) is not None for each in results):
        raise typer.Exit(FAILED)


@command(app, "enc queue list", "enc queue list --json", flags=OWN, name="list")
def list_(ctx: CommandContext, queue: Queue = None) -> None:
    """List your commits in the queue: those that wait, and those that a node rejected."""
    with _open(ctx, queue) as file:
        waiting, rejected, damaged = file.waiting(), file.rejected(), file.damaged()
    _note_hints(ctx, [(each.error, False) for each in rejected if each.error is not None])
    rows = [_queued(ctx, each, "waiting") for each in waiting]
    rows += [_queued(ctx, each, "rejected") for each in rejected]
    ctx.rows(_COLUMNS, [*rows, *map(_damaged, damaged)])


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


def _followed(ctx: CommandContext, queue: Path | None) -> dict[str, Any]:
    """Return the nodes to which the user followed enclaves of the queue, as an argument of the client."""
    with _open(ctx, queue) as file:
        nodes = [url for enclave in file.enclaves() for url in followed_nodes(enclave.hex())]
    return {"nodes": nodes} if nodes else {}


def _note_hints(ctx: CommandContext, errors: "list[tuple[EncError, bool]]") -> None:
    """Print once what to do about each kind of error. `errors`: with whether the commit still waits."""
    hints = [
        _AGAIN if each.code == "EXPIRED" and waits else hint(each.code, each.message, {}) for each, waits in errors
    ]
    if not all(waits for _, waits in errors):
        hints.append(_REJECTED)
    for text in dict.fromkeys(filter(None, hints)):
        ctx.note(f"enc: {text}")


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


def _damaged(number: int) -> OutputRow:
    """Return the row of a commit that cannot be read."""
    message = f"cannot be read: remove it with `enc queue discard {number}`"
    return {"number": number, "state": "damaged"}, (str(number), "damaged", "", "", "", message)


def _refused(ctx: CommandContext, number: int, commit: "Commit", state: str, error: "EncError") -> OutputRow:
    return _row(ctx, number, commit, state, f"{error.code}: {error.message}", {"error": error.to_wire()})


def _row(
    ctx: CommandContext, number: int, commit: "Commit", state: str, result: str = "", more: dict[str, Any] | None = None
) -> OutputRow:
    from enc.core.log.commit import wire_commit

    wire = {"number": number, "state": state, "commit": wire_commit(commit), **(more or {})}
    enclave = short(commit.enclave) if ctx.is_terminal else commit.enclave.hex()
    return wire, (str(number), state, enclave, commit.type, _start(commit.content or ""), result)


def _start(content: str) -> str:
    return content if len(content) <= SHOWN else f"{content[: SHOWN - 1]}…"
