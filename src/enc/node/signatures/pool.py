"""Checks signatures in other processes, so that none of the node's threads waits for the
interpreter meanwhile.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import structlog

from enc.core.primitives.types import Commit
from enc.node.signatures.worker import COUNT, RECORD, verdicts
from enc.runtime.pipes import read_in_time, write_in_time

MIN_PART = 4
"""Minimum number of commits to pass to a process; fewer are checked faster in this one."""
MAX_PART = 256
"""Maximum number of commits per request: the request and its answer fit into a pipe."""

START_S, ANSWER_S, RECORD_S = 10.0, 2.0, 0.002
"""Seconds that a process has for its first answer and for each later one, and more for each
signature.
"""
KNOWN = RECORD.pack(
    False,
    bytes.fromhex("f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"),
    bytes(32),
    bytes.fromhex(
        "e907831f80848d1069a5371b402410364bdf1c5f8307b0084c55f1ce2dca8215"
        "25f66a4a85ea8b71e482a74f382d2ce5ebeee8fdb2172f477df4900d310536c0"
    ),
)
"""A valid signature, to probe a process: the first test vector of BIP-340."""

_log = structlog.get_logger("enc.signatures")


class _Failed(Exception):
    """The process has ended, or did not answer in time."""


class _Process:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "enc.node.signatures.worker"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603
        if self._process.stdin is None or self._process.stdout is None:
            raise _Failed
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)
        self.pid = self._process.pid
        self._answer_s, self._until = START_S, 0.0

    def ask(self, records: bytes) -> None:
        count = len(records) // RECORD.size
        self._until = time.monotonic() + self._answer_s + count * RECORD_S
        try:
            write_in_time(self._in.fileno(), COUNT.pack(count) + records, self._until)
        except (OSError, ValueError) as e:
            raise _Failed(str(e)) from None

    def answer(self, count: int) -> bytes:
        try:
            found = read_in_time(self._out.fileno(), count, self._until)
        except (OSError, ValueError) as e:
            raise _Failed(str(e)) from None
        if len(found) < count:
            raise _Failed("the process has ended")
        self._answer_s = ANSWER_S
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
        self.kill()

    def kill(self) -> None:
        """End the process at once, also one that is stopped."""
        self.end()
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # it may wait for a disk
                self._process.wait(1)


class SignaturePool:
    """A pool of processes that check signatures. Only one thread may call `check` and `probe`. A process
    that ends or does not answer in time is killed and replaced, and its commits are checked in this
    one.
    """

    failures = 0
    """Number of processes that were replaced."""

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

    def probe(self) -> int:
        """Have each process check a signature; return how many failed and were replaced."""
        return len(self._processes) - self._ask_all([KNOWN] * len(self._processes)).count(b"\x01")

    def _check_some(self, parts: list[bytes]) -> bytes:
        """Check the first parts, one for each process, in parallel."""
        if not self._processes or len(parts[0]) < MIN_PART * RECORD.size:
            return verdicts(parts[0])
        answers = self._ask_all(parts[: len(self._processes)])
        return b"".join([verdicts(part) if a is None else a for part, a in zip(parts, answers, strict=False)])

    def _ask_all(self, parts: Sequence[bytes]) -> list[bytes | None]:
        """Return the answers of the first processes, one part each; None of one that failed."""
        failed = {i: why for i, part in enumerate(parts) if (why := self._ask(i, part))}
        return [self._answer(i, len(part) // RECORD.size, failed.get(i)) for i, part in enumerate(parts)]

    def _ask(self, i: int, part: bytes) -> str | None:
        """Send a part to a process; return why that failed."""
        try:
            self._processes[i].ask(part)
        except _Failed as e:
            return str(e)
        return None

    def _answer(self, i: int, count: int, failed: str | None) -> bytes | None:
        if failed is None:
            try:
                return self._processes[i].answer(count)
            except _Failed as e:
                failed = str(e)
        self._replace(i, failed)
        return None

    def _replace(self, i: int, reason: str) -> None:
        self.failures += 1
        _log.error("verifier_failed", pid=self._processes[i].pid, reason=reason)
        self._processes[i].kill()
        try:
            self._processes[i] = self._start()
        except OSError as e:  # it stays closed, and is started again with the next group
            _log.error("verifier_not_started", reason=e.strerror)

    def end(self) -> None:
        """Let the processes end, without waiting for them."""
        for process in self._processes:
            process.end()

    def close(self) -> None:
        self.end()
        for process in self._processes:
            process.close()
