"""Nodes to be killed: each in its own process, forked from one that has loaded all modules, so that it starts fast.

`python -m tests.node.crash_node` is the process that forks: it starts a node for every Order on its standard input. An
Order may name a point between a request and its answer at which the node kills itself, or files that make its COMMITs
fail or set its clock while it runs. `Launcher` is the client side.
"""

import asyncio
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from msgspec import Struct
from msgspec.json import decode, encode

from enc.core.errors import EncError
from enc.core.machine import enclave as machine
from enc.node import assembly, main
from enc.node.api.http_api import HttpApi
from enc.node.api.send_queue import SendQueue
from enc.node.api.subscriptions import SubscriptionHub
from enc.node.api.websocket import WebSocketConnection
from enc.node.config import load_config
from enc.node.imports import replay as migration
from enc.node.imports.jobs import Importer
from enc.node.imports.log_import import LogImport
from enc.node.imports.replay import StagedReplay
from enc.node.imports.source_node import RemoteLog
from enc.node.imports.uploads import Upload, Uploads
from enc.node.ops import readiness, retention
from enc.node.push.supervisor import PushSupervisor
from enc.node.read.request_handlers import SealedHandlers
from enc.node.sequence.admission import Admission
from enc.node.sequence.commit_intake import CommitIntake, CommitReplies
from enc.node.sequence.sequencer import Sequencer
from enc.node.store.sqlite import connection, event_index, staging
from enc.node.store.sqlite.connection import Writer
from enc.node.store.sqlite.push import fan_out
from enc.node.store.sqlite.staging import SqliteStaging
from enc.node.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
"""Seconds after which a node that starts or ends counts as stuck."""


class Order(Struct, frozen=True, kw_only=True):
    """A node to run."""

    data: str
    point: str = ""
    nth: int = 1
    """The number of times that the point is passed until it kills the node."""
    clock: str = ""
    """A file with the milliseconds by which its clock is ahead."""
    failing: str = ""
    """A file; while it exists, the statements that it names fail (`Failing`)."""
    slow: bool = False
    """Whether sending on WebSockets takes many turns of the event loop."""
    settings: Mapping[str, Any] = {}


# Points


class KillPoint:
    """Ends the process like a power cut, when it is passed for the n-th time."""

    def __init__(self, nth: int) -> None:
        self._left, self._lock = nth, threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


Place = Callable[[KillPoint], None]
"""Installs a fuse at its point."""


def before(owner: Any, name: str, when: Callable[..., object] = lambda *args: True) -> Place:
    def place(fuse: KillPoint) -> None:
        inner = getattr(owner, name)

        def passed(*args: Any, **more: Any) -> Any:
            if when(*args):
                fuse()
            return inner(*args, **more)

        setattr(owner, name, passed)

    return place


def after(owner: Any, name: str, when: Callable[..., object] = lambda result, *args: True) -> Place:
    def place(fuse: KillPoint) -> None:
        inner = getattr(owner, name)

        def passed(*args: Any, **more: Any) -> Any:
            result = inner(*args, **more)
            if when(result, *args):
                fuse()
            return result

        setattr(owner, name, passed)

    return place


def after_awaiting(owner: Any, name: str) -> Place:
    def place(fuse: KillPoint) -> None:
        inner = getattr(owner, name)

        async def passed(*args: Any) -> None:
            await inner(*args)
            fuse()

        setattr(owner, name, passed)

    return place


def _plain(sql: str) -> str:
    """Return the statement without its conflict clause."""
    return sql.lstrip().replace("INSERT OR ROLLBACK INTO", "INSERT INTO", 1)


def statement(start: str = "") -> Place:
    """Kill right before the writer runs a statement with this prefix."""

    def place(fuse: KillPoint) -> None:
        inner = connection.connect_writer

        def connect(path: Path) -> sqlite3.Connection:
            db = inner(path)
            db.set_trace_callback(lambda sql: fuse() if _plain(sql).startswith(start) else None)
            return db

        connection.connect_writer = connect

    return place


def _seals(result: object, store: object, steps: Any, now: int) -> bool:
    return any(step.event is None for step in steps)


ON_THE_WAY: Mapping[str, Place] = {
    "a commit has arrived": before(CommitIntake, "submit"),
    "it goes to admission": before(Admission, "submit"),
    "it is to be checked": before(Admission, "run_once"),
    "it is checked": before(Sequencer, "submit"),
    "it stands in line": after(Sequencer, "submit"),
    "a batch is taken": before(Sequencer, "run_once", lambda sequencer, tickets: tickets),
    "one of a batch is judged": after(Sequencer, "_sequence"),
    "all of a batch are judged": before(Sequencer, "_write", lambda sequencer, batch: batch.steps),
    "before BEGIN": statement("BEGIN"),
    "within the transaction": statement(),
    "after events, before what hangs on them": statement("UPDATE kinds"),
    "before COMMIT": statement("COMMIT"),
    "after COMMIT": after(Writer, "transact"),
    "written": after(SqliteStore, "write"),
    "before the outcomes are delivered": before(CommitReplies, "deliver"),
    "after they are delivered": after(CommitReplies, "deliver"),
    "before replies": before(CommitReplies, "_reply"),
    "after replies": after(CommitReplies, "_reply"),
    "before an HTTP answer": before(HttpApi, "_finish"),
    "after an HTTP answer": after(HttpApi, "_finish"),
    "before a WebSocket answer": before(WebSocketConnection, "_commit_done"),
    "after a WebSocket answer": after(WebSocketConnection, "_commit_done"),
    "before a message waits": before(SendQueue, "put"),
    "before publishing": before(assembly.Node, "_publish"),
    "after publishing": after(SubscriptionHub, "publish"),
    "a bundle is sealed, not written": after(machine, "seal", lambda result, *args: result is not None),
    "a sealed bundle is written": after(SqliteStore, "write", _seals),
}
SPREADING: Mapping[str, Place] = {
    "before who hears is written": statement("INSERT INTO outbox"),
    "before an endpoint is": statement("INSERT OR REPLACE INTO endpoints"),
    "before batches are made": before(fan_out, "fan_out"),
    "before one is written": statement("INSERT INTO batches"),
    "before its queue counts it": statement("UPDATE queues SET push_seq"),
    "before the outbox is emptied": statement("DELETE FROM outbox WHERE o"),
    "after batches are made": after(fan_out, "fan_out"),
    "after they are written": after(SqliteStore, "fan_out"),
}
ERASING: Mapping[str, Place] = {
    "before a sweep": before(SqliteStore, "erase"),
    "within a sweep": statement("UPDATE events SET content"),
    "after a sweep": after(SqliteStore, "erase"),
}
PURGING: Mapping[str, Place] = {
    "before a step of a purge": before(SqliteStore, "purge"),
    "the enclave is marked": statement("UPDATE states"),
    "within a step of a purge": statement("DELETE FROM"),
    "after a step of a purge": after(SqliteStore, "purge"),
}
STOPPING: Mapping[str, Place] = {
    "before draining": before(assembly.Node, "drain"),
    "drained": after_awaiting(assembly.Node, "drain"),
    "before threads end": before(assembly.Node, "stop"),
    "after threads ended": after(assembly.Node, "stop"),
    "before the store is closed": before(SqliteStore, "close"),
    "before the log is copied home": statement("PRAGMA wal_checkpoint"),
    "after the store is closed": after(SqliteStore, "close"),
}
STARTING: Mapping[str, Place] = {
    "before the key has its name": before(os, "link"),
    "after the key has its name": after(os, "link"),
    "within the schema": statement(),
    "before the schema's COMMIT": statement("COMMIT"),
    "the store is open": after(SqliteStore, "__init__"),
    "before the threads start": before(assembly.Node, "start"),
    "after the threads start": after(assembly.Node, "start"),
}
IMPORTING: Mapping[str, Place] = {
    "an order is accepted": after(Importer, "accept"),
    "an import begins": before(LogImport, "run"),
    "a log has its place": after(SqliteStore, "stage"),
    "before a slice is written": before(SqliteStaging, "write"),
    "within a slice": statement("INSERT INTO events"),
    "within a slice, later": statement("UPDATE kinds"),
    "a slice is written": after(SqliteStaging, "write"),
    "all is replayed": after(StagedReplay, "finish"),
    "before all is adopted": before(SqliteStaging, "adopt"),
    "within the adoption": statement("UPDATE enclaves"),
    "within the adoption, later": statement("INSERT INTO usage"),
    "all is adopted": after(SqliteStaging, "adopt"),
    "before anybody hears": after(LogImport, "_adopt"),
}
PULLING: Mapping[str, Place] = {
    "before a page is asked for": before(RemoteLog, "_request_page"),
    "a page has come": after(RemoteLog, "_pack"),
}
FETCHED: Mapping[str, Place] = {
    "all of a log has come": after(Importer, "start", lambda result, importer, job, *rest: job.order.source is not None)
}
SPOOLING: Mapping[str, Place] = {
    "an archive begins to come": after(Uploads, "add"),
    "some of an archive has come": after(Upload, "add_bytes"),
    "all of an archive has come": after(Upload, "rewind"),
    "an archive stands in line": after(
        Importer, "start", lambda result, importer, job, *rest: job.order.source is None
    ),
}
FORCING: Mapping[str, Place] = {"a Migrate is signed": after(StagedReplay, "finalize")}
SWEEPING: Mapping[str, Place] = {
    "before what is left is swept": before(SqliteStore, "delete_orphans"),
    "within a sweep of what is left": statement("DELETE FROM events"),
    "after what is left is swept": after(SqliteStore, "delete_orphans", lambda done, *args: not done),
}
EXPORTING: Mapping[str, Place] = {
    "a page is asked for": before(SealedHandlers, "_export"),
    "a page is being read": before(SealedHandlers, "_log"),
    "a page has been read": after(SealedHandlers, "_export"),
    "a page is sealed": after(SealedHandlers, "answer"),
}
POINTS: Mapping[str, Place] = {
    **ON_THE_WAY,
    **SPREADING,
    **ERASING,
    **PURGING,
    **STOPPING,
    **STARTING,
    **IMPORTING,
    **PULLING,
    **FETCHED,
    **SPOOLING,
    **FORCING,
    **SWEEPING,
    **EXPORTING,
}


# Other faults


class Failing:
    """The writer's connection. While `flag` exists, the statements that it names fail; with `late`, after they ran."""

    def __init__(self, db: sqlite3.Connection, flag: Path) -> None:
        self._db, self._flag = db, flag

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        try:
            words = self._flag.read_text().split()
        except FileNotFoundError:
            words = []
        if sql.split()[0] not in words:
            return self._db.execute(sql, *args)
        if "late" in words:
            self._db.execute(sql, *args)
        raise sqlite3.OperationalError("disk I/O error")


def let_fail(flag: Path) -> None:
    inner = connection.connect_writer
    connection.connect_writer = lambda path: cast(sqlite3.Connection, Failing(inner(path), flag))


def slow_lines() -> None:
    inner = SendQueue.__init__

    def init(line: SendQueue, send: Any, *more: Any) -> None:
        async def slowly(message: Any) -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            await send(message)

        inner(line, slowly, *more)

    SendQueue.__init__ = init  # type: ignore[method-assign, assignment]  # same arguments, passed on


def set_clock(file: Path, ahead_ms: int) -> None:
    """Set the clock of a node that uses this file. The write is atomic, since the node may be reading."""
    draft = file.with_suffix(".new")
    draft.write_text(str(ahead_ms))
    draft.replace(file)


def small_steps() -> None:
    """Do rare work often: checkpoint the WAL, move ids into their index, probe a write for /health.

    Queued events are not sent: that takes a separate process.
    """
    PushSupervisor.start = lambda supervisor: None  # type: ignore[method-assign, assignment]  # starts no process
    readiness.HOLD_S = 0.0
    connection.CHECKPOINT_PAGES = 40
    event_index.GENERATION, event_index.STRIDE = 64, 8
    retention.MAX_ERASED, retention.MAX_PURGED, retention.REST_MS = 2, 12, 0
    migration.SLICE_EVENTS, staging.GENERATION = 4, 5


# The processes


def _follow() -> None:
    """End this node when the process that ordered it ends."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _say(**what: Any) -> None:
    os.write(1, encode(what) + b"\n")


def _run(order: Order) -> int:
    threading.Thread(target=_follow, daemon=True).start()
    stderr = os.open(f"{order.data}.stderr", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(stderr, 2)
    _say(pid=os.getpid())
    small_steps()
    if order.clock:
        file = Path(order.clock)
        # `assembly` imports the clock by name and looks it up when a Node is created.
        assembly.now_ms = lambda: time.time_ns() // 1_000_000 + int(file.read_text())  # type: ignore[attr-defined]
    if order.failing:
        let_fail(Path(order.failing))
    if order.slow:
        slow_lines()
    if order.point:
        POINTS[order.point](KillPoint(order.nth))
    try:
        return main.run(
            load_config(
                None, {}, {"data": order.data, "port": 0, "dev": True, "push.interval_s": 0.01, **order.settings}
            )
        )
    except EncError as e:
        os.write(2, f"{e.message}\n".encode())
        return 1


def serve() -> None:
    """Fork a node for each line of standard input, and report when it has ended."""
    child = 0
    while line := sys.stdin.buffer.readline():
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            os._exit(_run(decode(line, type=Order)))
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # its process id is not reused until the next order
        assert ended is not None
        _say(ended=ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)


class Launched:
    """A node that was ordered."""

    url = ""
    """The node's URL; empty if it ended before it was ready."""
    seq_pub = b""

    def __init__(self, launcher: "Launcher", order: Order) -> None:
        self._launcher, self.data = launcher, Path(order.data)
        self._status: int | None = None
        launcher.write(encode(order))
        self.pid = launcher.read()["pid"]
        line = launcher.read()
        if "ended" in line:
            self._status = line["ended"]
        else:
            self.url, self.seq_pub = line["url"], bytes.fromhex(line["seq_pub"])

    def wait(self) -> int:
        """Wait for the end of the node and return its exit code, negative for a signal."""
        if self._status is None:
            self._status = self._launcher.read()["ended"]
        return self._status

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the node unless it has ended."""
        if self._status is None:
            self.signal(signal.SIGKILL)
            self.wait()

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.log()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def log(self) -> str:
        return Path(f"{self.data}.stderr").read_text(errors="replace")


class Launcher:
    """Runs one node after the other."""

    def __init__(self, **env: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.node.crash_node"],
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._latest: Launched | None = None

    def start(self, data: Path, **order: Any) -> Launched:
        """Start a node; kill the previous one if it still runs."""
        if self._latest is not None:
            self._latest.kill()
        self._latest = Launched(self, Order(data=str(data), **order))
        return self._latest

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")

    def read(self) -> Any:
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], PATIENCE_S)
        assert ready, "a node neither became ready nor ended"
        return decode(out.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the standard input, which ends a node that still runs."""
        self._process.communicate()


if __name__ == "__main__":
    serve()
