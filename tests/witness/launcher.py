"""Witnesses, each a process of its own, forked from one that has loaded everything, so that it
starts at once.

`python -m tests.witness.launcher` forks a witness for every line on its standard input, which names
its arguments, the files for what it prints, and a point at which it dies by itself, as by a power
cut. It answers with the process's number, and with its exit code when that is asked for. When its
standard input ends, all of them end.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode

ROOT = Path(__file__).parents[2]


class Order(Struct, frozen=True):
    """A witness to run; or, with a `pid`, one whose end is to be awaited."""

    args: list[str] = []
    stdout: str = ""
    stderr: str = ""
    point: str = ""
    pid: int = 0


class Launcher:
    """The client side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.witness.launcher"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self._lock = threading.Lock()

    def _send(self, order: Order) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(encode(order) + b"\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def start(self, args: list[str], stdout: Path, stderr: Path, point: str = "") -> int:
        return self._send(Order(args, str(stdout), str(stderr), point))

    def wait(self, pid: int) -> int:
        """Return its exit code; negative for a signal."""
        return self._send(Order(pid=pid))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _arm(point: str) -> None:
    """Die at a point such as `before HeadLedger store`: a side, a class and a method."""
    from enc.witness.evidence_store import EvidenceStore
    from enc.witness.ledger import HeadLedger

    side, kind, name = point.split()
    owner: Any = {"HeadLedger": HeadLedger, "EvidenceStore": EvidenceStore}[kind]
    method: Callable[..., Any] = getattr(owner, name)

    def dying(*args: Any, **more: Any) -> Any:
        if side == "after":
            method(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, dying)


def _run(order: Order) -> None:
    for number, path in ((1, order.stdout), (2, order.stderr)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if order.point:
        _arm(order.point)
    from enc.cli import main

    sys.argv = ["enc", *order.args]
    main()


def _serve() -> None:
    """Load everything that a witness needs before the first one is forked."""
    import enc.cli.enclave.receiver
    import enc.cli.ops.witness
    import enc.runtime.logs
    import enc.witness.main  # noqa: F401

    for line in iter(sys.stdin.buffer.readline, b""):
        order = decode(line, type=Order)
        if order.pid:
            _, status = os.waitpid(order.pid, 0)
            found = os.waitstatus_to_exitcode(status)
        else:
            found = os.fork()
            if found == 0:
                _run(order)
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)


if __name__ == "__main__":
    os.setpgrp()
    _serve()
