"""Checks signatures in other processes, so that none of the node's threads waits for the
interpreter meanwhile.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import structlog

from enc.core.primitives.types import Commit
from enc.node.signatures.worker import COUNT, RECORD, read_exactly, verdicts

MIN_PART = 4
"""Minimum number of commits to pass to a process; fewer are checked faster in this one."""
MAX_PART = 256
"""Maximum number of commits per request: the request and its answer fit into a pipe."""

_log = structlog.get_logger("enc.signatures")


class _Failed(Exception):
    """The process has ended."""


class _Process:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "enc.node.signatures.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603
        if self._process.stdin is None or self._process.stdout is None:
            raise _Failed
        self._in, self._out = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def ask(self, records: bytes) -> None:
        data = memoryview(COUNT.pack(len(records) // RECORD.size) + records)
        try:
            while data:
                data = data[self._in.write(data) :]
        except (OSError, ValueError):
            raise _Failed from None

    def answer(self, count: int) -> bytes:
        try:
            found = read_exactly(self._out.fileno(), count)
        except (OSError, ValueError):
            raise _Failed from None
        if len(found) < count:
            raise _Failed
        return found

    def end(self) -> None:
        """Let the process end, without waiting for it."""
        for pipe in (self._in, self._out):
            with suppress(OSError):
                pipe.close()

    def close(self) -> None:
        self.end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class SignaturePool:
    """A pool of processes that check signatures. Only one thread may call `check`. A process that
    fails is replaced, and its commits are checked in this one.
    """

    def __init__(self, count: int, cores: Iterable[int] = (), max_part: int = MAX_PART) -> None:
        """Start `count` processes. `cores`: where they run; empty for any core."""
        self._cores, self._max_part = set(cores), max_part
        self._processes = [self._start() for _ in range(count)]

    def _start(self) -> _Process:
        process = _Process()
        if self._cores:
            with suppress(OSError):
                os.sched_setaffinity(process.pid, self._cores)
        return process

    def check(self, commits: Sequence[Commit]) -> list[bool]:
        """Return for each commit whether its author has signed it."""
        records = b"".join([RECORD.pack(c.alg == "ecdsa", c.from_, c.hash, c.sig) for c in commits])
        return [verdict == 1 for verdict in self.check_records(records)]

    def check_records(self, records: bytes) -> bytes:
        """Check records as a worker reads them; return a byte for each, 1 if the signature is
        valid.
        """
        count, width = len(records) // RECORD.size, RECORD.size
        size = min(max(-(-count // max(len(self._processes), 1)), MIN_PART), self._max_part)
        found = b""
        while len(found) < count:
            starts = range(len(found), count, size)
            found += self._check_some([records[i * width : (i + size) * width] for i in starts])
        return found

    def _check_some(self, parts: list[bytes]) -> bytes:
        """Check the first parts, one for each process, in parallel."""
        if not self._processes or len(parts[0]) < MIN_PART * RECORD.size:
            return verdicts(parts[0])
        asked = list(zip(range(len(self._processes)), parts, strict=False))
        failed = {i for i, part in asked if not self._ask(i, part)}
        return b"".join([self._answer(i, part, i in failed) for i, part in asked])

    def _ask(self, i: int, part: bytes) -> bool:
        try:
            self._processes[i].ask(part)
        except _Failed:
            return False
        return True

    def _answer(self, i: int, part: bytes, has_failed: bool) -> bytes:
        try:
            if not has_failed:
                return self._processes[i].answer(len(part) // RECORD.size)
        except _Failed:
            pass
        _log.error("verifier_failed", pid=self._processes[i].pid)
        self._processes[i].close()
        try:
            self._processes[i] = self._start()
        except OSError as e:  # it stays closed, and is started again with the next group
            _log.error("verifier_not_started", reason=e.strerror)
        return verdicts(part)

    def end(self) -> None:
        """Let the processes end, without waiting for them."""
        for process in self._processes:
            process.end()

    def close(self) -> None:
        self.end()
        for process in self._processes:
            process.close()
