"""A process of `enc up`: an `enc` command whose output is written to a log."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from enc.core.errors import EncError

STOP_S = 40.0
"""Time a process has to stop before it is killed; Spark's streams have 30 seconds of it."""
GONE_S, GONE_TRIES = 0.02, 250
LAST_LINES = 12
"""Lines of the log that are shown when the process has died."""
TAIL = 16_384
PR_SET_PDEATHSIG = 1


class ProcessEnded(EncError):
    """A process has ended unexpectedly."""

    code = "ENDED"
    fields: ClassVar[tuple[str, ...]] = ("part", "exit_code", "log", "lines")


class UpProcess:
    """Starts an `enc` command. It has its own session: Ctrl-C reaches only `enc up`.

    On Linux it gets SIGTERM when this process ends, however that ends.
    """

    def __init__(self, name: str, log: Path, *command: str, capture_stdout: bool = False) -> None:
        """`capture_stdout`: `first_line` reads its stdout, which is not written to the log."""
        self.name, self.log = name, log
        with log.open("ab") as file:
            file.write(f"--- enc {' '.join(command)}\n".encode())
            file.flush()
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "enc", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if capture_stdout else file,
                stderr=file,
                start_new_session=True,
                preexec_fn=end_with_parent(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def first_line(self) -> bytes:
        """Return the first line of stdout, which is printed when the process is ready. Raises ProcessEnded."""
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self.check()
        return line

    def check(self) -> None:
        """Raise ProcessEnded if the process has ended."""
        code = self._process.poll()
        if code is not None:
            how = f"with code {code}" if code >= 0 else f"by signal {-code}"
            raise ProcessEnded(
                f"the {self.name} has ended {how}; its log is {self.log}",
                part=self.name,
                exit_code=code,
                log=str(self.log),
                lines=self._last_lines(),
            )

    def _last_lines(self) -> list[str]:
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL))
            return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]

    def stop(self) -> None:
        """Stop the process, gracefully if it takes less than STOP_S; then kill all its children."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process and all that it has started, and wait until they are gone."""
        group = self._process.pid
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
            self._process.wait()
            for _ in range(GONE_TRIES):  # a process with gigabytes of memory takes a moment
                os.killpg(group, 0)
                time.sleep(GONE_S)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def end_with_parent() -> Callable[[], None] | None:
    """Return a `preexec_fn` that ends the child with its parent, on Linux; else None."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
