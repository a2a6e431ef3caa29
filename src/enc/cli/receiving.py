"""The server behind `enc push receive`: a receiver of pushes whose handler prints, or runs a command."""

import asyncio
import contextlib
import logging
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
import uvicorn

from enc.cli.exits import one_line
from enc.client import Gap, PushReceiver
from enc.client.inbox_file import Db
from enc.core.errors import MisuseError
from enc.core.event import wire_event
from enc.core.types import Event

Handle = Callable[[Event, Db], None]


class Broken(Exception):
    """What takes the events takes them no more."""


def say(text: str) -> None:
    typer.echo(f"enc: {one_line(text)}", err=True)


def printing(end: Callable[[Exception], None]) -> Handle:
    """Each event as a line of JSON on stdout. Where nobody reads any more: end, and leave it for the next run."""

    def handle(event: Event, db: Db) -> None:
        try:
            sys.stdout.buffer.write(msgspec.json.encode(wire_event(event)) + b"\n")
            sys.stdout.buffer.flush()
        except OSError as e:
            end(e)
            raise Broken("nobody reads what is printed") from None

    return handle


def running(command: str) -> Handle:
    """A command for each event, with its JSON on stdin; one that ends with another code than 0 is run again later."""
    try:
        words = shlex.split(command)
    except ValueError as e:
        raise MisuseError(f"--exec: {e}") from None
    if not words:
        raise MisuseError("--exec: expected a command")

    def handle(event: Event, db: Db) -> None:
        try:
            code = subprocess.run(words, input=msgspec.json.encode(wire_event(event)), check=False).returncode  # noqa: S603
        except OSError as e:
            raise Broken(f"{words[0]}: {e.strerror}") from None
        if code:
            raise Broken(f"{words[0]} ended with {code}")

    return handle


class Receiving:
    """Serves a receiver until a signal, a lie, or the end of those who read its output."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._error: Exception | None = None

    def end(self, error: Exception) -> None:
        self._error = self._error or error
        if self._server is not None:
            self._server.should_exit = True

    def serve(self, receiver: PushReceiver, listening: socket.socket, cert: Path | None, key: Path | None) -> None:
        """Raises what has ended it, if no signal did."""
        try:
            self._server = _Server(_settings(receiver.app, cert, key), receiver.url)
            asyncio.run(self._server.serve(sockets=[listening]))
        finally:
            receiver.close()
        if self._error is not None:
            raise self._error


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            host, port, *_ = listening.getsockname()
            say(f"listening on {host} port {port}, for {self._url}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop it in order; a second one ends it at once."""
        loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self.should_exit = True


def _settings(app: Any, cert: Path | None, key: Path | None) -> uvicorn.Config:
    try:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=256,
            timeout_graceful_shutdown=10,
            ssl_certfile=cert,
            ssl_keyfile=key,
        )
        config.load()
    except (OSError, ssl.SSLError) as e:
        raise MisuseError(f"--cert, --key: cannot be used: {e}") from None
    return config


def listen(place: str) -> socket.socket:
    """A socket that listens at HOST:PORT."""
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise MisuseError(f"--listen: expected HOST:PORT, and not {place!r}")
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, int(port)), family=family)
    except OSError as e:
        raise MisuseError(f"--listen: cannot listen on {place}: {e.strerror or e}") from None


def on_gap(skip_lost: bool) -> Callable[[Gap], bool]:
    def tell(gap: Gap) -> bool:
        lost = f"batches {gap.first} to {gap.last} are lost"
        if not gap.refused:
            say(f"{lost}; what they held was read from the log")
        else:
            held = ", ".join(enclave.hex() for enclave in gap.refused)
            say(f"{lost}, and may not be read from the log of {held}" + ("" if skip_lost else ": --skip-lost goes on"))
        return skip_lost

    return tell


class _Lines(logging.Handler):
    """What the receiver has to say, a line each; of an error its own words, and no more of where it came from."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        say(f"{record.getMessage()}" + ("" if error is None else f": {error or type(error).__name__}"))


def tell_on_stderr() -> None:
    logger = logging.getLogger("enc.client.receiver")
    logger.addHandler(_Lines())
    logger.propagate = False
