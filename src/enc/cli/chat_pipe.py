"""A chat without a terminal: lines in, lines out."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from enc.cli import failures
from enc.cli.chat_line import Line, shown_text
from enc.cli.output import Wire
from enc.cli.terminal import Terminal


class Pipe:
    """A line for each thing, in JSON if that is asked for; remarks go to stderr."""

    is_asked = False
    """Whether somebody can be asked before something is sent."""

    def __init__(self, at: Terminal) -> None:
        self._at, self._rest = at, b""
        self.is_deaf = False
        """Nobody reads what is printed any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._heard():
            sys.stdout.flush()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Whoever read the output may have heard enough; what is typed is sent all the same."""
        try:
            yield
        except BrokenPipeError:
            self.is_deaf = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)

    def _say(self, wire: Wire, text: str) -> None:
        with self._heard():
            self._at.say(wire, text)

    def show(self, lines: Sequence[Line], wire: Wire) -> None:
        """Something that was or is said; for programs all of it, for people what is to stay.

        `ref`: what comes again, because more is known of it, has the same.
        """
        if self._at.as_json:
            if wire:
                self._say({**wire, "ref": lines[0].key} if lines and lines[0].key else wire, "")
            return
        for line in lines:
            if not line.is_passing:
                self._say({}, line.plain())

    def tell(self, told: Sequence[str | Line]) -> None:
        """An answer to a command."""
        text = "\n".join(each.plain() if isinstance(each, Line) else shown_text(each) for each in told)
        self._say({"told": text}, text)

    def warn(self, text: str, about: str = "") -> None:
        self._at.note(text)

    def unsent(self, line: str) -> None:
        failures.tell(self._at.as_json, "NOT_SENT", line, {})

    def typed(self, data: bytes) -> Iterator[str]:
        """Whole lines; what has no end yet waits. Nothing: it was the last."""
        if not data and self._rest:
            data = b"\n"
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")

    def again(self, line: str) -> None:
        raise AssertionError

    def draw(self, status: str, under_way: Sequence[str]) -> None:
        """There is nothing to draw."""
