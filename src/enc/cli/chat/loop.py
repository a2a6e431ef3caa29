"""The loop of a chat: one thread subscribes, one runs what is typed, and the main one shows everything.

The three meet in a queue. Only the main thread touches the terminal; the others wait for locks and for the node, and
the keyboard waits for neither. A sent line is shown once the log has it, as on any other device. While the node does
not answer, lines wait in the thread that runs them (`LineRunner`).
"""

import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeGuard

from msgspec import Struct

from enc.cli.chat.line import ChatLine
from enc.cli.chat.line_runner import LineAnswer, LineRunner, LinesDone, LineWaits
from enc.cli.chat.pending_lines import PendingLine, PendingLines
from enc.cli.chat.pipe import PipedChat
from enc.cli.chat.slash_commands import ChatEnded, parse
from enc.cli.chat.source import AWAY_STATUS, BACK, ChatSource, ChatUpdate, is_interactive
from enc.cli.common import failures
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import Wire
from enc.core.errors import EncError, MisuseError, RateLimited, WorldError

WORK_S = 5.0
"""How long a chat that ends waits for the lines it still sends."""
LISTEN_S = 0.5
"""How long it waits for the subscribing thread, whose updates are not shown any more."""

LATER = (WorldError, RateLimited)
"""Errors after which the same line may succeed later."""


class _Over(Struct, frozen=True):
    """The chat ends, with an error or without."""

    error: BaseException | None = None


class ChatUi(Protocol):
    """How a chat is shown, and where its lines come from."""

    is_interactive: bool
    """Whether a user can be asked before a line is sent."""
    max_line: int | None
    """Longest line that can be entered; None: unlimited."""

    def run(self, chat: "Chat") -> None:
        """Enter lines and handle events until the chat is complete. Raises ChatEnded when the user leaves."""
        ...

    def show(self, lines: Sequence[ChatLine], wire: Wire) -> None: ...

    def reply(self, replies: Sequence[str | ChatLine]) -> None: ...

    def warn(self, text: str, about: str = "") -> None: ...

    def report_unsent(self, line: str, *, is_stored: bool = False) -> None: ...

    def restore_input(self, line: str) -> None:
        """Put a line back into the input, to be entered again or changed."""
        ...


def run_chat(ctx: CommandContext, source: ChatSource, history: int, *, stay: bool, first: str = "") -> bool:
    """Run a chat until the user leaves. `first` is a line to run before all others.

    Returns False if a line was refused and no user saw it.
    """
    if not is_interactive(ctx):
        with PipedChat(ctx, stay) as pipe:
            return Chat(ctx, source, pipe).run(history, first)
    from enc.cli.chat.screen import TerminalUi

    with TerminalUi() as terminal:
        return Chat(ctx, source, terminal).run(history, first)


class Chat:
    """Connects a ChatSource and a ChatUi. Its methods, except those of the two threads, run in the main thread."""

    def __init__(self, ctx: CommandContext, source: ChatSource, ui: ChatUi) -> None:
        self._ctx, self._source, self._ui = ctx, source, ui
        self._events: deque[Any] = deque()
        self.wakeup_fd, self._wakeup_writer = os.pipe()
        os.set_blocking(self._wakeup_writer, False)
        self._lines = PendingLines()
        self._runner = LineRunner(source.commands, self._post, is_patient=source.is_patient)
        self._is_input_ended = False
        self._unconfirmed: str | None = None
        """A line with a warning, until it is entered again."""
        self._seen, self._awaits = -1, float("inf")
        self._is_well, self._is_over = True, False

    def run(self, history: int, first: str) -> bool:
        for update in self._source.past(history):
            self._show(update)
        self._seen = self._source.seq
        for line in self._ctx.new_evacuations():
            self._ui.warn(line)
        if first:
            self._put(first)
        subscriber = threading.Thread(target=self._subscribe, daemon=True)
        worker = threading.Thread(target=self._runner.run, daemon=True)
        subscriber.start()
        worker.start()
        try:
            self._ui.run(self)
        except ChatEnded:
            pass
        except KeyboardInterrupt:
            if not self._ui.is_interactive:
                raise
        except WorldError as e:
            if not self._leave(worker, subscriber):
                raise
            failures.report(self._ctx.as_json, e.code, e.message, e.context)
        finally:
            self._leave(worker, subscriber)
        return self._is_well

    def _leave(self, worker: threading.Thread, subscriber: threading.Thread) -> bool:
        """Wait a little for lines that are being sent, and print unsent ones. Returns whether there are any."""
        if self._is_over:
            return self._lines.has_unsent
        self._is_over = True
        self._runner.end()
        worker.join(WORK_S)
        self._source.close()
        subscriber.join(LISTEN_S)
        if not worker.is_alive() and not subscriber.is_alive():
            os.close(self.wakeup_fd)
            os.close(self._wakeup_writer)
        self._handle_last_events()
        for line in self._runner.held:
            if line.attempt is not None and line.attempt.is_stored:
                self._is_well = False
                self._ui.report_unsent(line.text, is_stored=True)
        for text in self._lines.give_up():
            self._is_well = False
            self._ui.report_unsent(text)
        return self._lines.has_unsent

    # For the user interface

    @property
    def status(self) -> str:
        away = [AWAY_STATUS] if self._source.is_away else []
        lines = {id(line) for line in (*self._lines.entered, *self._runner.held)} if self._runner.is_waiting else ()
        waiting = [f"{len(lines)} waiting"] if lines else []
        return " | ".join((*away, *waiting, self._source.status))

    @property
    def sending(self) -> list[str]:
        return self._lines.sending

    @property
    def is_complete(self) -> bool:
        """Whether all entered lines have run and the log that shows them is shown."""
        return self._seen >= self._awaits

    def handle_events(self) -> None:
        """Handle the events of the two threads. Raises ChatEnded or the error that ends the chat."""
        os.read(self.wakeup_fd, 1 << 12)
        while self._events:
            self._handle(self._events.popleft())

    def enter(self, line: str) -> None:
        """Run a line; if there is a warning, ask first where a user can be asked. Raises ChatEnded."""
        if self._is_too_long(line):
            return
        warning = self._source.warning_for(line)
        if warning and self._ui.is_interactive and self._unconfirmed != line:
            self._unconfirmed = line
            self._ui.warn(f"{warning}. Enter it again to send it anyway.")
            self._ui.restore_input(line)
            return
        if warning and not self._ui.is_interactive:
            self._ui.warn(warning)
        self._unconfirmed = None
        self._put(line)

    def end_input(self) -> None:
        """There are no more lines: the chat is complete once the entered ones have run."""
        self._runner.enter(None)

    # The other threads

    def _subscribe(self) -> None:
        try:
            for update in self._source.live():
                self._post(update)
            self._post(_Over())
        except Exception as e:
            self._post(_Over(e))

    def _post(self, event: Any) -> None:
        self._events.append(event)
        with suppress(BlockingIOError):  # the pipe is full: the main thread wakes up anyway
            os.write(self._wakeup_writer, b"!")

    # Events

    def _handle(self, event: Any) -> None:
        if isinstance(event, ChatUpdate):
            self._show(event)
        elif isinstance(event, LineAnswer):
            self._answered(event)
        elif isinstance(event, LineWaits):
            self._ui.warn(f"not sent yet; the chat tries again: {event.error.code}: {event.error.message}", event.text)
        elif isinstance(event, LinesDone):
            self._awaits = event.last_seq
        elif isinstance(event, _Over):
            raise ChatEnded if event.error is None else event.error

    def _handle_last_events(self) -> None:
        """Show what arrived while the chat ended."""
        while self._events:
            event = self._events.popleft()
            is_fatal = isinstance(event, LineAnswer) and event.error is not None and not _is_refusal(event.error)
            if not (is_fatal or isinstance(event, _Over)):
                self._handle(event)

    def _show(self, update: ChatUpdate) -> None:
        if update.confirms:
            self._lines.confirm(update.confirms)
        self._ui.show(update.lines, update.wire)
        if update.warning:
            self._ui.warn(update.warning)
        if update.warning == BACK:
            self._runner.wake()
        self._seen = max(self._seen, update.seq)
        self._lines.settle(self._seen)

    def _answered(self, answer: LineAnswer) -> None:
        error = answer.error
        if error is not None and not _is_refusal(error):
            raise error
        answer.line.seq = answer.last_seq
        self._lines.settle(self._seen)
        if isinstance(answer.error, LATER) and self._source.commands.seals(answer.line.text):
            self._lines.keep(answer.line)
        if answer.replies:
            self._ui.reply(answer.replies)
        if error is not None:
            self._refused(error, answer.line.text)

    def _refused(self, error: EncError, line: str) -> None:
        if self._ui.is_interactive:
            hint = "not sent, /retry sends it again: " if self._lines.is_unsent(line) else ""
            self._ui.warn(f"{hint}{error.code or 'MISUSE'}: {error.message}", about=line)
            return
        self._is_well = False
        failures.report(self._ctx.as_json, error.code or "MISUSE", error.message, error.context)

    # Lines

    def _is_too_long(self, line: str) -> bool:
        """Refuse a line that is too long before it is sent, and put it back to be shortened."""
        limit = self._source.commands.max_text
        if self._ui.max_line is not None:
            limit = min(limit, self._ui.max_line)
        size = len(parse(line)[1].encode(errors="surrogatepass"))
        if size <= limit:
            return False
        self._refused(MisuseError(f"a text has up to {limit} bytes; this one has {size}"), line)
        if self._ui.is_interactive:
            self._ui.restore_input(line)
        return True

    def _put(self, line: str) -> None:
        name, _ = parse(line)
        if self._is_input_ended:
            return
        if name == "quit":
            if self._ui.is_interactive:  # a user does not wait for lines that are being sent
                raise ChatEnded
            self._is_input_ended = True
            self._runner.enter(PendingLine(line))
            return
        if name == "retry":
            for each in self._lines.take_unsent():
                self._runner.enter(self._lines.add(each))
        self._runner.enter(self._lines.add(PendingLine(line, self._source.commands.new_attempt())))


def _is_refusal(error: Exception) -> TypeGuard[EncError]:
    """Return whether the chat goes on after this error of a line."""
    return isinstance(error, EncError) and not failures.is_distrust(error)
