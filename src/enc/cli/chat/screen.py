"""A chat at a terminal: what is said, with a status and a line to type below it."""

import sys
import termios
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

import typer

from enc.cli.chat.line import YOU, ChatLine, visible_lines
from enc.cli.chat.line_editor import Ended, LineEditor
from enc.cli.shell.output import Wire, visible

if TYPE_CHECKING:
    from rich.text import Text

PROMPT = "> "
INDENT = 6
NARROW = 8
"""Cells that a row has at least."""
COLOURS = ("green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
UNDER_WAY = 4
"""Lines that are still being sent, as far as they are shown."""
ABOUT = 40
"""Characters of a line that something is said about."""


class Screen:
    """A terminal: what is said scrolls by; below it what is being sent, a status, and the line that is being typed."""

    is_asked = True
    """Whether somebody can be asked before something is sent."""
    is_output_closed = False

    def __init__(self) -> None:
        from rich.console import Console

        self._fd = sys.stdin.fileno()
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
        self._editor = LineEditor()
        self._drawn = 0
        """Rows that are drawn above the line that is typed; 0: that one is not there, either."""
        self._day, self._last = "", ("", 0)
        """The day of the last line; its key, and how wide the terminal was."""

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

    def show(self, lines: Sequence[ChatLine], wire: Wire) -> None:
        for line in lines:
            self._show(line)

    def _show(self, line: ChatLine) -> None:
        from rich.text import Text

        day, time = _clock(line.timestamp)
        if day != self._day:
            self._print(Text(f"— {day} —", style="dim"))
            self._day = day
        if line.quote:
            self._print(Text(f"{'':{INDENT}}> {line.quote}", style="dim"))
        shown = Text()
        shown.append(f"{line.number:<{INDENT if line.number else 0}}{time} ", style="dim")
        if line.is_notice:
            shown.append("[announcement] ", style="bold reverse")
        _say(shown, line)
        if line.marks:
            shown.append(f"  {line.marks}", style="red" if line.is_error else "dim")
        self._print(shown, line.key, INDENT * 2 if line.number else INDENT)

    def tell(self, told: Sequence[str | ChatLine]) -> None:
        from rich.text import Text

        for each in told:
            if isinstance(each, ChatLine):
                self._show(each)
            else:
                self._print(Text(visible_lines(each)))

    def warn(self, text: str, about: str = "") -> None:
        from rich.text import Text

        line = Text(f"! {visible(text)}", style="bold red")
        if about:
            cut = about if len(about) <= ABOUT else f"{about[: ABOUT - 1]}…"
            line.append(f"  ({visible(cut)})", style="dim")
        self._print(line)

    def unsent(self, line: str) -> None:
        """All of it: it may be wanted again."""
        from rich.text import Text

        self._print(Text(f"! not sent: {visible_lines(line)}", style="bold red"))

    def typed(self, data: bytes) -> Iterator[str]:
        if not data:
            raise Ended
        yield from self._editor.feed(data)

    def again(self, line: str) -> None:
        """The line stands there once more, to be entered or changed."""
        self._editor.set(line)

    def draw(self, status: str, under_way: Sequence[str]) -> None:
        """What is being sent, status and line, and the cursor where it belongs."""
        from rich.cells import set_cell_size

        width = max(20, self._console.width)
        text, column = self._editor.shown(width - len(PROMPT) - 1)
        dim, reverse, plain = ("\x1b[2m", "\x1b[7m", "\x1b[0m") if not self._console.no_color else ("", "", "")
        rows = [f"{dim}{set_cell_size(f'… {visible(line)}', width - 1)}{plain}" for line in under_way[-UNDER_WAY:]]
        rows.append(f"{reverse}{set_cell_size(visible(status), width - 1)}{plain}")
        self._erase()
        self._write("".join(f"{row}\r\n" for row in rows) + f"{PROMPT}{text}\r\x1b[{len(PROMPT) + column}C")
        self._drawn = len(rows)

    def _print(self, line: "Text", key: str = "", indent: int = INDENT) -> None:
        """Above what is drawn; in place of the last line, if that is about the same and takes one row.

        Rows after the first are indented: nothing in a text looks like an entry of its own.
        """
        self._erase()
        width = self._console.width
        if key and self._last == (key, width):
            self._write("\x1b[1A\x1b[2K\r")
        first, *more = line.wrap(self._console, max(NARROW, width - indent))
        self._last = ("", 0) if more else (key, width)
        self._console.print(first)
        for row in more:
            row.pad_left(indent)
            self._console.print(row)

    def _erase(self) -> None:
        if self._drawn:
            self._write(f"\r\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _write(self, text: str) -> None:
        typer.echo(text.encode(errors="backslashreplace"), nl=False)


def _say(shown: "Text", line: ChatLine) -> None:
    if not line.who:
        shown.append(f"* {line.text}", style="dim italic")
        return
    shown.append(f"{line.who}: ", style=f"bold {_colour(line.who)}")
    shown.append(line.text, style="dim italic" if line.is_faint else "")


def _colour(who: str) -> str:
    """The same person has the same colour each time."""
    return "cyan" if who == YOU else COLOURS[sum(who.encode()) % len(COLOURS)]


def _clock(ms: int) -> tuple[str, str]:
    """Unix milliseconds as the local day and time of day."""
    try:
        at = datetime.fromtimestamp(ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return "", f"{ms} ms"
    return at.strftime("%Y-%m-%d"), at.strftime("%H:%M")
