"""Somebody who sits at a terminal: a pseudo-terminal with `enc` in it."""

import ctypes
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.people import ENC, PATIENCE_S, Person
from tests.forked import Forked

SEQUENCE = re.compile(r"\x1b\[[0-9;? ]*[A-Za-z]|\x1b\][^\x07]*\x07|[\r\x08]")
"""What commands a terminal, and shows nothing."""


@contextmanager
def at_terminal(person: Person, *args: str, colour: bool = False) -> Iterator["Seat"]:
    """`enc` with these arguments, at a terminal, for as long as the block lasts."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    unset = {"COLUMNS", "NO_COLOR"} if colour else {"COLUMNS"}
    plain = {name: value for name, value in person.environment.items() if name not in unset}
    process = Forked(
        [ENC, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=person.home,
        env={**plain, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    seat = Seat(master, process)
    try:
        yield seat
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        seat.close()
        os.close(slave)
        os.close(master)


class Seat:
    """What is seen and typed at a terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master, self.process = master, process
        self._before = termios.tcgetattr(master)
        self._end = os.pidfd_open(process.pid)
        self._came, self._place = b"", 0

    @property
    def seen(self) -> str:
        """All that came so far, without what commands the terminal."""
        return SEQUENCE.sub("", self.raw)

    @property
    def raw(self) -> str:
        return self._came.decode(errors="replace")

    def sees(self, text: str) -> str:
        """Wait until the text comes, after what was waited for before; what came up to its end."""
        while (at := self.seen.find(text, self._place)) < 0:
            assert self._more(), f"{text!r} did not come: {self.seen[self._place :]!r}"
        found, self._place = self.seen[self._place : at + len(text)], at + len(text)
        return found

    def shows(self, text: str) -> None:
        """Wait until the text is there, wherever; lines may be broken in between words."""
        while text not in " ".join(self.seen.split()):
            assert self._more(), f"{text!r} did not come: {self.seen!r}"

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        os.close(self._end)

    def resize(self, width: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        # It is no foreground group of this terminal. The system gives a signal to any of the threads: here to the last,
        # so that the first, which draws, must be woken.
        pid = self.process.pid
        thread = max(map(int, os.listdir(f"/proc/{pid}/task")))
        assert ctypes.CDLL(None).tgkill(pid, thread, int(signal.SIGWINCH)) == 0

    def echoes(self) -> bool:
        """Whether the terminal itself shows what is typed."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def ends(self) -> int:
        """Wait until the program has ended and the terminal is as it was; the exit code."""
        while self._more():
            pass
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self._master) == self._before, "the terminal is as it was"
        return code

    def _more(self) -> bool:
        """Wait for more to see; False: the program has ended, or nothing comes."""
        ready, _, _ = select.select([self._master, self._end], [], [], PATIENCE_S)
        if self._master in ready:
            self._came += os.read(self._master, 1 << 16)
        return self._master in ready
