"""A node in a process of its own, as `enc node run` starts it."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec.json import decode

from tests.forked import Forked

PATIENCE_S = 60
"""How long a node may take to start or to stop before it counts as stuck."""

# Its standard input is a pipe whose other end this process holds: when that closes, however this process ended, the
# node ends too. os.read, not sys.stdin: a thread that holds the lock of a file object cannot be left behind at exit.
_PROGRAM = """
import os, signal, threading
def follow():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=follow, daemon=True).start()
from enc.cli import main
main()
"""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def children(pid: int, module: str = "enc.node.push.sender_process") -> list[int]:
    """Return the ids of the processes with this module that a node has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if module.encode() in command and stat.rpartition(")")[2].split()[1] == str(pid):
                found.append(int(entry.name))
    return found


class RunningNode:
    """`enc node run --data DATA --port 0 --dev`, ready for requests; further flags come last, so they win.

        with RunningNode(tmp_path / "node") as node:
            httpx.get(node.url + "/info")

    A node on the same data directory continues where the previous one stopped or was killed. It gets no settings from
    the environment except those of `env`; `first` are lines of Python that it runs before it starts. Its stderr is
    appended to the file `stderr` beside the data directory. Leaving the block stops the node, and fails if it had died
    or does not stop cleanly; after an exception the node is killed.
    """

    url: str
    seq_pub: bytes
    admin: str
    """URL of the admin listener."""

    def __init__(self, data: Path, *flags: str, env: dict[str, str] | None = None, first: str = "") -> None:
        self.data, self.stderr = data, data.parent / f"{data.name}.stderr"
        command = [sys.executable, "-c", f"{first}\n{_PROGRAM}", "node", "run", "--data", str(data)]
        command += ["--port", "0", "--dev", *flags]
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ENC_NODE_")}
        data.parent.mkdir(parents=True, exist_ok=True)
        with self.stderr.open("ab") as stderr:
            self._process = Forked(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env={**plain, **(env or {})}
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self) -> None:
        assert self._process.stdout is not None
        guard = threading.Timer(PATIENCE_S, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
            guard.join()
        if not line:
            raise AssertionError(f"the node did not start: {self._ending()}")
        ready = decode(line)
        self.url, self.seq_pub = ready["url"], bytes.fromhex(ready["seq_pub"])
        self.admin = ready["admin"]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        """Return its output on stderr."""
        return self.stderr.read_text(errors="replace")

    def stop(self) -> None:
        """Stop it as an operator does, with SIGTERM. It must still run, and must exit with 0."""
        try:
            assert self.is_alive, f"the node had died: {self._ending()}"
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            assert self._process.returncode == 0, f"the node did not stop cleanly: {self._ending()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the node did not stop: {self.log()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill it like a power cut, with SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ending(self) -> str:
        return f"exit code {self._process.wait()}\n{self.log()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.kill()
        elif self._process.stdin is not None and not self._process.stdin.closed:
            self.stop()
