"""Runs the lines of a chat in order, in a thread; retries those that the node could not take."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct

from enc.cli.chat.line import ChatLine
from enc.cli.chat.pending_lines import PendingLine
from enc.cli.chat.slash_commands import ChatEnded, SlashCommands, parse
from enc.core.errors import EncError, RateLimited, Unavailable, UpstreamUnreachable
from enc.runtime.backoff import Backoff

AT_ONCE = ("help", "quit", "retry")
"""Commands that do not wait behind lines that wait for the node."""


class LineAnswer(Struct, frozen=True):
    """The result of a line: replies to show, or an error; and the seq at which the log shows it."""

    line: PendingLine
    replies: Sequence[str | ChatLine] = ()
    error: Exception | None = None
    last_seq: int = -1


class LineWaits(Struct, frozen=True):
    """A line waits until the node can take it, and so do those after it. Reported once until one is sent."""

    text: str
    error: EncError


class LinesDone(Struct, frozen=True):
    """All entered lines have run."""

    last_seq: int


class LineRunner:
    """`run` runs in a thread of its own; the other methods are for the main thread.

    `is_patient`: lines that could not be sent wait and are sent again, before the lines after them. Each line keeps
    its attempt, so that it is sent once.
    """

    def __init__(self, commands: SlashCommands, post: Callable[[Any], None], *, is_patient: bool) -> None:
        from enc.client import TimedOut, Unreachable
        from enc.client.wire.retrying_caller import PAUSES

        self._commands, self._post, self._is_patient = commands, post, is_patient
        self._entered: SimpleQueue[PendingLine | None] = SimpleQueue()
        self._held: deque[PendingLine] = deque()
        self._backoff = Backoff(math.inf, time.monotonic, PAUSES)
        self._later = (Unreachable, TimedOut, Unavailable, UpstreamUnreachable, RateLimited)
        self.is_waiting = self._is_over = False
        """`is_waiting`: whether lines wait for the node."""

    # For the main thread

    def enter(self, line: PendingLine | None) -> None:
        """Run a line after those that were entered before; None: there are no more lines."""
        self._entered.put(line)

    def wake(self) -> None:
        """Try again now to send what waits."""
        self._entered.put(PendingLine(""))

    def end(self) -> None:
        """Stop after the line that runs."""
        self._is_over = True
        self._entered.put(None)

    @property
    def held(self) -> Sequence[PendingLine]:
        """The lines that have not run; while some wait for the node, these too."""
        return self._held.copy()

    # The thread

    def run(self) -> None:
        pause: float | None = None
        try:
            while True:
                try:
                    line = self._entered.get(timeout=pause)
                except Empty:
                    pass
                else:
                    if line is None:
                        break
                    self._take(line)
                pause = self._run_held()
        except ChatEnded:
            pass
        self._post(LinesDone(self._commands.last_seq))

    def _take(self, line: PendingLine) -> None:
        """Hold a line, or run it at once; an empty one and /retry only end the pause."""
        name, _ = parse(line.text)
        if self._held and name in AT_ONCE:
            if name == "retry":
                self._post(LineAnswer(line))
            else:
                self._post(self._run_line(line))
        elif line.text.strip() or not self._held:
            self._held.append(line)

    def _run_held(self) -> float | None:
        """Run the lines in order; return the pause before the next try, or None if none waits."""
        while self._held and not (self._is_over and self.is_waiting):
            line = self._held[0]
            answer = self._run_line(line)
            error = answer.error
            if self._is_patient and isinstance(error, self._later) and self._commands.seals(line.text):
                if not self.is_waiting:
                    self.is_waiting = True
                    self._post(LineWaits(line.text, error))
                return self._backoff.wait(error)
            self._held.popleft()
            self.is_waiting = False
            self._backoff.reset()
            self._post(answer)
        return None

    def _run_line(self, line: PendingLine) -> LineAnswer:
        commands, commands.attempt = self._commands, line.attempt
        try:
            replies = list(commands.do(line.text))
        except ChatEnded:
            raise
        except Exception as e:
            return LineAnswer(line, error=e)
        return LineAnswer(line, replies, None, commands.last_seq)
