"""The server behind `enc push receive` and `enc dataview`: who listens, what is said on stderr, and how it ends."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import uvicorn

from enc.cli.handing import Ended, Hand, say
from enc.client import Gap, PushReceiver
from enc.core.errors import MisuseError
from enc.runtime.signals import end_by_signal, stop_signals_to

END_S = 30.0
"""How long a listener may take to end."""


class Receiving:
    """Serves a receiver until a signal, a lie, or the end of those who read its output."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._error: Exception | None = None

    def end(self, error: Exception) -> None:
        self._error = self._error or error
        if self._server is not None:
            self._server.should_exit = True

    def serve(
        self, receiver: PushReceiver, hand: Hand, listening: socket.socket, cert: Path | None, key: Path | None
    ) -> None:
        """Raises what has ended it, if no signal did."""
        try:
            self._server = _Server(_settings(receiver.app, cert, key), receiver.url, hand)
            asyncio.run(self._server.serve(sockets=[listening]))
        finally:
            receiver.close()
        if self._error is not None:
            raise self._error


class Listener:
    """An ASGI app on a socket, served by a thread of this process for as long as a block runs."""

    def __init__(self, app: Any, listening: socket.socket, cert: Path | None = None, key: Path | None = None) -> None:
        self._socket, self._server = listening, uvicorn.Server(_settings(app, cert, key))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="enc-listener", daemon=True)

    @property
    def place(self) -> tuple[str, int]:
        """The host and port where it listens."""
        host, port, *_ = self._socket.getsockname()
        return host, port

    def check(self) -> None:
        """MisuseError if it has ended by itself."""
        if self._ended.is_set():
            raise MisuseError("the receiver has ended")

    def __enter__(self) -> Self:
        """Returns when it listens."""
        self._thread.start()
        while not self._server.started:
            if self._ended.wait(0.01):
                raise MisuseError("the receiver did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(END_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except (OSError, RuntimeError, SystemExit):
            pass  # whoever waits for it is told
        finally:
            self._ended.set()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, url: str, hand: Hand) -> None:
        super().__init__(config)
        self._url, self._hand, self._is_told = url, hand, False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            host, port, *_ = listening.getsockname()
            say(f"listening on {host} port {port}, for {self._url}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop it in order; a second one ends it at once, and what it has under way."""
        with stop_signals_to(self.handle_exit, asyncio.get_running_loop()):
            yield

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self._is_told:
            self._hand.kill()
            end_by_signal(sig)
        self._is_told = self.should_exit = True
        self._hand.stop()


def _settings(app: Any, cert: Path | None, key: Path | None) -> uvicorn.Config:
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
    return config


def accepting(only: Sequence[str] | None) -> Callable[[bytes], bool]:
    """Whose events are taken: those of the enclaves named, or everybody's."""
    from enc.client.writes import as_bytes

    wanted = None if not only else {as_bytes(each, "--only") for each in only}
    return lambda enclave: wanted is None or enclave in wanted


def check_tls(cert: Path | None, key: Path | None) -> None:
    """Before anything is made: the files can be used."""
    if cert is None:
        if key is not None:
            raise MisuseError("--key: expected --cert with it")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except ssl.SSLError as e:
        hint = "" if key else "; without --key, the file must hold the key as well"
        raise MisuseError(
            f"--cert, --key: no certificate and its key, unencrypted, in PEM: {e.reason or e}{hint}"
        ) from None
    except OSError as e:
        raise MisuseError(f"--cert, --key: cannot be used: {e.strerror}") from None


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
        is_named = isinstance(e, socket.gaierror) or not e.errno  # a name that is not found has an error of its own
        why = e.strerror or e if is_named else os.strerror(e.errno or 0)
        raise MisuseError(f"--listen: cannot listen on {place}: {why}") from None


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
        if isinstance(error, Ended):
            return
        say(f"{record.getMessage()}" + ("" if error is None else f": {error or type(error).__name__}"))


@contextlib.contextmanager
def telling_on_stderr() -> Iterator[None]:
    """What the library logs is said, and by nobody else."""
    logger, lines = logging.getLogger("enc.client.receiver"), _Lines()
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
