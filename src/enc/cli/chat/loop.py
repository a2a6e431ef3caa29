"""The loop of a chat: one thread listens, one does what is typed, and the main one shows it all.

The three meet in a queue. Only the one that shows touches the terminal; the others wait for locks and for the node, and
the keyboard never waits for either. What one sends is shown once the log has it, as on any other device.
"""

import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from msgspec import Struct

from enc.cli.chat.line import ChatLine
from enc.cli.chat.line_editor import MAX_LINE, Ended
from enc.cli.chat.pipe import Pipe
from enc.cli.chat.screen import Screen
from enc.cli.chat.slash_commands import parse
from enc.cli.chat.source import ChatSource, ChatUpdate, is_interactive
from enc.cli.shell import failures
from enc.cli.shell.command_context import CommandContext
from enc.core.errors import EncError, MisuseError, RateLimited, WorldError

AT_ONCE = 1 << 16
"""Bytes that are read from the keyboard at once."""
PATIENCE_S = 5.0
"""How long a chat that ends waits for what it still does."""
GLANCE_S = 0.5
"""The same for who listens: whatever it waits for, nobody will see it."""


LATER = (WorldError, RateLimited)
"""After these the same line may go another time."""


class _Entered(Struct, eq=False):
    """A line that was entered. Its place in the log is known once it is done."""

    line: str
    seq: int | None = None
    is_shown: bool = False
    """The log has it, whatever came of it."""


class _Answer(Struct, frozen=True):
    """What came of a line: what to say of it, or why it was not done; and how far the log is that shows it."""

    entered: _Entered
    told: Sequence[str | ChatLine] = ()
    error: EncError | None = None
    last_seq: int = -1


class _Done(Struct, frozen=True):
    """Everything that was typed is done."""

    last_seq: int


class _Over(Struct, frozen=True):
    """The chat cannot go on; None: it need not."""

    error: BaseException | None = None


def run_chat(ctx: CommandContext, source: ChatSource, history: int, *, stay: bool, first: str = "") -> bool:
    """Run a chat until the user leaves. `first` is a line to run before all others.

    Returns False if a line was refused and no user saw it.
    """
    face: Pipe | Screen = Screen() if is_interactive(ctx) else Pipe(ctx)
    with face:
        return _Loop(ctx, source, face, stay).run(history, first)


class _Loop:
    def __init__(self, ctx: CommandContext, source: ChatSource, face: Pipe | Screen, stay: bool) -> None:
        self._ctx, self._source, self._face, self._stays = ctx, source, face, stay
        self._entered: SimpleQueue[_Entered | None] = SimpleQueue()
        self._events: deque[Any] = deque()
        self._ears, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._under_way: list[_Entered] = []
        self._unsent: list[_Entered] = []
        """What no node took, until it is tried again."""
        self._is_left = False
        self._asked: str | None = None
        """What was held back because there is a warning_for, until it is entered again."""
        self._seen, self._awaits = -1, float("inf")
        self._is_well, self._is_over = True, False

    def run(self, history: int, first: str) -> bool:
        for shown in self._source.past(history):
            self._show(shown)
        self._seen = self._source.seq
        if first:
            self._put(first)
        listens = threading.Thread(target=self._listen, daemon=True)
        works = threading.Thread(target=self._work, daemon=True)
        listens.start()
        works.start()
        try:
            with self._resizing():
                self._loop()
        except Ended:
            pass
        except KeyboardInterrupt:
            if not self._face.is_asked:
                raise
        except WorldError as e:
            if not self._leave(works, listens):
                raise
            failures.report(self._ctx.as_json, e.code, e.message, e.context)
        finally:
            self._leave(works, listens)
        return self._is_well

    def _leave(self, works: threading.Thread, listens: threading.Thread) -> bool:
        """Wait a little for what is still being done, and tell what was not; whether there is such."""
        if self._is_over:
            return bool(self._unsent)
        self._is_over = True
        self._entered.put(None)
        works.join(PATIENCE_S)
        self._source.close()
        listens.join(GLANCE_S)
        if not works.is_alive() and not listens.is_alive():
            os.close(self._ears)
            os.close(self._bell)
        self._take_last()
        self._unsent += [each for each in self._under_way if each.seq is None and parse(each.line)[0] != "retry"]
        for each in self._unsent:
            self._is_well = False
            self._face.unsent(each.line)
        return bool(self._unsent)

    # The three

    def _listen(self) -> None:
        try:
            for shown in self._source.live():
                self._post(shown)
            self._post(_Over())
        except Exception as e:
            self._post(_Over(e))

    def _work(self) -> None:
        commands = self._source.commands
        while (entered := self._entered.get()) is not None:
            try:
                told = list(commands.do(entered.line))
                self._post(_Answer(entered, told, None, commands.last_seq))
            except Ended:
                break
            except EncError as e:
                self._post(_Over(e) if failures.is_distrust(e) else _Answer(entered, error=e))
            except Exception as e:
                self._post(_Over(e))
        self._post(_Done(commands.last_seq))

    def _loop(self) -> None:
        fds, stdin = [self._ears, sys.stdin.fileno()], sys.stdin.fileno()
        while self._seen < self._awaits:
            self._face.draw(self._source.status, [each.line for each in self._under_way])
            ready = select.select(fds, [], [])[0]
            if self._ears in ready:
                os.read(self._ears, 1 << 12)
                while self._events:
                    self._take(self._events.popleft())
            if stdin in ready:
                data = _read(stdin)
                for line in self._face.typed(data):
                    self._enter(line)
                if not data:
                    fds.remove(stdin)
            if stdin not in fds and (self._face.is_output_closed or not self._stays):
                self._entered.put(None)

    # What happens

    def _post(self, event: Any) -> None:
        self._events.append(event)
        self._ring()

    def _ring(self, *_: object) -> None:
        with suppress(BlockingIOError):  # it rings already
            os.write(self._bell, b"!")

    def _take(self, event: Any) -> None:
        if isinstance(event, ChatUpdate):
            self._show(event)
        elif isinstance(event, _Answer):
            self._answered(event)
        elif isinstance(event, _Done):
            self._awaits = event.last_seq
        elif isinstance(event, _Over):
            if event.error is not None:
                raise event.error
            raise Ended

    def _take_last(self) -> None:
        """What came while the chat ended, as far as there is something to say of it."""
        while self._events:
            event = self._events.popleft()
            if not isinstance(event, _Over):
                self._take(event)

    def _show(self, shown: ChatUpdate) -> None:
        if shown.confirms:
            self._settled(shown.confirms)
        self._face.show(shown.lines, shown.wire)
        if shown.warning:
            self._face.warn(shown.warning)
        self._seen = max(self._seen, shown.seq)
        self._settle()

    def _settled(self, text: str) -> None:
        """The log has what was typed, and even if nobody said so: an answer may be lost on its way."""
        for entered in (self._under_way, self._unsent):
            for each in entered:
                if parse(each.line) == ("", text):
                    each.is_shown = True
                    entered.remove(each)
                    return

    def _answered(self, answer: _Answer) -> None:
        answer.entered.seq = answer.last_seq
        self._settle()
        if isinstance(answer.error, LATER) and self._source.commands.seals(answer.entered.line):
            self._keep(answer.entered)
        if answer.told:
            self._face.tell(answer.told)
        if answer.error is not None:
            self._refused(answer.error, answer.entered.line)

    def _keep(self, entered: _Entered) -> None:
        """What may go another time, unless the log keeps it already, or it was a call to try again."""
        if not entered.is_shown and parse(entered.line)[0] != "retry":
            self._unsent.append(entered)

    def _refused(self, error: EncError, line: str) -> None:
        if self._face.is_asked:
            kept = "not sent, /retry sends it again: " if any(each.line == line for each in self._unsent) else ""
            self._face.warn(f"{kept}{error.code or 'MISUSE'}: {error.message}", about=line)
            return
        self._is_well = False
        failures.report(self._ctx.as_json, error.code or "MISUSE", error.message, error.context)

    def _settle(self) -> None:
        """What the log shows, or has no place in it, is under way no more."""
        self._under_way = [each for each in self._under_way if each.seq is None or each.seq > self._seen]

    def _enter(self, line: str) -> None:
        """Do it; but ask first, where there is a warning_for."""
        if self._is_too_long(line):
            return
        warning_for = self._source.warning_for(line)
        if warning_for and self._face.is_asked and self._asked != line:
            self._asked = line
            self._face.warn(f"{warning_for}. Enter it again to send it all the same.")
            self._face.again(line)
            return
        if warning_for and not self._face.is_asked:
            self._face.warn(warning_for)
        self._asked = None
        self._put(line)

    def _is_too_long(self, line: str) -> bool:
        """It is refused before it is under way, and stands there once more to be made shorter."""
        limit = self._source.commands.max_text
        if self._face.is_asked:
            limit = min(limit, MAX_LINE - 1)  # more cannot be typed: what has as much may be cut
        size = len(parse(line)[1].encode(errors="surrogatepass"))
        if size <= limit:
            return False
        self._refused(MisuseError(f"a text has up to {limit} bytes; this one has {size}"), line)
        if self._face.is_asked:
            self._face.again(line)
        return True

    def _put(self, line: str) -> None:
        name, _ = parse(line)
        if self._is_left:
            return
        if name == "quit":
            if self._face.is_asked:  # who sits there is not kept waiting
                raise Ended
            self._is_left = True
            self._entered.put(_Entered(line))
            return
        if name == "retry":
            again, self._unsent = self._unsent, []
            for each in again:
                self._put(each.line)
        entered = _Entered(line)
        if line.strip():
            self._under_way.append(entered)
        self._entered.put(entered)

    @contextmanager
    def _resizing(self) -> Iterator[None]:
        """A terminal of another size is drawn anew."""
        if not isinstance(self._face, Screen):
            yield
            return
        before = signal.signal(signal.SIGWINCH, self._ring)
        # The system may give the signal to another thread, and this one would sleep on: so it rings by itself, too.
        rung = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(rung)
            signal.signal(signal.SIGWINCH, before)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, AT_ONCE)
    except OSError:  # the terminal is gone
        return b""
