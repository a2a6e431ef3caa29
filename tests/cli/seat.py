"""A user at a terminal: a pseudo-terminal that runs `enc`."""

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
"""Control sequences, which show no text."""


@contextmanager
def at_terminal(person: Person, *args: str, colour: bool = False) -> Iterator["Seat"]:
    """Run `enc` with these arguments in a terminal until the block ends."""
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
    """The output and input of a terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master, self.process = master, process
        self._before = termios.tcgetattr(master)
        self._end = os.pidfd_open(process.pid)
        self._came, self._place = b"", 0

    @property
    def seen(self) -> str:
        """Return all output so far, without control sequences."""
        return SEQUENCE.sub("", self.raw)

    @property
    def raw(self) -> str:
        return self._came.decode(errors="replace")

    def sees(self, text: str) -> str:
        """Wait for the text after the last text waited for; return the output up to its end."""
        while (at := self.seen.find(text, self._place)) < 0:
            assert self._more(), f"{text!r} did not come: {self.seen[self._place :]!r}"
        found, self._place = self.seen[self._place : at + len(text)], at + len(text)
        return found

    def shows(self, text: str) -> None:
        """Wait until the text is anywhere in the output; lines may be broken between words."""
        while text not in " ".join(self.seen.split()):
            assert self._more(), f"{text!r} did not come: {self.seen!r}"

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        os.close(self._end)

    def resize(self, width: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        # The program is not a foreground group of this terminal. The system signals any of the threads: here the last,
        # so that the first, which draws, must be woken.
        pid = self.process.pid
        thread = max(map(int, os.listdir(f"/proc/{pid}/task")))
        assert ctypes.CDLL(None).tgkill(pid, thread, int(signal.SIGWINCH)) == 0

    def echoes(self) -> bool:
        """Return whether the terminal itself shows what is typed."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def ends(self) -> int:
        """Wait until the program has ended and has restored the terminal; return the exit code."""
        while self._more():
            pass
        code = self.process.wait(PATIENCE_S)
        assert termios.tcgetattr(self._master) == self._before, "the terminal is not restored"
        return code

    def _more(self) -> bool:
        """Wait for more output; return False if the program has ended, or nothing arrives."""
        ready, _, _ = select.select([self._master, self._end], [], [], PATIENCE_S)
        if self._master in ready:
            self._came += os.read(self._master, 1 << 16)
        return self._master in ready
