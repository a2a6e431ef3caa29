"""A process that holds a private key and signs for others behind a Unix socket.

The kernel names the user of each connection; the process closes connections of users that are not
allowed. Allowed users can have any digest signed, but cannot take the key.
"""

import asyncio
import ctypes
import os
import resource
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import cast

import structlog
import uvloop
from msgspec.json import encode

from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import PrivateKey
from enc.runtime.keys import signer_wire as wire
from enc.runtime.keys import unix_socket
from enc.runtime.signals import stop_signals_to

MAX_CONNECTIONS = 64
_PR_SET_DUMPABLE = 4

_log = structlog.get_logger("enc.signer")


def protect_memory() -> None:
    """Let no other process of the same user read this one's memory, and write no core dump."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def run(path: Path, user: str | None, load_key: Callable[[], PrivateKey]) -> None:
    """Sign for a user behind a socket at `path`, or behind the one that systemd passes, until a
    signal. `user`: by name or number; None for the user of this process, who may always connect.

    Prints one line when it is ready.
    """
    protect_memory()
    owner = os.geteuid() if user is None else unix_socket.uid_of(user)
    key, passed = load_key(), unix_socket.passed()
    listening = unix_socket.listen(path, owner) if passed is None else passed

    def ready() -> None:
        line = {"ready": True, "socket": str(listening.getsockname()), "public": key.public.hex()}
        sys.stdout.write(encode(line).decode() + "\n")
        sys.stdout.flush()

    with listening:
        serve(listening, key, {owner, os.geteuid()}, ready)
    if passed is None:
        unix_socket.remove(path)


def serve(listening: socket.socket, key: Signer, users: Collection[int], ready: Callable[[], None]) -> None:
    """Answer requests until SIGTERM or SIGINT. `users`: the numbers of those who may connect."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(listening, key, users, ready))


async def _serve(listening: socket.socket, key: Signer, users: Collection[int], ready: Callable[[], None]) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    peers: set[_Peer] = set()
    server = await loop.create_unix_server(lambda: _Peer(key, users, peers), sock=listening)
    with stop_signals_to(lambda *_: stopped.set(), loop):
        ready()
        await stopped.wait()
    server.close()
    for peer in list(peers):
        peer.close()


class _Peer(asyncio.Protocol):
    """A connection. Each request is answered before the next one is read."""

    def __init__(self, key: Signer, users: Collection[int], peers: "set[_Peer]") -> None:
        self._key, self._users, self._peers = key, users, peers
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        pid, uid = unix_socket.peer_of(transport.get_extra_info("socket"))
        if uid not in self._users:
            _log.error("connection_refused", pid=pid, uid=uid, reason="this user may not use the signer")
            transport.abort()
        elif len(self._peers) >= MAX_CONNECTIONS:
            _log.error("connection_refused", pid=pid, uid=uid, reason=f"there are {MAX_CONNECTIONS} connections")
            transport.abort()
        else:
            self._peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers.discard(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= wire.LENGTH.size:
            length = wire.LENGTH.unpack_from(self._data)[0]
            if not 1 <= length <= wire.MAX_REQUEST:
                _log.error("connection_closed", reason="not a request of the signer's protocol")
                self._transport.abort()
                return
            end = wire.LENGTH.size + length
            if len(self._data) < end:
                return
            request = bytes(self._data[wire.LENGTH.size : end])
            del self._data[:end]
            self._transport.write(wire.answer(self._key, request))

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()
