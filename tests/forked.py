"""Processes that run `enc` or Python, each forked from one that has loaded all of enc, so that it starts at once.

`Forked` is a Popen for `enc ...`, `python -c ...` and `python -m ...`. Its processes have their own environment, folder
and files, and end as any Python program does; only their start is faster. Tests of the start itself use Popen:
`tests/test_cli.py`, the guides, the examples and the demo.
"""

import atexit
import gc
import io
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_module
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode

LOADED = "cli client node core runtime apps witness".split()
"""The packages of enc that are loaded before anything is forked."""
MAX_ORDER = 1 << 17


class Order(Struct, frozen=True):
    """A program to run; or, with a `pid`, a request for the status of one that has ended."""

    args: list[str] = []
    cwd: str | None = None
    environment: dict[str, str] = {}
    is_leader: bool = False
    """Whether it leads a session of its own."""
    pid: int = 0


class Forked(subprocess.Popen[Any]):
    """Supports these options of a Popen: its files, `cwd`, `env` and `start_new_session`."""

    def _execute_child(
        self,
        args: list[Any],
        executable: None,
        preexec_fn: None,
        close_fds: bool,
        pass_fds: tuple[()],
        cwd: Any,
        env: Mapping[str, str] | None,
        startupinfo: None,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: bool,
        gid: None,
        gids: None,
        uid: None,
        umask: int,
        start_new_session: bool,
        *more: Any,
    ) -> None:
        files = [given if given != -1 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        environment = dict(os.environ if env is None else env)
        order = Order(list(map(str, args)), cwd and str(cwd), environment, start_new_session)
        self._ending = threading.Lock()
        self.pid = origin().send(order, files)
        self._child_created = True
        self._end = os.pidfd_open(self.pid)
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def wait(self, timeout: float | None = None) -> int:
        with self._ending:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._end, select.POLLIN)
                if not poll.poll(None if timeout is None else max(timeout, 0) * 1000):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                os.close(self._end)
                self.returncode = os.waitstatus_to_exitcode(origin().send(Order(pid=self.pid)))
        return int(self.returncode)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None


class Origin:
    """The process that forks the others."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = "from tests.forked import serve; serve()"
        root = Path(__file__).parents[1]  # a test may have changed the folder
        self._process = subprocess.Popen([sys.executable, "-c", program], stdin=other.fileno(), cwd=root)
        other.close()
        self._lock = threading.Lock()

    def send(self, order: Order, files: list[int] | None = None) -> int:
        """Send an order; return the id of the started process, or the status of one that has ended."""
        with self._lock:
            socket.send_fds(self._socket, [encode(order)], files or [])
            return int(self._socket.recv(64))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def origin() -> Origin:
    made = Origin()
    atexit.register(made.close)
    return made


# In the process that forks


def serve() -> None:
    """Fork a process for every Order, until the sender ends."""
    with socket.socket(fileno=os.dup(0)) as orders:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _load()
        while True:
            message, files, *_ = socket.recv_fds(orders, MAX_ORDER, 3)
            if not message:
                return
            order = decode(message, type=Order)
            if order.pid:
                found = os.waitpid(order.pid, 0)[1]
            elif not (found := os.fork()):
                break
            for file in files:
                os.close(file)
            orders.send(str(found).encode())
    _become(order, files)
    _run(*order.args)


def _load() -> None:
    """Import everything that a command or a node may need, and build the tree of commands."""
    for name in LOADED:
        package = import_module(f"enc.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    from typer.testing import CliRunner

    from enc.cli import app

    assert CliRunner().invoke(app, ["node", "run", "--help"]).exit_code == 0
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot fork"
    gc.collect()
    gc.freeze()


def _become(order: Order, files: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for background jobs
    if order.is_leader:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if order.cwd is not None:
        os.chdir(order.cwd)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.stdin, sys.stdout = _text(0, "r", "strict"), _text(1, "w", "strict")
    sys.stderr = _text(2, "w", "backslashreplace")


def _text(number: int, mode: str, errors: str) -> io.TextIOWrapper:
    """Open a standard file as Python does."""
    raw = io.FileIO(number, mode, closefd=False)
    buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    text = io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=number == 2 or raw.isatty())
    if mode == "w" and os.environ.get("PYTHONUNBUFFERED"):
        text.reconfigure(write_through=True)
    return text


def _run(program: str, *args: str) -> None:
    if Path(program).name == "enc":
        from enc.cli import main

        sys.argv = ["enc", *args]
        main()
        return
    how, what, *rest = args
    sys.argv = [how, *rest]
    if how == "-c":
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        assert how == "-m", f"cannot run {program} {how}"
        run_module(what, run_name="__main__", alter_sys=True)


def run(command: list[Any], timeout: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a command as subprocess.run does, and capture its output."""
    with Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            said = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, *said)
