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

import structlog
import uvloop
from msgspec.json import encode

from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import PrivateKey
from enc.runtime.keys import signer_wire as wire
from enc.runtime.signals import stop_signals_to
from enc.runtime.unix_sockets import unix_socket
from enc.runtime.unix_sockets.frame_server import FrameLimits, FrameServer

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
        address = path if passed is None else listening.getsockname()
        line = {"ready": True, "socket": str(address), "public": key.public.hex()}
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
    stopped = asyncio.Event()
    limits = FrameLimits(connections=MAX_CONNECTIONS, request_bytes=wire.MAX_REQUEST)
    server = FrameServer(listening, users, lambda request, peer: wire.answer(key, request), limits, _log)
    await server.start()
    with stop_signals_to(lambda *_: stopped.set(), asyncio.get_running_loop()):
        ready()
        await stopped.wait()
    server.close()
