"""The interface between a chat and its application: history, new entries, and commands."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from enc.cli.chat.line import ChatLine
from enc.cli.chat.slash_commands import SlashCommands
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import Wire

AWAY = "the node does not answer; what you type waits, and is sent when it answers again"
BACK = "the node answers again"
AWAY_STATUS = "offline, trying again"
DAY_S = 86_400.0
"""How long a chat that stays waits for an unreachable node."""


class ChatUpdate(Struct, frozen=True):
    """One change of the conversation, ready to be shown."""

    lines: Sequence[ChatLine]
    wire: Wire
    """The change for programs."""
    seq: int
    """How far the log is read with this update."""
    warning: str = ""
    confirms: str = ""
    """The typed text that this update confirms, if it is a message of one's own."""


class ChatSource(Protocol):
    """The conversation of an application. `past` is called first; then one thread runs `live`, another `commands`."""

    @property
    def commands(self) -> SlashCommands: ...

    status: str
    """The status line: the partner or group, and its state."""
    is_patient: bool
    """Whether the chat waits for a node that does not answer."""
    is_away: bool
    """Whether the node did not answer the subscription lately."""
    seq: int
    """How far the log is read for `past`."""

    def past(self, limit: int) -> Iterable[ChatUpdate]: ...

    def live(self) -> Iterator[ChatUpdate]:
        """Yield updates until `close`; raises if there can be no more."""
        ...

    def warning_for(self, line: str) -> str:
        """Return a warning to confirm before the line is sent; empty if there is none."""
        ...

    def close(self) -> None: ...


def is_interactive(ctx: CommandContext) -> bool:
    """Return whether stdin and stdout are a terminal."""
    return ctx.is_terminal and sys.stdin.isatty()


def patience(ctx: CommandContext, stay: bool) -> dict[str, Any]:
    """Return the subscribing client's patience: a chat that stays waits for the node; a pipe fails."""
    return {"patience": DAY_S} if stay or is_interactive(ctx) else {}
