"""Accepts TLS connections, and counts them from accept on.

asyncio's server creates a protocol for a TLS connection without its peer's address, and calls it
only after the handshake: until then a connection would count to no limit.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

from enc.core.errors import EncError
from enc.runtime.rate_limit import address_key
from enc.runtime.serving.descriptors import AcceptFailures
from enc.runtime.serving.http_protocol import HttpProtocol
from enc.runtime.serving.peers import PeerConnection, Peers

MAX_ACCEPTED = 128
"""Most connections that are accepted before others have a turn on the event loop."""
PAUSE_S = 1.0
"""Seconds after which the listener tries again, if the process has no more file descriptors."""


class TlsListener:
    """Has the methods of an `asyncio.Server` that a server uses. For the event loop's thread.

    A connection over a limit, or of a refused address, is closed without a handshake, which would
    cost more than an answer.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        peers: Peers,
        patience: float,
        make: Callable[[], HttpProtocol],
        failures: AcceptFailures,
    ) -> None:
        """`patience`: seconds for a handshake. `make`: returns the protocol for what follows."""
        self._socket, self._context, self._peers = listening, context, peers
        self._patience, self._make, self._failures = patience, make, failures
        self._loop = asyncio.get_running_loop()
        self._handshakes = set[asyncio.Task[None]]()
        self._timer: asyncio.TimerHandle | None = None
        self._is_serving = True

    def start(self, backlog: int) -> None:
        self._socket.setblocking(False)
        self._socket.listen(backlog)
        self._loop.add_reader(self._socket, self._accept)

    def is_serving(self) -> bool:
        return self._is_serving

    def close(self) -> None:
        """Stop listening, and end handshakes: no request has arrived on their connections."""
        if self._is_serving:
            self._is_serving = False
            self._loop.remove_reader(self._socket)
            for task in (self._timer, *self._handshakes):
                if task is not None:
                    task.cancel()

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED):
            try:
                accepted, name = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as e:
                self._pause(e)
                return
            self._take(accepted, name)

    def _pause(self, error: OSError) -> None:
        self._failures.log(error)
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._socket, self._accept)

    def _take(self, accepted: socket.socket, name: Any) -> None:
        peer = PeerConnection(self._peers, address_key(name[0] if isinstance(name, tuple) else ""), accepted.close)
        try:
            self._peers.add(peer)
        except EncError:
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._shake(accepted, peer))
        peer.drop = task.cancel  # until the handshake is over the event loop uses the socket
        self._handshakes.add(task)
        task.add_done_callback(lambda task: self._handshake_done(task, accepted))

    def _handshake_done(self, task: "asyncio.Task[None]", accepted: socket.socket) -> None:
        self._handshakes.discard(task)
        if task.cancelled():  # perhaps before its first step
            accepted.close()

    async def _shake(self, accepted: socket.socket, peer: PeerConnection) -> None:
        def make() -> HttpProtocol:
            protocol = self._make()
            protocol.take_peer(peer)
            return protocol

        is_made = False
        try:
            await self._loop.connect_accepted_socket(
                make, accepted, ssl=self._context, ssl_handshake_timeout=self._patience
            )
            is_made = True
        except (OSError, RuntimeError):
            pass  # no TLS, too slow, or gone
        finally:
            if not is_made:
                peer.remove()
                accepted.close()
