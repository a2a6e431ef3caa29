"""The node's server: it finishes accepted requests, notifies subscribers and then closes connections."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import structlog
import uvicorn
from msgspec.structs import replace
from starlette.types import ASGIApp

from enc.node.config import NodeConfig
from enc.runtime.service_manager import ServiceManager
from enc.runtime.serving.descriptors import affordable_connections
from enc.runtime.serving.fast_response import Finish
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.listening import listen
from enc.runtime.serving.server import Server
from enc.runtime.serving.server_config import server_config
from enc.runtime.serving.ws_protocol import WebSocketProtocol
from enc.runtime.signals import end_on_next_signal

ADMIN_LIMITS = ServingLimits(
    connections=128, connections_per_address=64, incoming_bytes=4 << 20, request_timeout_s=10.0, max_body=1024
)

_log = structlog.get_logger("enc.server")


def serving_limits(config: NodeConfig) -> ServingLimits:
    """Return the limits of the node's server: not more connections than there are file descriptors, or
    none would be left for the admin listener and the store.
    """
    limits = config.serving_limits
    return replace(limits, connections=min(limits.connections, affordable_connections()))


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
        manager: ServiceManager | None = None,
    ) -> None:
        settings = _uvicorn_config(app, config, quick)
        listening = listen(config.host, config.port, flag="--port", backlog=2048)
        super().__init__(
            settings,
            listening,
            sites=config.sites,
            ready=lambda: ready(self.url),
            on_signal=end_on_next_signal,
            manager=manager,
        )
        self._drain = drain
        self._certificates = Certificates(config, settings.ssl)

    def each_second(self) -> None:
        super().each_second()
        self._certificates.reload_if_changed()

    async def drain(self) -> None:
        await self._drain()


class AdminServer(Server):
    """The admin listener. It shares the event loop with the node's server, which takes the signals, but
    not its limits: it answers when all connections of that are taken.
    """

    def __init__(self, app: ASGIApp, config: NodeConfig) -> None:
        listening = listen(config.admin.host, config.admin_port, field="admin: ", flag="the setting admin.port")
        super().__init__(server_config(app, limits=ADMIN_LIMITS, lifespan="off"), listening)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block runs."""
        task = asyncio.create_task(self.run_until_stopped())
        try:
            yield
        finally:
            self.stop()
            await task

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
    app: ASGIApp, config: NodeConfig, quick: Callable[[bytes, str, Finish], None] | None
) -> uvicorn.Config:
    limits = config.limits
    return server_config(
        app,
        limits=serving_limits(config),
        quick=None if config.proxy.trusted else quick,
        cert=config.tls.certificate or None,
        key=config.tls.key or None,
        field="tls: ",
        ws=WebSocketProtocol,
        loop="none",
        lifespan="off",
        date_header=False,
        proxy_headers=bool(config.proxy.trusted),
        forwarded_allow_ips=list(config.proxy.trusted),
        ws_ping_interval=limits.ws_ping_s,
        ws_ping_timeout=limits.ws_ping_s,
        ws_per_message_deflate=False,
    )
