"""What `enc push receive` does with each event and notice: it prints a line of JSON, or runs a command with that."""

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

from enc.cli.exits import one_line
from enc.client.inbox_file import Db
from enc.client.push_body import Notice
from enc.core.errors import MisuseError
from enc.core.event import wire_event
from enc.core.types import Event


class Broken(Exception):
    """What takes the events did not take this one."""


class Ended(Broken):
    """What takes the events takes no more: the program ends, and tells why by itself."""


class Hand(Protocol):
    def event(self, event: Event, db: Db) -> None: ...

    def notice(self, notice: Notice) -> None: ...

    def stop(self) -> None:
        """No more is wanted: say what is waited for, if anything is under way."""
        ...

    def kill(self) -> None:
        """Nor is what is under way."""
        ...


def say(text: str) -> None:
    typer.echo(f"enc: {one_line(text)}", err=True)


def wire_notice(notice: Notice) -> dict[str, Any]:
    """A line of its own kind: no event has a member of this name."""
    told = msgspec.structs.asdict(notice)
    return {"notice": {**told, "enclave": notice.enclave.hex(), "event_id": notice.event_id.hex()}}


class Printing:
    """Each as a line on stdout. Where nobody reads any more: end, and leave it for the next run."""

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
            raise Ended("nobody reads what is printed") from None

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


class Running:
    """A command for each, with its JSON on stdin; one that ends with another code than 0 is run again later.

    It is in a process group of its own: a Ctrl-C is the receiver's, which lets it end, and a second one ends it whole.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as e:
            raise MisuseError(f"--exec: {e}") from None
        if not self._words:
            raise MisuseError("--exec: expected a command")
        if shutil.which(self._words[0]) is None:
            raise MisuseError(f"--exec: {self._words[0]}: there is no such command, or it may not be run")
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
            raise Broken(f"{self._words[0]}: {e.strerror}") from None
        try:
            process.communicate(msgspec.json.encode(wire))
        finally:
            with self._lock:
                self._process = None
        if process.returncode:
            raise Broken(f"{self._words[0]} ended with {process.returncode}")

    def _start(self, what: str) -> "subprocess.Popen[bytes]":
        if self._is_killed:
            raise Ended("the receiver is ended")
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, process_group=0)  # noqa: S603
        self._what = what
        if self._is_stopping:
            self._say()
        return self._process

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            if self._process is not None:
                self._say()

    def _say(self) -> None:
        pid = self._process.pid if self._process else 0
        say(f"stopping, once {self._words[0]} (process {pid}) is done with {self._what}; a second signal kills it")

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            if self._process is not None and self._process.returncode is None:
                with suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
