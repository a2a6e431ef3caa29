"""A stage for a client and its node: the real clients, a simulated node, and a clock that advances when they sleep.

Everything that sleeps here moves the clock, so waiting takes no time and can be examined afterwards.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import httpx
import pytest
from msgspec.json import encode
from websockets.exceptions import ConnectionClosedError

from enc.client import (
    AsyncClient,
    AsyncEnclave,
    AsyncTable,
    Client,
    Distrust,
    Enclave,
    Identity,
    check_evidence,
    load_evidence,
)
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.wire.transport import AsyncTransport, Transport
from enc.testing.lying_node import LyingNode
from enc.testing.lying_socket import Socket
from tests.client.settings import with_settings
from tests.core.world import person
from tests.node.served import NODE, SMALL, Clock

HOST = "node.test"
URL = f"http://{HOST}"
TURNS, CONNECTIONS = 10_000, 200
"""Messages per connection and connections per stage that count as endless."""
WRAPPED = (AsyncClient, AsyncEnclave, AsyncTable)
Face = Literal["sync", "async"]
FACES: tuple[Face, ...] = ("sync", "async")


class Stage:
    """`node` answers now; replace it, and clients talk to the new one. `others` answer at other hosts."""

    def __init__(self, face: Face, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.face, self.clock = face, Clock()
        self.kind = Enclave if face == "sync" else AsyncEnclave
        self.node = LyingNode(self.clock, NODE)
        self.others: dict[str, LyingNode] = {}
        self.is_node_gone = False
        """Whether nothing answers at the node's address any more."""
        self.pins, self.naps = directory / "pins", list[float]()
        self.connected: list[tuple[str, dict[str, Any]]] = []
        """The WebSocket connections that were requested, and their options."""
        self._runner = asyncio.Runner()
        self._clients: list[Any] = []
        self._patch(patch)

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        time = SimpleNamespace(
            sleep=self.sleep, monotonic=lambda: self.clock.monotonic, time_ns=lambda: self.clock.now * 1_000_000
        )
        awaiting = SimpleNamespace(sleep=self._sleep_async, wait_for=asyncio.wait_for)
        handler = httpx.MockTransport(lambda request: self.at(request.url.host)(request))
        http = partial(httpx.Client, transport=handler, trust_env=False)
        http_async = partial(httpx.AsyncClient, transport=handler, trust_env=False)
        for name in ("clients.client", "clients.wiring", "subscribe.subscription"):
            patch.setattr(f"enc.client.{name}.time", time)
        patch.setattr("enc.runtime.clock.time", time)
        for name in ("clients.async_client", "subscribe.subscription"):
            patch.setattr(f"enc.client.{name}.asyncio", awaiting)
        patch.setattr("enc.client.clients.client.Transport", lambda url, timeout, _: Transport(url, timeout, http()))
        patch.setattr(
            "enc.client.clients.async_client.AsyncTransport",
            lambda url, timeout, _: AsyncTransport(url, timeout, http_async()),
        )
        patch.setattr("enc.client.subscribe.subscription.connect", self._connect)
        patch.setattr("enc.client.subscribe.subscription.connect_async", self._connect_async)

    def _connect(self, url: str, **options: Any) -> "Connection":
        self.connected.append((url, options))
        assert len(self.connected) < CONNECTIONS, "it reconnects endlessly"
        return Connection(Socket(self.at(urlsplit(url).hostname or "")))

    def at(self, host: str) -> LyingNode:
        """Return the node at this host."""
        if host == HOST and not self.is_node_gone:
            return self.node
        if host not in self.others:
            raise httpx.ConnectError(f"no node at {host}")
        return self.others[host]

    async def _connect_async(self, url: str, **options: Any) -> "AsyncConnection":
        return AsyncConnection(self._connect(url, **options))

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.clock.tick(round(seconds * 1000))
        self.settle()

    def settle(self) -> None:
        for node in (self.node, *self.others.values()):
            node.settle()

    async def _sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._runner.close()

    # People

    def client(self, name: str = "alice", **more: Any) -> Any:
        """Return a client of this kind. An async one is driven until it answers, so tests can use both alike."""
        kind = Client if self.face == "sync" else AsyncClient
        more = {"pins": self.pins, "patience": 0.0, "url": URL, **more}
        client = kind(identity=Identity(person(name)), **with_settings(more))
        self._clients.append(client if self.face == "sync" else Blocking(client, self._runner))
        return self._clients[-1]

    def create(self, **changes: Any) -> Any:
        """Return an enclave of alice's; bob writes, carol is an admin."""
        return self.client().create({**SMALL, **changes})

    def reader(self, enclave: Any) -> EnclaveReader:
        """Return the reader behind an enclave."""
        reader: EnclaveReader = (enclave if self.face == "sync" else enclave._inner)._reader
        return reader

    def close_bundle(self) -> None:
        """Let the open bundle's time pass."""
        self.clock.tick(6000)
        self.settle()

    def pin(self, enclave: Any) -> bytes:
        """Return the enclave's pin on disk."""
        return (self.pins / f"{enclave.hex}.json").read_bytes()


class Blocking:
    """An async client or enclave, driven until it answers."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner, self._runner = inner, runner

    def __getattr__(self, name: str) -> Any:
        return self._plain(getattr(self._inner, name))

    def _plain(self, found: Any) -> Any:
        if inspect.ismethod(found):
            return lambda *what, **more: self._plain(found(*what, **more))
        if inspect.iscoroutine(found):
            return self._plain(self._runner.run(found))
        if hasattr(found, "__anext__"):
            return Drained(found, self._runner)
        return Blocking(found, self._runner) if isinstance(found, WRAPPED) else found


class Drained(Blocking):
    """An async iterator, read one item at a time."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._runner.run(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


class Connection:
    """A blocking WebSocket. It is lost when the node has no more messages."""

    def __init__(self, socket: Socket) -> None:
        self._socket, self._turns = socket, 0

    def __enter__(self) -> Self:
        return self

    def send(self, text: str) -> None:
        self._socket.take(text)

    def recv(self, timeout: float | None = None) -> str:
        self._turns += 1
        assert self._turns < TURNS, "it asks endlessly"
        if not self._socket.waiting:
            raise ConnectionClosedError(None, None)
        return encode(self._socket.waiting.popleft()).decode()

    def close(self) -> None:
        self._socket.close()


class AsyncConnection:
    """The same, async."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner

    async def send(self, text: str) -> None:
        self._inner.send(text)

    async def recv(self) -> str:
        return self._inner.recv()

    async def close(self) -> None:
        self._inner.close()


def caught(stage: Stage, enclave: Any, error: type[Distrust], work: Callable[[], Any]) -> Distrust:
    """Check that the lie is detected: the right error, evidence that can be stored, and an unchanged pin.

    Items that an iterator returned before the lie are true.
    """
    before, given = stage.pin(enclave), list[Any]()
    with pytest.raises(Distrust) as found:
        drain(work(), given)
    assert stage.pin(enclave) == before
    assert type(found.value) is error, repr(found.value)
    for item in given:
        assert stage.node.store.ids(enclave.id, item.seq, 1) == [item.id]
    assert found.value.message == found.value.evidence.message
    again = load_evidence(found.value.evidence.json())
    assert check_evidence(again) == check_evidence(found.value.evidence)
    return found.value


def drain(answer: Any, into: list[Any] | None = None) -> Any:
    """Return all items of an iterator; anything else unchanged."""
    if not hasattr(answer, "__next__"):
        return answer
    given = list[Any]() if into is None else into
    given.extend(answer)
    return given
