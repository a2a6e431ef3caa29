"""A chat without a terminal: lines in, lines out."""

import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from enc.cli.chat.line import ChatLine, visible_lines
from enc.cli.common import failures
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import Wire

if TYPE_CHECKING:
    from enc.cli.chat.loop import Chat

READ_SIZE = 1 << 16
"""Maximum bytes of one read from stdin."""


class PipedChat:
    """Reads lines from stdin and prints a line for each update, as JSON with --json; remarks are printed on stderr.

    With `stay` it continues when stdin ends, for as long as stdout is open.
    """

    is_interactive = False
    max_line: int | None = None

    def __init__(self, ctx: CommandContext, stay: bool) -> None:
        self._ctx, self._stays, self._rest = ctx, stay, b""
        self._is_output_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._output_may_close():
            sys.stdout.flush()

    def run(self, chat: "Chat") -> None:
        stdin = sys.stdin.fileno()
        fds = [chat.wakeup_fd, stdin]
        while not chat.is_complete:
            ready = select.select(fds, [], [])[0]
            if chat.wakeup_fd in ready:
                chat.handle_events()
            if stdin in ready:
                data = _read(stdin)
                for line in self._split(data):
                    chat.enter(line)
                if not data:
                    fds.remove(stdin)
            if stdin not in fds and (self._is_output_closed or not self._stays):
                chat.end_input()

    def _split(self, data: bytes) -> Iterator[str]:
        """Yield whole lines; an unfinished line waits for more data, or for empty data, which is the end."""
        if not data and self._rest:
            data = b"\n"
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")

    @contextmanager
    def _output_may_close(self) -> Iterator[None]:
        """Redirect stdout to /dev/null once its reader has closed it: input is still sent."""
        try:
            yield
        except BrokenPipeError:
            self._is_output_closed = True
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, sys.stdout.fileno())
            os.close(devnull)

    def _emit(self, wire: Wire, text: str) -> None:
        with self._output_may_close():
            self._ctx.emit(wire, text)

    def show(self, lines: Sequence[ChatLine], wire: Wire) -> None:
        """Print an update: every one for programs, only final lines for people.

        Updates of the same entry have the same `ref`.
        """
        if self._ctx.as_json:
            if wire:
                self._emit({**wire, "ref": lines[0].key} if lines and lines[0].key else wire, "")
            return
        for line in lines:
            if not line.is_transient:
                self._emit({}, line.plain())

    def reply(self, replies: Sequence[str | ChatLine]) -> None:
        """Print the reply to a command."""
        text = "\n".join(each.plain() if isinstance(each, ChatLine) else visible_lines(each) for each in replies)
        self._emit({"told": text}, text)

    def warn(self, text: str, about: str = "") -> None:
        self._ctx.note(text)

    def report_unsent(self, line: str, *, is_stored: bool = False) -> None:
        failures.report(self._ctx.as_json, "NOT_DELIVERED" if is_stored else "NOT_SENT", line, {})

    def restore_input(self, line: str) -> None:
        raise AssertionError


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, READ_SIZE)
    except OSError:
        return b""
