"""uvicorn, taught to stop the way a node must: finish what was accepted, tell subscribers, then close."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from enc.core.errors import MisuseError
from enc.node.config import Config
from enc.node.http.closing import close_idle, close_slow, close_stuck
from enc.node.http.http_protocol import Finish, HttpProtocol
from enc.node.http.peers import Peers
from enc.node.http.ws_protocol import WebSocketProtocol
from enc.runtime.signals import stop_signals_to

_log = structlog.get_logger("enc.server")


class Server(uvicorn.Server):
    """One listening socket. `drain` is awaited after the socket is closed and before connections are."""

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        drain: Callable[[], Awaitable[None]],
        ready: Callable[[str], None],
        quick: Callable[[bytes, str, Finish], None] | None = None,
    ) -> None:
        limits = config.limits
        self.peers = Peers(limits.connections, config.connections_of_address, limits.unsent_bytes)
        self._told = 0
        """Of the peers that were dropped, those that the log knows of."""
        super().__init__(_uvicorn_config(app, config, quick, self.peers))
        self._drain, self._ready, self._patience = drain, ready, config.limits.request_timeout_s
        self._socket = _listen(config.host, config.port)
        self._certificates = Certificates(config)
        host, port = self._socket.getsockname()[:2]
        self.url = f"{'https' if config.tls.certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def run_until_stopped(self) -> None:
        await self.serve([self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.config.ssl is not None:
            self._certificates.context = self.config.ssl
        self._ready(self.url)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            close_slow(self.server_state, now, self._patience)
            close_stuck(self.server_state, now, self._patience)
            self._tell_of_dropped()
            self._certificates.reload_if_changed()
        return await super().on_tick(counter)

    def _tell_of_dropped(self) -> None:
        if self.peers.dropped > self._told:
            _log.warning("peers_dropped", count=self.peers.dropped - self._told, unsent_bytes=self.peers.unsent)
            self._told = self.peers.dropped

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._drain()
        close_idle(self.server_state)
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the node; a second one stops it without waiting for slow peers."""
        with stop_signals_to(self.handle_exit, asyncio.get_running_loop()):
            yield

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:
            self.force_exit = True
        else:
            self.should_exit = True


class Certificates:
    """The certificate files, loaded again for new connections when they change."""

    context: ssl.SSLContext | None = None

    def __init__(self, config: Config) -> None:
        self._files = (config.tls.certificate, config.tls.key)
        self._seen = self._stamps()

    def _stamps(self) -> tuple[int, ...]:
        return tuple(Path(file).stat().st_mtime_ns for file in self._files if file)

    def reload_if_changed(self) -> None:
        """Take the files as they are now; files that do not fit together leave the old ones in use."""
        if self.context is None:
            return
        try:
            stamps = self._stamps()
            if stamps != self._seen:
                self._seen = stamps
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)  # a trial: it may half succeed
                self.context.load_cert_chain(*self._files)
                _log.info("certificate_reloaded")
        except (OSError, ssl.SSLError) as e:
            _log.error("certificate_not_reloaded", reason=str(e))


def _uvicorn_config(
    app: ASGIApp, config: Config, quick: Callable[[bytes, str, Finish], None] | None, peers: Peers
) -> uvicorn.Config:
    limits = config.limits
    bounds = {
        "peers": peers,
        "max_body": limits.body,
        "quick": None if quick is None or config.proxy.trusted else staticmethod(quick),
    }
    protocol = type("BoundedHttp", (HttpProtocol,), bounds)
    try:
        found = uvicorn.Config(
            app,
            http=protocol,
            ws=WebSocketProtocol,
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",  # below it uvicorn speaks of every connection, and of every malformed request
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=bool(config.proxy.trusted),
            forwarded_allow_ips=list(config.proxy.trusted),
            timeout_keep_alive=limits.idle_timeout_s,
            timeout_graceful_shutdown=10,
            ws_max_size=limits.body,
            ws_ping_interval=limits.ws_ping_s,
            ws_ping_timeout=limits.ws_ping_s,
            ws_per_message_deflate=False,
            ssl_certfile=config.tls.certificate or None,
            ssl_keyfile=config.tls.key or None,
        )
        found.load()
    except (OSError, ssl.SSLError) as e:
        raise MisuseError(f"tls: the certificate and key cannot be used: {e}") from None
    return found


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as e:
        if e.errno == errno.EADDRINUSE:
            e.strerror = f"{os.strerror(e.errno)}; stop what uses it, or give another with --port"
        raise MisuseError(f"cannot listen on {host} port {port}: {e.strerror or e}") from None
