"""A chat at a terminal: the conversation scrolls; below it are the lines being sent, a status, and the input line."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from enc.cli.chat.line import YOU, ChatLine, visible_lines
from enc.cli.chat.slash_commands import ChatEnded
from enc.cli.common.output import Wire, visible

if TYPE_CHECKING:
    from enc.cli.chat.loop import Chat

PROMPT = "> "
INDENT = 6
MIN_WIDTH = 8
"""Least number of cells of a row."""
MAX_LINE = 1 << 16
"""Characters of the input line; more are dropped."""
COLOURS = ("green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
MAX_SENDING = 4
"""Lines being sent that are shown."""
PROMPT_ROWS = MAX_SENDING + 3
"""Most lines below the conversation: lines being sent, the status, the prompt, and the cursor's own line."""
MAX_ABOUT = 40
"""Characters that are shown of the line that a warning is about."""
_STYLE = Style.from_dict({"status": "reverse", "sending": "dim"})


class _Row(Struct, frozen=True):
    """A row to print above the input line; it may wrap."""

    text: Text
    key: str
    indent: int
    is_transient: bool


class TerminalUi:
    """Shows a chat on a terminal, and edits the input line."""

    is_interactive = True
    max_line: int | None = MAX_LINE - 1  # a line of this length may have been cut

    def __init__(self, input_: Input | None = None, output: Output | None = None) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
        self._chat: Chat | None = None
        self._is_restored = False
        self._rows: deque[_Row] = deque()
        """Rows that wait to be printed above the input line."""
        self._day = ""
        """The day of the last line."""
        self._last = ("", 0, 0)
        """The key of the last row, how wide the terminal was, and how many lines the row took."""
        self._session: PromptSession[None] = PromptSession(
            self._prompt,
            input=input_,
            output=output or _output(),
            style=_STYLE,
            key_bindings=_key_bindings(),
            wrap_lines=False,
            erase_when_done=True,
            include_default_pygments_style=False,
        )
        self._session.default_buffer.accept_handler = self._accept

    def __enter__(self) -> Self:
        """Read keys unchanged from now on: those typed before the prompt appears are not lost."""
        self._raw_mode = self._session.app.input.raw_mode()
        self._raw_mode.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._raw_mode.__exit__(None, None, None)

    # Input

    def run(self, chat: "Chat") -> None:
        self._chat = chat
        try:
            asyncio.run(self._run(chat))
        except (EOFError, KeyboardInterrupt):
            raise ChatEnded from None
        finally:
            self._chat = None
            self._print_rows()

    async def _run(self, chat: "Chat") -> None:
        loop = asyncio.get_running_loop()

        def listen() -> None:
            loop.add_reader(chat.wakeup_fd, self._guard, chat.handle_events)

        try:
            await self._session.prompt_async(pre_run=listen)
        finally:
            loop.remove_reader(chat.wakeup_fd)

    def _guard(self, act: Callable[[], None]) -> None:
        """Run something; an error ends the prompt. Then print the rows it has to show.

        `run_in_terminal` would do that in cooked mode, in which keys such as Ctrl-D get lost.
        """
        app = self._session.app
        try:
            act()
        except Exception as e:
            if not app.is_done:
                app.exit(exception=e)
        if self._rows and not app.is_done:
            app.renderer.erase()
            self._print_rows()
        app.invalidate()

    def _accept(self, buffer: Buffer) -> bool:
        """Enter the line. Returns whether it stays in the input."""
        line, chat = clean(buffer.text), self._chat
        assert chat is not None  # noqa: S101
        self._is_restored = False
        self._guard(lambda: chat.enter(line))
        return self._is_restored

    def restore_input(self, line: str) -> None:
        self._session.default_buffer.document = Document(line, len(line))
        self._is_restored = True

    def _prompt(self) -> StyleAndTextTuples:
        """Return the lines being sent, the status, and the prompt, each on its row."""
        if self._chat is None:
            return []
        width = max(20, self._session.app.output.get_size().columns) - 1
        rows: StyleAndTextTuples = [
            ("class:sending", f"{set_cell_size(f'… {visible(line)}', width)}\n")
            for line in self._chat.sending[-MAX_SENDING:]
        ]
        return [*rows, ("class:status", set_cell_size(visible(self._chat.status), width)), ("", f"\n{PROMPT}")]

    # Output

    def show(self, lines: Sequence[ChatLine], wire: Wire) -> None:
        for line in lines:
            self._show(line)

    def _show(self, line: ChatLine) -> None:
        day, time = _clock(line.timestamp)
        if day != self._day:
            self._print(Text(f"— {day} —", style="dim"))
            self._day = day
        if line.quote:
            self._print(Text(f"{'':{INDENT}}> {line.quote}", style="dim"))
        row = Text()
        row.append(f"{line.number:<{INDENT if line.number else 0}}{time} ", style="dim")
        if line.is_notice:
            row.append("[announcement] ", style="bold reverse")
        _append_text(row, line)
        if line.marks:
            row.append(f"  {line.marks}", style="red" if line.is_error else "dim")
        self._print(row, line.key, INDENT * 2 if line.number else INDENT, is_transient=line.is_transient)

    def reply(self, replies: Sequence[str | ChatLine]) -> None:
        for each in replies:
            if isinstance(each, ChatLine):
                self._show(each)
            else:
                self._print(Text(visible_lines(each)))

    def warn(self, text: str, about: str = "") -> None:
        row = Text(f"! {visible(text)}", style="bold red")
        if about:
            cut = about if len(about) <= MAX_ABOUT else f"{about[: MAX_ABOUT - 1]}…"
            row.append(f"  ({visible(cut)})", style="dim")
        self._print(row)

    def report_unsent(self, line: str, *, is_stored: bool = False) -> None:
        """Print the whole line, so that the user can copy it."""
        what = "stored, and not delivered yet" if is_stored else "not sent"
        self._print(Text(f"! {what}: {visible_lines(line)}", style="bold red"))

    def _print(self, row: Text, key: str = "", indent: int = INDENT, *, is_transient: bool = False) -> None:
        self._rows.append(_Row(row, key, indent, is_transient))
        if self._chat is None:
            self._print_rows()

    def _print_rows(self) -> None:
        """Print the waiting rows. The input line must not be on the screen."""
        while self._rows:
            self._print_row(self._rows.popleft())

    def _print_row(self, row: "_Row") -> None:
        """Print a row; it replaces the last one if that has the same key.

        Lines after the first are indented, so that no part of a text looks like another entry. Of a transient row that
        would not fit on the screen, where nothing could replace it, only the first line is shown.
        """
        width, most = self._console.width, max(1, self._console.height - PROMPT_ROWS)
        if row.key and self._last[:2] == (row.key, width):
            self._console.file.write(f"\x1b[{self._last[2]}A\r\x1b[J")
        lines = list(row.text.wrap(self._console, max(MIN_WIDTH, width - row.indent)))
        if len(lines) > most and row.is_transient:
            lines = [lines[0].append(" …")]
        self._last = (row.key, width, len(lines)) if len(lines) <= most else ("", 0, 0)
        for line in lines[1:]:
            line.pad_left(row.indent)
        for line in lines:
            self._console.print(line)


def clean(text: str) -> str:
    """Return a typed or pasted text without control characters: no text may control a peer's terminal."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    return "".join(c for c in text if c == "\n" or c.isprintable())


def _key_bindings() -> KeyBindings:
    """Return bindings that keep control characters out of the input line."""
    keys = KeyBindings()

    @keys.add(Keys.Any)
    @keys.add(Keys.BracketedPaste)
    def _insert(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.insert_text(clean(event.data)[: MAX_LINE - len(buffer.text)])

    @keys.add("c-q")  # would insert the next key as it is
    @keys.add("c-z")  # would insert itself
    def _ignore(event: KeyPressEvent) -> None:
        pass

    return keys


def _output() -> Output:
    output = create_output(sys.stdout)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # not needed, and a terminal without it would show a warning
    return output


def _append_text(row: Text, line: ChatLine) -> None:
    if not line.who:
        row.append(f"* {line.text}", style="dim italic")
        return
    row.append(f"{line.who}: ", style=f"bold {_colour(line.who)}")
    row.append(line.text, style="dim italic" if line.is_faint else "")


def _colour(who: str) -> str:
    """Return a person's colour, always the same one."""
    return "cyan" if who == YOU else COLOURS[sum(who.encode()) % len(COLOURS)]


def _clock(ms: int) -> tuple[str, str]:
    """Return the local day and time of day of Unix milliseconds."""
    try:
        at = datetime.fromtimestamp(ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return "", f"{ms} ms"
    return at.strftime("%Y-%m-%d"), at.strftime("%H:%M")
