"""The node's server: it finishes accepted requests, notifies subscribers and then closes connections."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from enc.node.config import NodeConfig
from enc.runtime.serving.closing import close_idle, close_slow, close_stuck
from enc.runtime.serving.http_protocol import Finish, HttpProtocol
from enc.runtime.serving.listening import listen
from enc.runtime.serving.peers import Peers
from enc.runtime.serving.server import Server, server_config
from enc.runtime.serving.ws_protocol import WebSocketProtocol
from enc.runtime.signals import end_on_next_signal

_log = structlog.get_logger("enc.server")


class NodeServer(Server):
    """The node's server. `drain` is awaited after the socket is closed and before connections are.

    In the main thread, the first signal stops it gracefully and the second ends the process at
    once: everything acknowledged is on disk.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: NodeConfig,
        drain: Callable[[], Awaitable[None]],
        ready: Callable[[str], None],
        quick: Callable[[bytes, str, Finish], None] | None = None,
    ) -> None:
        limits = config.limits
        self.peers = Peers(limits.connections, config.connections_of_address, limits.unsent_bytes)
        self._logged_drops = 0
        """Number of dropped peers that were already logged."""
        settings = _uvicorn_config(app, config, quick, self.peers)
        listening = listen(config.host, config.port, flag="--port", backlog=2048)
        super().__init__(settings, listening, ready=lambda: ready(self.url), on_signal=end_on_next_signal)
        self._drain, self._patience = drain, limits.request_timeout_s
        self._certificates = Certificates(config, settings.ssl)

    def each_second(self) -> None:
        now = asyncio.get_running_loop().time()
        close_slow(self.server_state, now, self._patience)
        close_stuck(self.server_state, now, self._patience)
        self._log_dropped()
        self._certificates.reload_if_changed()

    def _log_dropped(self) -> None:
        if self.peers.dropped > self._logged_drops:
            _log.warning("peers_dropped", count=self.peers.dropped - self._logged_drops, unsent_bytes=self.peers.unsent)
            self._logged_drops = self.peers.dropped

    async def drain(self) -> None:
        await self._drain()
        close_idle(self.server_state)


class Certificates:
    """The certificate files, loaded again for new connections when they change."""

    def __init__(self, config: NodeConfig, context: ssl.SSLContext | None) -> None:
        self._files, self._context = (config.tls.certificate, config.tls.key), context
        self._seen = self._stamps()

    def _stamps(self) -> tuple[int, ...]:
        return tuple(Path(file).stat().st_mtime_ns for file in self._files if file)

    def reload_if_changed(self) -> None:
        """Take the files as they are now; files that do not fit together leave the old ones in use."""
        if self._context is None:
            return
        try:
            stamps = self._stamps()
            if stamps != self._seen:
                self._seen = stamps
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)  # a trial: it may half succeed
                self._context.load_cert_chain(*self._files)
                _log.info("certificate_reloaded")
        except (OSError, ssl.SSLError) as e:
            _log.error("certificate_not_reloaded", reason=str(e))


def _uvicorn_config(
    app: ASGIApp, config: NodeConfig, quick: Callable[[bytes, str, Finish], None] | None, peers: Peers
) -> uvicorn.Config:
    limits = config.limits
    bounds = {
        "peers": peers,
        "max_body": limits.body,
        "quick": None if quick is None or config.proxy.trusted else staticmethod(quick),
    }
    protocol = type("BoundedHttp", (HttpProtocol,), bounds)
    return server_config(
        app,
        cert=config.tls.certificate or None,
        key=config.tls.key or None,
        field="tls: ",
        http=protocol,
        ws=WebSocketProtocol,
        loop="none",
        lifespan="off",
        date_header=False,
        proxy_headers=bool(config.proxy.trusted),
        forwarded_allow_ips=list(config.proxy.trusted),
        timeout_keep_alive=limits.idle_timeout_s,
        ws_max_size=limits.body,
        ws_ping_interval=limits.ws_ping_s,
        ws_ping_timeout=limits.ws_ping_s,
        ws_per_message_deflate=False,
    )
