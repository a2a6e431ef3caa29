"""HTTP servers: uvicorn on a listening socket, with our way to start, to stop and to take signals.

This module and the protocols beside it rely on internals of uvicorn, so pyproject.toml pins its minor
version; tests/runtime/serving/test_uvicorn.py names each internal.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from enc.core.errors import MisuseError
from enc.runtime.serving.listening import url_of
from enc.runtime.signals import end_by_signal, stop_signals_to

GRACE_S = 10
"""Time that connections have to close when a server stops."""
TICK_S = 0.1
"""Between two calls of `on_tick`."""
CLOSING_S = 0.005
"""Between two looks at whether the last connection has closed."""
ARRIVAL_PASSES = 8
"""Passes of the event loop before the socket closes: a request that has arrived is read after five
of them at most. Without them its connection would be reset, or forgotten and left open.
"""

_log = logging.getLogger("uvicorn.error")


def server_config(
    app: Any,
    *,
    cert: Path | str | None = None,
    key: Path | str | None = None,
    field: str = "",
    **options: Any,
) -> uvicorn.Config:
    """Return uvicorn's settings: those that all our servers share, and `options`.

    Raises MisuseError, which begins with `field`, if the certificate and key cannot be used.
    """
    try:
        config = uvicorn.Config(
            app,
            interface="asgi3",
            log_config=None,
            log_level="error",  # below it uvicorn logs every connection and every malformed request
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=cert,
            ssl_keyfile=key,
            **options,
        )
        config.load()
    except (OSError, ssl.SSLError) as e:
        raise MisuseError(f"{field}the certificate and key cannot be used: {e} ({cert}, {key})") from None
    return config


class Server(uvicorn.Server):
    """Serves one socket until `stop`, or until SIGINT or SIGTERM if it runs in the main thread.

    `ready`: called once it answers. `on_signal`: called at the first signal, which stops the server
    gracefully. `on_second_signal`: called with the number of each later one; by default that ends
    the process at once. `url` is known before it runs: the port may have been 0.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: socket.socket,
        *,
        ready: Callable[[], None] = lambda: None,
        on_signal: Callable[[], None] = lambda: None,
        on_second_signal: Callable[[int], None] = end_by_signal,
    ) -> None:
        super().__init__(config)
        self.url = url_of(listening, is_tls=config.is_ssl)
        self.ready, self._on_signal, self._on_second_signal = ready, on_signal, on_second_signal
        self._socket, self._is_signalled = listening, False
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

    # For subclasses

    def each_second(self) -> None:
        """Called about once a second while it serves."""

    async def drain(self) -> None:
        """Awaited when it stops: after the socket is closed and before connections are."""

    # What uvicorn calls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

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
        for _ in range(ARRIVAL_PASSES):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        await self.drain()
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
