"""A receiver in its own process, under uvicorn, which a test can kill.

    python -m tests.client.receiving '{"state": …, "secret": …, "url": …, "nodes": {…}, "trouble": …}'

Its handler writes each event into the table `seen`. It prints its port when it listens, and exits when
its standard input closes. `trouble` defines its failures, by the number of the push or the event.
"""

import asyncio
import os
import signal
import socket
import sys
import threading
from typing import Any

import msgspec
import uvicorn

from enc.client import Identity, PushReceiver, ReceiverSettings
from enc.client.receive.inbox_file import Db
from enc.client.registry.registry_client import parse_registry
from enc.core.primitives.types import Event
from enc.runtime.backoff import RetryPauses

SCHEMA = "CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, enclave TEXT, seq INTEGER, id TEXT)"


class Orders(msgspec.Struct):
    state: str
    secret: str
    url: str
    nodes: dict[str, str]
    registry: str = ""
    """Empty: none."""
    port: int = 0
    group: int = 1
    die_in_event: int = 0
    """Die while this event is delivered, after it was written and before the commit."""
    die_after_event: int = 0
    """Die when this event is committed."""
    die_before_answer: int = 0
    """Die when this push, or the next accepted one, is on disk, before the answer."""
    tell_at: int = 0
    """Print a line after this many delivered events, over all restarts."""
    fail_every: int = 0
    """Answer every n-th push with 500, before it is processed;"""
    lose_every: int = 0
    """or after it was processed;"""
    hang_every: int = 0
    """or never, until the sender gives up. Each is recorded beside the state file."""


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Handler:
    def __init__(self, orders: Orders) -> None:
        self._orders, self._events = orders, 0

    def __call__(self, event: Event, db: Db) -> None:
        if self._events and self._events == self._orders.die_after_event:
            die()
        self._events += 1
        row = (event.enclave.hex(), event.seq, event.id.hex())
        if db.execute("INSERT INTO seen (enclave, seq, id) VALUES (?, ?, ?)", row).lastrowid == self._orders.tell_at:
            say("there")
        if self._events == self._orders.die_in_event:
            die()


class Troubled:
    """The receiver's app with failures."""

    def __init__(self, app: Any, orders: Orders) -> None:
        self._app, self._orders, self._pushes = app, orders, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._pushes += 1
        if self._is("hang"):
            while (await receive())["type"] != "http.disconnect":
                pass
        elif self._is("fail"):
            await self._fail(send)
        else:
            await self._take(scope, receive, send)

    def _is(self, trouble: str) -> bool:
        every: int = getattr(self._orders, f"{trouble}_every")
        if not every or self._pushes % every:
            return False
        with open(f"{self._orders.state}.troubles", "a") as file:
            file.write(f"{trouble}\n")
        return True

    async def _take(self, scope: Any, receive: Any, send: Any) -> None:
        answer = list[Any]()

        async def keep(message: Any) -> None:
            answer.append(message)

        await self._app(scope, receive, keep)
        if 0 < self._orders.die_before_answer <= self._pushes:
            die()
        if self._is("lose"):
            await self._fail(send)
            return
        for message in answer:
            await send(message)

    async def _fail(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def follow() -> None:
    """Exit when the parent process does."""
    os.read(0, 1)
    die()


def main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    threading.Thread(target=follow, daemon=True).start()
    nodes: dict[bytes | str, str] = {bytes.fromhex(key): url for key, url in orders.nodes.items()}
    receiver = PushReceiver(
        Identity.from_secret(orders.secret),
        orders.url,
        nodes,
        orders.state,
        Handler(orders),
        schema=SCHEMA,
        registry=parse_registry(orders.registry) if orders.registry else None,
        settings=ReceiverSettings(
            group=orders.group, pins=orders.state + ".pins", retries=RetryPauses(first_s=0.05, max_s=0.5)
        ),
    )
    with socket.create_server(("127.0.0.1", orders.port)) as listening:
        config = uvicorn.Config(Troubled(receiver.app, orders), lifespan="on", log_level="warning")
        server = uvicorn.Server(config)
        say(listening.getsockname()[1])
        asyncio.run(server.serve(sockets=[listening]))


if __name__ == "__main__":
    main()
