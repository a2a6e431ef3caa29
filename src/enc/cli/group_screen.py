"""Where a chat is seen and typed: a terminal, with a status and a line to type at its bottom; or plain lines."""

import os
import select
import sys
import termios
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

import typer

from enc.cli.group_view import Line, clock, counted, freshness, standing, topic_text, wire
from enc.cli.line_editor import Ended, LineEditor
from enc.cli.terminal import Terminal

if TYPE_CHECKING:
    from enc.apps.group import Change, Entry, Status

PROMPT = "> "
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
AT_ONCE = 1 << 16
"""Bytes that are read from the keyboard at once."""


class Lines:
    """No terminal: a line for each thing, in JSON if that is asked for; remarks go to stderr."""

    is_asked = False
    """Whether somebody can be asked before something is sent."""

    def __init__(self, at: Terminal) -> None:
        self._at, self._rest = at, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def past(self, line: Line, entry: "Entry") -> None:
        """Something from before."""
        self._at.say({"entry": wire(entry)} if self._at.as_json else {}, line.plain())

    def live(self, lines: Sequence[Line], change: "Change") -> None:
        """Something that happens now; for programs all of it, for people what there is to say."""
        if self._at.as_json:
            self._at.say({"change": wire(change)}, "")
            return
        for line in lines:
            self._at.say({}, line.plain())

    def tell(self, text: str) -> None:
        """An answer to a command."""
        self._at.say({"told": text}, text)

    def warn(self, text: str) -> None:
        self._at.note(text)

    def stand(self, status: "Status") -> None:
        """Asked for with /status."""

    def typed(self, data: bytes) -> Iterator[str]:
        """Whole lines; what has no end yet waits. Nothing: it was the last."""
        if not data and self._rest:
            data = b"\n"
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")

    def again(self, line: str) -> None:
        raise AssertionError


class Screen:
    """A terminal: what is said scrolls by above a status line and the line that is being typed."""

    is_asked = True

    def __init__(self, name: str) -> None:
        from rich.console import Console

        self._name, self._fd = name, sys.stdin.fileno()
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
        self._editor, self._status, self._is_drawn = LineEditor(), "", False

    def __enter__(self) -> Self:
        """Keys come as they are pressed, and nothing echoes them but we; a paste comes marked as one."""
        self._before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[0] &= ~(termios.ICRNL | termios.IXON)
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        self._write("\x1b[?2004h")
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()
        self._write("\x1b[?2004l")
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def past(self, line: Line, entry: "Entry") -> None:
        self._show(line)

    def live(self, lines: Sequence[Line], change: "Change") -> None:
        for line in lines:
            self._show(line)

    def _show(self, line: Line) -> None:
        from rich.text import Text

        self._erase()
        shown = Text()
        if line.quote:
            shown.append(f"      > {line.quote}\n", style="dim")
        shown.append(f"{f'#{line.seq}':<6}{clock(line.timestamp)} ", style="dim")
        if line.who:
            if line.is_notice:
                shown.append("[announcement] ", style="bold reverse")
            shown.append(f"{line.who}: ", style=f"bold {_colour(line.who)}")
            shown.append(line.text.replace("\n", "\n      "))
        else:
            shown.append(f"* {line.text}", style="dim italic")
        if line.marks:
            shown.append(f"  {line.marks}", style="dim")
        self._console.print(shown)

    def tell(self, text: str) -> None:
        from rich.text import Text

        self._erase()
        self._console.print(Text(text))

    def warn(self, text: str) -> None:
        from rich.text import Text

        self._erase()
        self._console.print(Text(f"! {text}", style="bold red"))

    def stand(self, status: "Status") -> None:
        topic = "" if status.topic is None else f": {topic_text(status.topic)}"
        parts = (f"{self._name}{topic}", counted(status.members), freshness(status), f"you: {standing(status)}")
        self._status = " | ".join(parts)

    def typed(self, data: bytes) -> Iterator[str]:
        if not data:
            raise Ended
        yield from self._editor.feed(data)

    def again(self, line: str) -> None:
        """The line stands there once more, to be entered or changed."""
        self._editor.set(line)

    def draw(self) -> None:
        """Status and line, and the cursor where it belongs."""
        from rich.cells import set_cell_size

        width = max(20, self._console.width)
        text, column = self._editor.shown(width - len(PROMPT) - 1)
        status = set_cell_size(self._status, width - 1)
        dim, plain = ("\x1b[7m", "\x1b[0m") if not self._console.no_color else ("", "")
        self._erase()
        self._write(f"{dim}{status}{plain}\r\n{PROMPT}{text}\r\x1b[{len(PROMPT) + column}C")
        self._is_drawn = True

    def _erase(self) -> None:
        if self._is_drawn:
            self._write("\r\x1b[1A\x1b[J")
            self._is_drawn = False

    def _write(self, text: str) -> None:
        typer.echo(text.encode(errors="backslashreplace"), nl=False)


def _colour(who: str) -> str:
    """The same person has the same colour each time."""
    return COLOURS[sum(who.encode()) % len(COLOURS)]


def wait_for(*fds: int) -> set[int]:
    """Those of them that have something to read."""
    return set(select.select(fds, [], [])[0])


def read(fd: int) -> bytes:
    try:
        return os.read(fd, AT_ONCE)
    except OSError:  # the terminal is gone
        return b""
