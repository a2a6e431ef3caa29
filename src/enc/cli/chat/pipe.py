"""A chat without a terminal: lines in, lines out."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from enc.cli.chat.line import ChatLine, visible_lines
from enc.cli.shell import failures
from enc.cli.shell.command_context import CommandContext
from enc.cli.shell.output import Wire


class Pipe:
    """Prints a line for each update, as JSON with --json; remarks are printed on stderr."""

    is_asked = False
    """Whether a user can be asked before a line is sent."""

    def __init__(self, ctx: CommandContext) -> None:
        self._ctx, self._rest = ctx, b""
        self.is_output_closed = False
        """Whether the reader of stdout has closed it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._heard():
            sys.stdout.flush()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Redirect stdout to /dev/null once its reader has closed it: input is still sent."""
        try:
            yield
        except BrokenPipeError:
            self.is_output_closed = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    def _say(self, wire: Wire, text: str) -> None:
        with self._heard():
            self._ctx.emit(wire, text)

    def show(self, lines: Sequence[ChatLine], wire: Wire) -> None:
        """Print an update: every one for programs, only final lines for people.

        Updates of the same entry have the same `ref`.
        """
        if self._ctx.as_json:
            if wire:
                self._say({**wire, "ref": lines[0].key} if lines and lines[0].key else wire, "")
            return
        for line in lines:
            if not line.is_transient:
                self._say({}, line.plain())

    def tell(self, told: Sequence[str | ChatLine]) -> None:
        """Print the reply to a command."""
        text = "\n".join(each.plain() if isinstance(each, ChatLine) else visible_lines(each) for each in told)
        self._say({"told": text}, text)

    def warn(self, text: str, about: str = "") -> None:
        self._ctx.note(text)

    def unsent(self, line: str) -> None:
        failures.report(self._ctx.as_json, "NOT_SENT", line, {})

    def typed(self, data: bytes) -> Iterator[str]:
        """Yield whole lines; an unfinished line waits for more data, or for empty data, which is the end."""
        if not data and self._rest:
            data = b"\n"
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")

    def again(self, line: str) -> None:
        raise AssertionError

    def draw(self, status: str, under_way: Sequence[str]) -> None:
        """Do nothing: a pipe has no status line."""
