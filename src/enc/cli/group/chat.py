"""`enc group chat`: a conversation in a group, in a terminal or through a pipe."""

import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from enc.cli.chat.loop import run_chat
from enc.cli.chat.slash_commands import HISTORY
from enc.cli.chat.source import AWAY, BACK, ChatUpdate, patience
from enc.cli.common.command import NODE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.exits import FAILED
from enc.cli.group.context import GroupName, open_feed, open_group
from enc.cli.group.slash_commands import GroupCommands
from enc.cli.group.view import STALE, GroupView, epoch_text, member_count, role_text, topic_text, wire
from enc.core.errors import WorldError
from enc.runtime.backoff import Backoff

if TYPE_CHECKING:
    from enc.apps.group import Change, Group, GroupEntry, GroupStatus
    from enc.apps.group.following import Following
    from enc.client import Enclave

app = typer.Typer()
TOPIC = 24
"""Width of the topic in the status line, in cells."""


@command(
    app,
    "enc group chat plans",
    "enc group chat plans --history 100",
    "echo hello | enc group chat plans",
    "enc group chat plans --stay --json",
    flags=NODE,
    panel="Talking",
)
def chat(
    ctx: CommandContext,
    name: GroupName,
    history: Annotated[int, typer.Option(min=0, metavar="N", help="Show this many earlier messages.")] = HISTORY,
    stay: Annotated[
        bool, typer.Option("--stay", help="Without a terminal: continue listening when stdin ends.")
    ] = False,
) -> None:
    """Chat in a group: shows the history, then new messages; sends what you type. /help lists commands.

    Without a terminal it reads and prints line by line.
    """
    with open_group(ctx, name) as (group, book, client), open_feed(ctx, name, **patience(ctx, stay)) as feed:
        group.sync()
        view = GroupView(group, book.names())
        commands = GroupCommands(group, view, book, client)
        source = GroupChat(group, feed, name, view, commands, **patience(ctx, stay))
        is_well = run_chat(ctx, source, history, stay=stay)
    if not is_well:
        raise typer.Exit(FAILED)


class GroupChat:
    """A conversation in a group. All threads share `group`; `feed` is its enclave, to subscribe to.

    `patience`: seconds for which the node may be unreachable.
    """

    def __init__(
        self,
        group: "Group",
        feed: "Enclave",
        name: str,
        view: GroupView,
        commands: GroupCommands,
        patience: float = 0.0,
    ) -> None:
        self._group, self._feed, self._name, self._view, self.commands = group, feed, name, view, commands
        self._patience, self._closed = patience, threading.Event()
        self.is_patient, self.is_away = bool(patience), False
        self._following = self._follow()
        self._now = group.status()
        self.seq, self.status = self._now.seq, self._status_line()

    def _status_line(self) -> str:
        now = self._now
        topic = "" if now.topic is None else f": {_cut(topic_text(now.topic))}"
        return " | ".join(
            (f"{self._name}{topic}", member_count(now.members), epoch_text(now), f"you: {role_text(now)}")
        )

    def _follow(self) -> "Following":
        """Follow changes; with patience, also whether the node answers."""
        return self._group.follow(self._feed, patience=self._patience or None)

    def past(self, limit: int) -> Iterable[ChatUpdate]:
        return [
            ChatUpdate([self._view.entry(entry)], {"entry": wire(entry)}, entry.seq)
            for entry in self._group.entries(limit)
        ]

    def live(self) -> Iterator[ChatUpdate]:
        """Yield changes. With patience, reconnect after the node was unreachable; else raise WorldError."""
        while not self._closed.is_set():
            try:
                for change in self._following:
                    yield from self._connection(change.kind == "online") if not change.id else [self._shown(change)]
                return
            except WorldError:
                if not self._patience:
                    raise
                self._following.close()
            yield from self._connection(False)
            yield from self._reconnect()

    def _connection(self, is_up: bool) -> Iterator[ChatUpdate]:
        """Report once that the node stops or resumes answering."""
        if self.is_away == is_up:
            self.is_away = not is_up
            yield ChatUpdate((), {}, -1, BACK if is_up else AWAY)

    def _reconnect(self) -> Iterator[ChatUpdate]:
        """Retry the sync until it succeeds, then subscribe again."""
        from enc.client.wire.retrying_caller import PAUSES

        backoff = Backoff(self._patience, time.monotonic, PAUSES)
        while not self._closed.is_set():
            try:
                changes = self._group.sync()
            except WorldError as e:
                self._closed.wait(backoff.wait(e))
                continue
            self._following = self._follow()
            self._now = self._group.status()
            self.status = self._status_line()
            yield from self._connection(True)
            yield from map(self._shown, changes)
            return

    def _shown(self, change: "Change") -> ChatUpdate:
        before, self._now = self._now, self._group.status()
        self.status = self._status_line()
        warning = STALE if _is_risky(self._now) and not before.is_stale else ""
        lines = self._view.change(change)
        return ChatUpdate(lines, {"change": wire(change)}, change.seq, warning, self._mine(change))

    def _mine(self, change: "Change") -> str:
        entry: GroupEntry | None = (
            change.entry if change.kind == "message" and change.author == self._group.me else None
        )
        return "" if entry is None else entry.text or ""

    def warning_for(self, line: str) -> str:
        """Return a warning if people who left could read the line and this client cannot make an epoch."""
        return STALE if _is_risky(self._now) and self.commands.seals(line) else ""

    def close(self) -> None:
        self._closed.set()
        self._following.close()


def _cut(topic: str) -> str:
    """Cut a topic, so that the rest of the status line stays visible."""
    from rich.cells import cell_len, set_cell_size

    return topic if cell_len(topic) <= TOPIC else f"{set_cell_size(topic, TOPIC - 1).rstrip()}…"


def _is_risky(status: "GroupStatus") -> bool:
    return status.is_stale and not status.me.is_admin
