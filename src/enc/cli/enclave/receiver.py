"""The server of `enc push receive` and `enc dataview`: its socket, its lines on stderr, its shutdown."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import uvicorn

from enc.cli.common import known_ids
from enc.cli.enclave.event_sink import EventSink, SinkClosed, report_line
from enc.client import Gap, PushReceiver
from enc.core.errors import MisuseError
from enc.runtime.serving.descriptors import raise_file_limit
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.server import Server
from enc.runtime.serving.server_config import server_config
from enc.runtime.serving.server_thread import ServerThread
from enc.runtime.serving.sites import SiteRules
from enc.runtime.signals import end_by_signal

LIMITS = ServingLimits(incoming_bytes=512 << 20, incoming_bytes_per_address=256 << 20)
"""A node may send 64 batches of several megabytes at a time."""


class ReceiverServer:
    """Serves a receiver until a signal, evidence against a node, or the closing of stdout."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._error: Exception | None = None

    def end(self, error: Exception) -> None:
        self._error = self._error or error
        if self._server is not None:
            self._server.stop()

    def serve(
        self, receiver: PushReceiver, sink: EventSink, listening: socket.socket, cert: Path | None, key: Path | None
    ) -> None:
        """Serve until the end. Raises the error that ended it, unless a signal did.

        The first signal stops it gracefully; a second one kills it and its command at once.
        """
        host, port = listening.getsockname()[:2]

        def kill(number: int) -> None:
            sink.kill()
            end_by_signal(number)

        try:
            self._server = Server(
                _server_config(receiver.app, cert, key),
                listening,
                sites=_sites(receiver.url),
                ready=lambda: report_line(f"listening on {host} port {port}, for {receiver.url}"),
                on_signal=sink.stop,
                on_second_signal=kill,
            )
            asyncio.run(self._server.run_until_stopped())
        finally:
            receiver.close()
        if self._error is not None:
            raise self._error


class Listener:
    """Serves an ASGI app on a socket in a thread of this process, as a context manager."""

    def __init__(
        self, app: Any, url: str, listening: socket.socket, cert: Path | None = None, key: Path | None = None
    ) -> None:
        """`url`: as registered."""
        self._socket = listening
        server = Server(_server_config(app, cert, key), listening, sites=_sites(url))
        self._thread = ServerThread(server, name="enc-listener")

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that it listens on."""
        host, port, *_ = self._socket.getsockname()
        return host, port

    def check(self) -> None:
        """Raise MisuseError if the server has ended by itself."""
        if self._thread.ended.is_set():
            raise MisuseError("the receiver has ended unexpectedly")

    def __enter__(self) -> Self:
        """Start the server; return when it listens."""
        if not self._thread.start():
            raise MisuseError("the receiver did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop()


def _server_config(app: Any, cert: Path | None, key: Path | None) -> uvicorn.Config:
    raise_file_limit(LIMITS.connections)
    return server_config(app, limits=LIMITS, cert=cert, key=key, lifespan="on")


def _sites(url: str) -> SiteRules:
    """Return the sites of a receiver: the name in its URL, and no web page."""
    hosts_setting = "use the name in --url, or let the proxy pass the receiver's own address as Host"
    return SiteRules(
        public_url=url, origins=(), hosts_setting=hosts_setting, origins_setting="it accepts pushes from nodes only"
    )


def enclave_filter(only: Sequence[str] | None) -> Callable[[bytes], bool]:
    """Return a predicate that accepts the named enclaves, or all if none is named."""
    wanted = None if not only else {bytes.fromhex(known_ids.enclave(each, what="--only")) for each in only}
    return lambda enclave: wanted is None or enclave in wanted


def check_tls(cert: Path | None, key: Path | None) -> None:
    """Raise MisuseError unless the certificate and its key can be used."""
    if cert is None:
        if key is not None:
            raise MisuseError("--key: expected --cert with it")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except ssl.SSLError as e:
        hint = "" if key else "; without --key, the file of --cert must hold the key, too"
        raise MisuseError(
            f"--cert, --key: expected a certificate and its unencrypted key, in PEM: {e.reason or e}{hint}"
        ) from None
    except OSError as e:
        raise MisuseError(f"--cert, --key: cannot be read: {e.strerror}") from None


def gap_handler(skip_lost: bool) -> Callable[[Gap], bool]:
    """Return a handler that reports lost batches, and continues past unreadable ones with `skip_lost`."""

    def report(gap: Gap) -> bool:
        lost = f"batches {gap.first} to {gap.last} are lost"
        if not gap.refused:
            report_line(f"{lost}; their events were read from the log")
        else:
            held = ", ".join(enclave.hex() for enclave in gap.refused)
            hint = "" if skip_lost else ": --skip-lost continues without them"
            report_line(f"{lost}, and you have no right to read their events from the log of {held}{hint}")
        return skip_lost

    return report


class _LineHandler(logging.Handler):
    """Prints each log record as a line; of an exception only its message, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, SinkClosed):
            return
        report_line(f"{record.getMessage()}" + ("" if error is None else f": {error or type(error).__name__}"))


@contextlib.contextmanager
def log_to_stderr() -> Iterator[None]:
    """Print the receiver library's log on stderr, and stop its propagation to other handlers."""
    logger, lines = logging.getLogger("enc.client.receiver"), _LineHandler()
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before[0])
        logger.propagate = before[1]
