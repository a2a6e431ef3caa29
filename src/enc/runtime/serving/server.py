"""HTTP servers: uvicorn on a listening socket, with our way to start, to stop and to take signals.

This module and the protocols beside it rely on internals of uvicorn, so pyproject.toml pins its minor
version; tests/runtime/serving/test_uvicorn.py names each internal.
"""

import asyncio
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
import uvicorn
from uvicorn.config import STARTUP_FAILURE

from enc.runtime.service_manager import ServiceManager
from enc.runtime.serving.closing import close_idle, close_slow, close_stuck
from enc.runtime.serving.descriptors import AcceptFailures
from enc.runtime.serving.http_protocol import HttpProtocol
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.listening import url_of
from enc.runtime.serving.peers import Peers
from enc.runtime.serving.sites import SiteCheck, SiteRules
from enc.runtime.serving.tls_listener import TlsListener
from enc.runtime.signals import end_by_signal, stop_signals_to

TICK_S = 0.1
"""Between two calls of `on_tick`."""
CLOSING_S = 0.005
"""Between two looks at whether the last connection has closed."""
ARRIVAL_PASSES = 8
"""Passes of the event loop before the socket closes: a request that has arrived is read after five
of them at most. Without them its connection would be reset, or forgotten and left open.
"""

_log, _drops = logging.getLogger("uvicorn.error"), structlog.get_logger("enc.server")


class Server(uvicorn.Server):
    """Serves one socket until `stop`, or until SIGINT or SIGTERM if it runs in the main thread.

    `ready`: called once it answers. `on_signal`: called at the first signal, which stops the server
    gracefully. `on_second_signal`: called with the number of each later one; by default that ends
    the process at once. `sites`: the values of Host and Origin that it answers. `manager`: is told
    when the server is ready, alive and stopping. `url` is known before it runs: the port may have
    been 0.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        *,
        sites: SiteRules = SiteRules(),  # noqa: B008
        ready: Callable[[], None] = lambda: None,
        on_signal: Callable[[], None] = lambda: None,
        on_second_signal: Callable[[int], None] = end_by_signal,
        manager: ServiceManager | None = None,
    ) -> None:
        super().__init__(config)
        self.url = url_of(listening, is_tls=config.is_ssl)
        self.ready, self._on_signal, self._on_second_signal = ready, on_signal, on_second_signal
        self._socket, self._is_signalled = listening, False
        self._manager = manager or ServiceManager()
        self._protocol: type[HttpProtocol] = config.http_protocol_class  # type: ignore[assignment]
        self._protocol.sites = SiteCheck(sites, listening.getsockname()[0])
        self._limits = self._protocol.limits
        self._accept_failures = AcceptFailures()
        self._logged_drops = 0
        """Number of dropped peers that were already logged."""
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run_until_stopped(self) -> None:
        await self.serve([self._socket])

    def stop(self) -> None:
        """Stop gracefully. For any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stopping.set)

    def set_limits(self, limits: ServingLimits) -> None:
        """Change the limits; not `idle_timeout_s` and `max_body`, which stay as they were."""
        self._limits = self._protocol.limits = limits
        self.peers.set_limits(limits)

    @property
    def peers(self) -> Peers:
        return self._protocol.peers

    # For subclasses

    def each_second(self) -> None:
        """Called about once a second while it serves."""
        self._manager.alive()
        now, patience = asyncio.get_running_loop().time(), self._limits.request_timeout_s
        close_slow(self.server_state, now, patience)
        close_stuck(self.server_state, now, patience)
        self._log_dropped()
        if self.config.ssl is None and self._socket.fileno() >= 0:
            self._accept_failures.probe(self._socket.fileno())

    def _log_dropped(self) -> None:
        peers = self.peers
        if peers.dropped > self._logged_drops:
            count, self._logged_drops = peers.dropped - self._logged_drops, peers.dropped
            _drops.warning("peers_dropped", count=count, unsent_bytes=peers.unsent, incoming_bytes=peers.incoming)

    async def drain(self) -> None:
        """Awaited when it stops: after the socket is closed and before connections are."""

    # What uvicorn calls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which would count a connection only after its TLS handshake."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = [await self._listen(listening) for listening in sockets or ()]
        self.started = True
        self.ready()
        self._manager.ready(f"serving on {self.url}")

    async def _listen(self, listening: socket.socket) -> Any:
        context, backlog = self.config.ssl, self.config.backlog
        if context is None:
            return await asyncio.get_running_loop().create_server(self._new_protocol, sock=listening, backlog=backlog)
        listener = TlsListener(
            listening, context, self.peers, self._limits.handshake_s, self._new_protocol, self._accept_failures
        )
        listener.start(backlog)
        return listener

    def _new_protocol(self) -> HttpProtocol:
        return self._protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def main_loop(self) -> None:
        """As uvicorn's, which would notice a stop only at the next tick."""
        self._loop = asyncio.get_running_loop()
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % 864_000
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK_S)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            self.each_second()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which would wait a tenth of a second even if nothing is connected."""
        self._manager.stopping()
        for _ in range(ARRIVAL_PASSES):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        await self.drain()
        close_idle(self.server_state)
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._until_closed()
        except TimeoutError:
            _log.error("%d requests were cancelled: they did not end in time", len(self.server_state.tasks))
            for task in self.server_state.tasks:
                task.cancel()
        if not self.force_exit:
            await self.lifespan.shutdown()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    async def _until_closed(self) -> None:
        """Wait for connections and requests.

        Unlike uvicorn's, not for `wait_closed`: since Python 3.12 that waits for connections even
        if the server is forced to stop, and for TLS handshakes.
        """
        state = self.server_state
        while (state.connections or state.tasks) and not self.force_exit:
            await asyncio.sleep(CLOSING_S)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals on the event loop, so that they end in exit code 0 and not in a signal."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with stop_signals_to(self.handle_exit, asyncio.get_running_loop()):
            yield

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.stop()
        if self._is_signalled:
            self._on_second_signal(sig)
        else:
            self._is_signalled = True
            self._on_signal()
