"""The server: runs in the foreground until a signal, or in a thread for the duration of a block."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.serving.api import Api
from enc.dataview.serving.config import Config
from enc.dataview.serving.database import Database
from enc.dataview.serving.proofs import Prover
from enc.runtime.signals import stop_signals_to

if TYPE_CHECKING:
    from enc.client import Client

PROOF_TIMEOUT_S = 5.0
"""Time limit for one request to a node, including retries."""
START_S = 30.0


class ServingServer:
    """The server behind one listening socket. `url` is known at once, even if the port is 0."""

    def __init__(self, config: Config, *, cert: Path | None = None, key: Path | None = None) -> None:
        rights = config.rights()
        prover = Prover(_connect(config))
        found = rights.session_pub
        self.session_pub = None if found is None else found.hex()
        self._socket = _listen(config.listen)
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if cert is None else "https"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        try:
            self._database = Database(config.database, patience_s=config.query_timeout_s)
        except BaseException:
            self._socket.close()
            raise
        self._api = Api(self._database, rights, prover, config.origins)
        self._server = _Server(_settings(self._api, cert, key))

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal or `stop`; `ready` is called once the server answers."""
        self._server.ready = ready
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()
            self._api.close()
            self._database.close()

    def stop(self) -> None:
        self._server.should_exit = True

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Run in a thread for the duration of the block. Yields the URL."""
        is_ready = threading.Event()
        thread = threading.Thread(target=self.run, args=(is_ready.set,), name="enc-serving", daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + START_S
            while not is_ready.wait(0.05):
                if not thread.is_alive() or time.monotonic() > deadline:
                    raise Unavailable("the server did not start")
            yield self.url
        finally:
            self.stop()
            thread.join()


class _Server(uvicorn.Server):
    ready: Callable[[], None]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop it in order, with exit code 0, where signals come: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with stop_signals_to(self.handle_exit, asyncio.get_running_loop()):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()


def _settings(api: Api, cert: Path | None, key: Path | None) -> uvicorn.Config:
    try:
        found = uvicorn.Config(
            api,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=512,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
            ssl_certfile=cert,
            ssl_keyfile=key,
        )
        found.load()
    except (OSError, ssl.SSLError) as e:
        raise MisuseError(f"the certificate and key cannot be used: {e}") from None
    return found


def _listen(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise MisuseError(f"listen: expected HOST:PORT, not {place!r}")
    try:
        family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, int(port)), family=family, backlog=512)
        # Connections inherit it. A response's head and body are two writes: without it, the second
        # waits for an ACK.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            e.strerror = f"{os.strerror(e.errno)}; stop the program that uses it, or choose another with --listen"
        raise MisuseError(f"listen: cannot listen on {place}: {e.strerror or e}") from None


def _connect(config: Config) -> "Callable[[], Client] | None":
    """Return how to connect for proofs; None if no node is configured. Invalid settings raise at
    once.
    """
    if not config.node and not config.registry:
        return None
    from enc.client import Client, Identity, Registry
    from enc.client.enclave.writes import as_bytes
    from enc.client.wire.transport import base_url

    url = base_url(config.node) if config.node else None
    identity = Identity.load(config.identity) if config.identity else None
    registry = None
    if config.registry:
        where, _, rest = config.registry.partition("#")
        id_, _, seq_pub = rest.partition(":")
        pinned = as_bytes(seq_pub, "registry: key") if seq_pub else None
        registry = Registry(url=base_url(where), enclave=as_bytes(id_, "registry: id"), seq_pub=pinned)
    timeout = PROOF_TIMEOUT_S
    return lambda: Client(url, identity, pins=None, timeout=timeout, patience=timeout, registry=registry)
