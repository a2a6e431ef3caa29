"""Sinks of `enc push receive`: each event and notice is printed as JSON, or given to a command."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol

import msgspec
import typer

from enc.cli.common.exits import one_line
from enc.client.enclave.push_body import Notice
from enc.client.receive.inbox_file import Db
from enc.core.errors import MisuseError
from enc.core.log.event import wire_event
from enc.core.primitives.types import Event


class SinkFailed(Exception):
    """The sink did not accept this event; it is offered again later."""


class SinkClosed(SinkFailed):
    """The sink accepts no more events. The program ends and reports the reason itself."""


class EventSink(Protocol):
    def event(self, event: Event, db: Db) -> None: ...

    def notice(self, notice: Notice) -> None: ...

    def stop(self) -> None:
        """Accept no more events; print what is still running, if anything is."""
        ...

    def kill(self) -> None:
        """Kill what is still running."""
        ...


def report_line(text: str) -> None:
    typer.echo(f"enc: {one_line(text)}", err=True)


def wire_notice(notice: Notice) -> dict[str, Any]:
    """Return a notice as JSON. Its only member is `notice`, which no event has."""
    wire = msgspec.structs.asdict(notice)
    return {"notice": {**wire, "enclave": notice.enclave.hex(), "event_id": notice.event_id.hex()}}


class JsonLines:
    """Prints each as a line on stdout. If stdout is closed, it ends and leaves the event for the next run."""

    def __init__(self, end: Callable[[Exception], None]) -> None:
        self._end = end

    def event(self, event: Event, db: Db) -> None:
        self._print(wire_event(event))

    def notice(self, notice: Notice) -> None:
        self._print(wire_notice(notice))

    def _print(self, wire: Any) -> None:
        try:
            sys.stdout.buffer.write(msgspec.json.encode(wire) + b"\n")
            sys.stdout.buffer.flush()
        except OSError as e:
            self._end(e)
            raise SinkClosed("stdout is closed") from None

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


class CommandRunner:
    """Runs a command for each, with the JSON on stdin. A command that exits with a code other than 0 runs again later.

    The command has its own process group: the first Ctrl-C reaches only the receiver, which lets the
    command finish; the second one kills the whole group.
    """

    def __init__(self, command: str) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as e:
            raise MisuseError(f"--exec: {e}") from None
        if not self._command:
            raise MisuseError("--exec: expected a command")
        if shutil.which(self._command[0]) is None:
            raise MisuseError(f"--exec: {self._command[0]}: not found, or not executable")
        self._lock, self._is_stopping, self._is_killed = Lock(), False, False
        self._process: subprocess.Popen[bytes] | None = None
        self._what = ""

    def event(self, event: Event, db: Db) -> None:
        self._run(wire_event(event), f"event {event.seq} of {event.enclave.hex()}")

    def notice(self, notice: Notice) -> None:
        self._run(wire_notice(notice), f"a notice of {notice.enclave.hex()}")

    def _run(self, wire: Any, what: str) -> None:
        try:
            with self._lock:
                process = self._start(what)
        except OSError as e:
            raise SinkFailed(f"{self._command[0]}: {e.strerror}") from None
        try:
            process.communicate(msgspec.json.encode(wire))
        finally:
            with self._lock:
                self._process = None
        if process.returncode:
            raise SinkFailed(f"{self._command[0]} exited with code {process.returncode}")

    def _start(self, what: str) -> "subprocess.Popen[bytes]":
        if self._is_killed:
            raise SinkClosed("the receiver has ended")
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, process_group=0)  # noqa: S603
        self._what = what
        if self._is_stopping:
            self._report_running()
        return self._process

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            if self._process is not None:
                self._report_running()

    def _report_running(self) -> None:
        pid = self._process.pid if self._process else 0
        report_line(
            f"stopping when {self._command[0]} (process {pid}) has finished {self._what}; a second signal kills it"
        )

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            if self._process is not None and self._process.returncode is None:
                with suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
