"""A node that lies on request, on a network without sockets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from msgspec.json import encode

from enc.client import AsyncClient, Client, Identity
from enc.core.primitives.signing import PrivateKey
from enc.testing.connections import Deliver
from enc.testing.lying_node import Alter, LyingNode
from enc.testing.lying_socket import Socket
from enc.testing.network import LocalNetwork

T = TypeVar("T")


class Liar:
    """`node`: the node itself, for other lies. It tells the truth until `lie` is called."""

    def __init__(self, host: str, network: LocalNetwork, key: PrivateKey) -> None:
        self.url, self.network = f"http://{host}", network
        self.node = LyingNode(network.clock, key)
        self._lines: list[_Line] = []
        network.sites[host] = self

    def lie(self, kind: str, alter: Alter) -> None:
        """Alter answers of one kind before the node seals them: `info`, `sth`, `consistency`,
        `Receipt` of a commit, `commits` (many in one request), `Event` of a subscription, or the type
        of a sealed request: `Query`, `Pull`, `Inclusion_Proof`, `Bundle_Proof`, `State_Proof`,
        `State_Batch`, `Checkpoint`, `Export`, `Deliveries`. MisuseError lists all kinds if this one is
        unknown.

        `alter` gets the honest answer, or the error, as wire JSON. It alters it in place, returns
        another one, or raises an error, which the node then answers.
        """
        self.node.lie(kind, alter)

    def be_honest(self) -> None:
        """End all lies."""
        self.node.be_honest()

    def client(self, identity: Identity | None = None, **options: Any) -> Client:
        """Return a client of this node. `options`: those of Client; pins are in memory."""
        return self.network.client(self.url, identity, **options)

    def async_client(self, identity: Identity | None = None, **options: Any) -> AsyncClient:
        """Return an async client of this node."""
        return self.network.async_client(self.url, identity, **options)

    # For the network

    def handle(self, request: httpx.Request) -> httpx.Response:
        return self._then_flush(lambda: self.node(request))

    def open(self, deliver: Deliver) -> "_Line":
        self._lines.append(_Line(self, deliver))
        return self._lines[-1]

    def settle(self) -> None:
        self._then_flush(self.node.settle)

    def _then_flush(self, work: Callable[[], T]) -> T:
        done = work()
        for line in self._lines:
            line.flush()
        return done


class _Line:
    """A WebSocket whose messages are passed on at once."""

    def __init__(self, liar: Liar, deliver: Deliver) -> None:
        self._socket, self._deliver = Socket(liar.node), deliver

    def send(self, text: str) -> None:
        self._socket.take(text)
        self.flush()

    def flush(self) -> None:
        while self._socket.waiting:
            self._deliver(encode(self._socket.waiting.popleft()).decode())

    def close(self) -> None:
        self._socket.close()


@contextmanager
def lying_node(host: str = "liar.test", *, network: LocalNetwork | None = None) -> Iterator[Liar]:
    """Run a node that lies on request inside the block."""
    liar = Liar(host, network or LocalNetwork(), Identity.new().private_key())
    try:
        yield liar
    finally:
        liar.network.sites.pop(host, None)
