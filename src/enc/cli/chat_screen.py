"""Where a chat is shown: lines that stay, below them the line that is being typed; or plain lines for a pipe."""

import sys
from typing import TYPE_CHECKING, Any

from enc.cli.output import visible, when

if TYPE_CHECKING:
    from enc.apps.dm import Entry

PROMPT = "> "
_MARKS = {"pending": " …", "delivered": " ✓", "refused": " ✗", "removed": " ✓ (deleted by them)"}


class Screen:
    """`is_typed`: somebody types at this terminal; else whatever is written is only ever added to."""

    def __init__(self, me: bytes, name: str, *, is_typed: bool) -> None:
        from rich.console import Console

        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.is_terminal = bool(self._console.is_terminal)
        self._me, self._name, self._is_typed = me, name, is_typed and self.is_terminal
        self._day, self._last = "", ""
        """The day of the last line, and what that line is about."""

    def entry(self, entry: "Entry") -> None:
        """A message, as it is now; one that was shown before is shown in its place if nothing came since."""
        self._new_day(entry.at)
        key = entry.ref.hex()
        self._write(self._styled(entry), key, replaces=key)

    def echo(self, text: str) -> None:
        """What was typed, until the log has it."""
        from rich.text import Text

        if self._is_typed:
            self._rewind()  # over the line in which it was typed
            self._write(Text(f"      you: {visible(text)} …", style="dim"), "echo")

    def settle(self, entry: "Entry") -> None:
        """The log has what was echoed."""
        key = entry.ref.hex()
        self._write(self._styled(entry), key, replaces="echo" if self._last == "echo" else key)

    def note(self, text: str, style: str = "dim") -> None:
        from rich.text import Text

        self._write(Text(visible(text), style=style), "")

    def _styled(self, entry: "Entry") -> Any:
        from rich.text import Text

        is_mine = entry.author == self._me
        line = Text()
        line.append(f"{self._time(entry.at)} ", "dim")
        line.append("you" if is_mine else visible(self._name), "cyan" if is_mine else "bold green")
        line.append(": ")
        line.append(*_said(entry))
        if entry.is_edited:
            line.append(" (edited)", "dim")
        if is_mine and entry.state in _MARKS:
            line.append(_MARKS[entry.state], "red" if entry.state == "refused" else "dim")
        if entry.code and entry.state != "unreadable":
            line.append(f" {entry.code}", "red")
        return line

    def _time(self, at: int) -> str:
        text = when(at)
        return text[11:16] if self.is_terminal and len(text) > 16 else text

    def _new_day(self, at: int) -> None:
        day = when(at)[:10]
        if self.is_terminal and day != self._day:
            self.note(f"— {day} —")
        self._day = day

    def _write(self, line: Any, key: str, replaces: str | None = None) -> None:
        """Above the line that is being typed, which is drawn again."""
        if self._is_typed:
            self._out("\r\x1b[K")
            fits = line.cell_len < self._console.width
            if replaces is not None and self._last == replaces and fits:
                self._rewind()
            self._last = key if fits else ""
        self._console.print(line)
        if self._is_typed:
            self._out(PROMPT + _typed())

    def _rewind(self) -> None:
        self._out("\x1b[1A\x1b[2K\r")

    def _out(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def _said(entry: "Entry") -> tuple[str, str]:
    """The text and its style. What others wrote commands no terminal."""
    if entry.state == "retracted":
        return "(retracted)", "dim italic"
    if entry.state == "unreadable":
        return f"(cannot be read: {entry.code})", "red"
    said = "(not here yet)" if entry.text is None else visible(entry.text)
    return (f"(invites) {said}" if entry.kind == "invite" else said), ""


def _typed() -> str:
    """What stands in the line that is being typed."""
    try:
        import readline
    except ImportError:
        return ""
    return readline.get_line_buffer()
