"""`enc dm chat`: a conversation in a terminal, or through a pipe.

Three threads, each with a client of its own, and nothing shared but queues: one reads what is typed, one waits for
events of the mailbox, one writes. The main thread shows. What one writes is shown when the mailbox's log has it, as on
any other device; so a slow link delays marks, and never what is typed.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

from enc.cli import failures
from enc.cli.chat_screen import PROMPT, Screen
from enc.core.errors import EncError, MisuseError, WorldError

if TYPE_CHECKING:
    from enc.apps.dm import Entry, Mailbox
    from enc.client import Enclave

HELP = (
    "/edit TEXT: your last message, anew  /retract: take it back  /retry: send what is pending  //TEXT: a text that "
    "begins with a slash  /quit, Ctrl-D: leave"
)
HISTORY = 20

Say = Callable[["Entry"], None]


class Chat:
    """`shown` is what is read, `written` what is written by; `say` prints an entry for programs, if they look on."""

    def __init__(self, shown: "Mailbox", written: "Mailbox", who: bytes, screen: Screen, say: Say | None) -> None:
        self._shown, self._written, self._who, self._screen, self._say = shown, written, who, screen, say
        self._events: Queue[tuple[str, Any]] = Queue()
        self._jobs: Queue[Callable[[], object] | None] = Queue()
        self._seen: dict[bytes, Entry] = {}
        self._echoes = list[str]()
        self._waiting, self._is_over = 0, False
        self.has_failed = False
        """Something was not written."""

    def history(self, limit: int) -> None:
        """What was said last."""
        self._shown.sync()
        thread = self._shown.thread(self._who)
        self._seen = {entry.ref: entry for entry in thread}
        for entry in thread[-limit:] if limit else ():
            self._show(entry)

    def run(self, feed: "Enclave", lines: Iterator[str]) -> None:
        """Until the lines end and all is written; or until nothing more can come, which is raised."""
        if any(entry.state == "pending" for entry in self._seen.values()):  # interrupted, here or elsewhere
            self._do(self._written.repair)
        after = self._shown.last_seq
        for work in (lambda: self._type(lines), lambda: self._listen(feed, after), self._work):
            Thread(target=work, daemon=True).start()
        takes: dict[str, Callable[[Any], None]]
        takes = {"line": self._line, "item": self._item, "done": self._done, "over": self._over, "end": self._end}
        try:
            while self._waiting or not self._is_over:
                kind, value = self._events.get()
                takes[kind](value)
        except KeyboardInterrupt:
            return
        finally:
            self._jobs.put(None)
        with suppress(WorldError):  # who leaves is not kept waiting for a node that is away
            self._changed(self._shown.sync())

    # The other threads

    def _type(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._events.put(("line", line))
        self._events.put(("over", None))

    def _listen(self, feed: "Enclave", after: int) -> None:
        try:
            for item in feed.subscribe(after=after):
                self._events.put(("item", item))
        except EncError as e:
            self._events.put(("end", e))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except EncError as e:
                self._events.put(("done", e))
            else:
                self._events.put(("done", None))

    # What comes

    def _line(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if text == "/quit":
            self._over(None)
        elif text == "/help":
            self._screen.note(HELP)
        elif text == "/retry":
            self._do(self._written.repair)
        elif text == "/retract":
            self._do(lambda: self._written.retract(self._who, self._last()))
        elif text.startswith("/edit ") and text[6:].strip():
            self._do(lambda: self._written.edit(self._who, self._last(), text[6:].strip()))
        elif text.startswith("/") and not text.startswith("//"):
            self._screen.note(f"there is no {text.split()[0]}: {HELP}")
        else:
            said = text.removeprefix("/") if text.startswith("//") else text
            self._echoes.append(said)
            self._screen.echo(said)
            self._do(lambda: self._written.send(self._who, said))

    def _last(self) -> bytes:
        """One's newest message that can still be revised, when it comes to this one's turn."""
        self._written.sync()
        thread = self._written.thread(self._who)
        mine = [entry for entry in thread if entry.state == "delivered" and entry.kind == "message"]
        if not mine:
            raise MisuseError("you have said nothing yet")
        return mine[-1].ref

    def _do(self, job: Callable[[], object]) -> None:
        self._waiting += 1
        self._jobs.put(job)

    def _item(self, item: Any) -> None:
        self._changed(self._shown.take(item))

    def _changed(self, touched: Any) -> None:
        for who, ref in touched:
            entry = self._shown.entry(who, ref)
            if who == self._who and entry is not None and entry != self._seen.get(ref):
                self._show(entry)

    def _show(self, entry: "Entry") -> None:
        before = self._seen.get(entry.ref)
        self._seen[entry.ref] = entry
        if self._say is not None:
            self._say(entry)
        elif entry.state == "pending" and not self._screen.is_terminal:
            return  # a pipe is told how it ended
        elif before is None and entry.state != "received" and entry.text in self._echoes:
            self._echoes.remove(entry.text)
            self._screen.settle(entry)
        else:
            self._screen.entry(entry)

    def _done(self, error: EncError | None) -> None:
        self._waiting -= 1
        if error is None:
            return
        self.has_failed = True
        if self._screen.is_terminal and self._say is None:
            self._screen.note(f"{error.code}: {error.message}" if error.code else error.message, "red")
        else:
            failures.tell(self._say is not None, error.code or "MISUSE", error.message, error.context)

    def _over(self, _: None) -> None:
        self._is_over = True

    def _end(self, error: EncError) -> None:
        raise error


@contextmanager
def typed_lines() -> Iterator[Iterator[str]]:
    """What is typed, line by line; the terminal is left as it was, however this ends."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield _piped()
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    try:
        yield _typing()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _piped() -> Iterator[str]:
    """By os.read: a thread that holds the lock of sys.stdin cannot be left behind at exit."""
    rest = b""
    while more := os.read(0, 1 << 16):
        *whole, rest = (rest + more).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def _typing() -> Iterator[str]:
    """With the keys of a line editor, where Python has one."""
    with suppress(ImportError):
        import readline  # noqa: F401 - it changes what input() does
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            return
        yield line
        if line.strip() == "/quit":
            return
