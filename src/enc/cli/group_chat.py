"""`enc group chat`: one listens to the group, one does what is typed, and one shows it all.

The three meet in a queue. Only the one that shows touches the terminal; the others' doings wait for the group's lock
and for the node, and the keyboard never waits for either.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from enc.cli import failures
from enc.cli.command import NODE, command
from enc.cli.exits import FAILED
from enc.cli.group_room import GroupName, opened
from enc.cli.group_screen import Lines, Screen, read, wait_for
from enc.cli.group_view import STALE, Line, View
from enc.cli.group_words import Words, seals
from enc.cli.line_editor import Ended
from enc.cli.terminal import Terminal
from enc.core.errors import EncError

if TYPE_CHECKING:
    from enc.apps.group import Change, Following, Group, Status

app = typer.Typer()
HISTORY = 20
PATIENCE_S = 5.0
"""How long a chat that ends waits for what it still does."""


class _Shown(Struct, frozen=True):
    """Something that happened, ready to be shown."""

    lines: list[Line]
    change: "Change"
    status: "Status"


class _Told(Struct, frozen=True):
    text: str


class _Refused(Struct, frozen=True):
    error: EncError


class _Done(Struct, frozen=True):
    """Everything that was typed is done."""

    last_seq: int


class _Over(Struct, frozen=True):
    """The chat cannot go on; None: it need not."""

    error: BaseException | None = None


@command(
    app,
    "enc group chat plans",
    "enc group chat plans --history 100",
    "echo hello | enc group chat plans",
    "enc group chat plans --stay --json </dev/null",
    flags=NODE,
    panel="Talking",
)
def chat(
    at: Terminal,
    name: GroupName,
    history: Annotated[int, typer.Option(min=0, metavar="N", help="So much of what was said before.")] = HISTORY,
    stay: Annotated[bool, typer.Option("--stay", help="Without a terminal: go on listening when stdin ends.")] = False,
) -> None:
    """Talk: history, then live; what you type is sent, /help lists commands. Without a terminal, line by line."""
    is_terminal = at.is_terminal and sys.stdin.isatty()
    with opened(at, name) as (group, names, _):
        group.sync()
        face: Lines | Screen = Screen(name) if is_terminal else Lines(at)
        with face:
            is_well = Chat(at, group, View(group, names), face, stay).run(history)
    if not is_well:
        raise typer.Exit(FAILED)


class Chat:
    def __init__(self, at: Terminal, group: "Group", view: View, face: Lines | Screen, stay: bool) -> None:
        self._at, self._group, self._view, self._face, self._stays = at, group, view, face, stay
        self._words = Words(group, view, has_registry=at.has_registry)
        self._typed: SimpleQueue[str | None] = SimpleQueue()
        self._events: deque[Any] = deque()
        self._ears, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._status = group.status()
        self._asked: str | None = None
        """What was held back because the group is stale, until it is entered again."""
        self._seen, self._awaits = self._status.seq, float("inf")
        self._is_well = True

    def run(self, history: int) -> bool:
        """Until it is left. False: something that was to be done was refused, and nobody sat there to see it."""
        for entry in self._group.entries(history):
            self._face.past(self._view.entry(entry), entry)
        self._stand(self._status)
        following = self._group.follow()
        threads = [
            threading.Thread(target=self._listen, args=(following,), daemon=True),
            threading.Thread(target=self._work, daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            with self._resizing():
                self._loop()
        except Ended:
            pass
        finally:
            self._typed.put(None)
            threads[1].join(PATIENCE_S)
            following.close()
            threads[0].join(PATIENCE_S)
            if not any(thread.is_alive() for thread in threads):
                os.close(self._ears)
                os.close(self._bell)
        return self._is_well

    # The three

    def _listen(self, following: "Following") -> None:
        try:
            for change in following:
                self._post(_Shown(self._view.change(change), change, self._group.status()))
            self._post(_Over())
        except Exception as e:
            self._post(_Over(e))

    def _work(self) -> None:
        while (line := self._typed.get()) is not None:
            try:
                text = "\n".join(self._words.do(line))
                if text:
                    self._post(_Told(text))
            except Ended:
                self._post(_Over())
            except EncError as e:
                self._post(_Over(e) if failures.is_distrust(e) else _Refused(e))
            except Exception as e:
                self._post(_Over(e))
        self._post(_Done(self._words.last_seq))

    def _loop(self) -> None:
        fds, stdin = [self._ears, sys.stdin.fileno()], sys.stdin.fileno()
        while self._seen < self._awaits:
            if isinstance(self._face, Screen):
                self._face.draw()
            ready = wait_for(*fds)
            if self._ears in ready:
                os.read(self._ears, 1 << 12)
                while self._events:
                    self._take(self._events.popleft())
            if stdin in ready:
                data = read(stdin)
                for line in self._face.typed(data):
                    self._enter(line)
                if not data:
                    fds.remove(stdin)
                    if not self._stays:
                        self._typed.put(None)

    # What happens

    def _post(self, event: Any) -> None:
        self._events.append(event)
        self._ring()

    def _ring(self, *_: object) -> None:
        with suppress(BlockingIOError):  # it rings already
            os.write(self._bell, b"!")

    def _take(self, event: Any) -> None:
        if isinstance(event, _Shown):
            self._show(event)
        elif isinstance(event, _Told):
            self._face.tell(event.text)
        elif isinstance(event, _Refused):
            self._refused(event.error)
        elif isinstance(event, _Done):
            self._awaits = event.last_seq
        elif isinstance(event, _Over):
            if event.error is not None:
                raise event.error
            raise Ended

    def _show(self, event: _Shown) -> None:
        self._face.live(event.lines, event.change)
        self._seen = max(self._seen, event.change.seq)
        self._stand(event.status)

    def _stand(self, status: "Status") -> None:
        if status.is_stale and not self._status.is_stale and not status.me.is_admin:
            self._face.warn(STALE)
        self._status = status
        self._face.stand(status)

    def _refused(self, error: EncError) -> None:
        if isinstance(self._face, Screen):
            self._face.warn(f"{error.code or 'MISUSE'}: {error.message}")
            return
        self._is_well = False
        failures.tell(self._at.as_json, error.code or "MISUSE", error.message, error.context)

    def _enter(self, line: str) -> None:
        """Send it; but ask first, where who has left could read it and no admin's client is here to mend that."""
        is_risky = self._status.is_stale and not self._status.me.is_admin and seals(line)
        if is_risky and self._face.is_asked and self._asked != line:
            self._asked = line
            self._face.warn(f"{STALE}. Enter it again to send it all the same.")
            self._face.again(line)
            return
        if is_risky and not self._face.is_asked:
            self._face.warn(STALE)
        self._asked = None
        self._typed.put(line)

    @contextmanager
    def _resizing(self) -> Iterator[None]:
        """A terminal of another size is drawn anew."""
        if not isinstance(self._face, Screen):
            yield
            return
        before = signal.signal(signal.SIGWINCH, self._ring)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)
