"""Serves the control socket of a running node."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from enc.node.control.operations import Operations
from enc.node.control.wire import MAX_REQUEST, SOCKET
from enc.runtime.unix_sockets import unix_socket
from enc.runtime.unix_sockets.frame_server import FrameLimits, FrameServer, Peer

LIMITS = FrameLimits(connections=16, request_bytes=MAX_REQUEST, wait_s=10.0)

_log = structlog.get_logger("enc.control")


class ControlServer:
    """Create it on the event loop's thread, once the store is locked: its socket replaces one that a
    node which died has left behind.
    """

    def __init__(self, data_path: Path, operations: Operations) -> None:
        self._path, self._operations = data_path.absolute() / SOCKET, operations
        self._listening = unix_socket.listen(self._path, os.geteuid())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="control")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block runs; then wait for the operation that runs."""
        with self._listening:
            server = FrameServer(self._listening, {0, os.geteuid()}, self._answer, LIMITS, _log)
            await server.start()
            try:
                yield
            finally:
                unix_socket.remove(self._path)
                await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
                server.close()

    def _answer(self, request: bytes, peer: Peer) -> asyncio.Future[bytes]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._operations.answer, request, peer)
