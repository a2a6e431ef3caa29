"""What an app brings to a chat: what was and is said there, and what one can do."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from enc.cli.chat_line import Line
from enc.cli.chat_words import Words
from enc.cli.output import Wire
from enc.cli.terminal import Terminal

OFFLINE = "offline, trying again"
DAY_S = 86_400.0
"""How long a chat that stays waits for a node that is away."""


class Shown(Struct, frozen=True):
    """Something that is or was said, ready to be shown."""

    lines: Sequence[Line]
    wire: Wire
    """For programs."""
    seq: int
    """How far the log has been read with it."""
    warning: str = ""
    settles: str = ""
    """What one typed that it came of, if it is a message of one's own."""


class Talk(Protocol):
    """What an app brings to a chat. `past` comes before anything else; then `live` is one thread's, and what `words` do
    another's."""

    @property
    def words(self) -> Words: ...

    status: str
    """In one line: with whom one talks, and how that stands."""
    seq: int
    """How far the log was read for `past`."""

    def past(self, limit: int) -> Iterable[Shown]: ...

    def live(self) -> Iterator[Shown]:
        """Until `close`, or until it raises why nothing more can come."""
        ...

    def doubt(self, line: str) -> str:
        """Why to think twice before this is sent; empty: nothing is against it."""
        ...

    def close(self) -> None: ...


def is_seated(at: Terminal) -> bool:
    """Somebody sits at a terminal, types there and looks at it."""
    return at.is_terminal and sys.stdin.isatty()


def patience(at: Terminal, stay: bool) -> dict[str, Any]:
    """Of the client that listens: whoever stays sees a node come back; a pipe is told that it does not answer."""
    return {"patience": DAY_S} if stay or is_seated(at) else {}
