"""A network without sockets: nodes of this process by host name, one clock, and clients of them."""

from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from msgspec.structs import replace

from enc.client import AsyncClient, Client, ClientSettings, Identity
from enc.testing.clock import Clock
from enc.testing.connections import AsyncConnection, Connection, Deliver, Line


class Site(Protocol):
    """A node, as the network sees it."""

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        ...

    def open(self, deliver: Deliver) -> Line:
        """Open a WebSocket."""
        ...

    def settle(self) -> None:
        """Do everything that is due by the clock."""
        ...


class LocalNetwork:
    """`sites`: the nodes by host name. Remove one, and clients cannot reach it any more.

    Clients that wait between two tries advance the clock instead of sleeping.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.sites: dict[str, Site] = {}

    def tick(self, ms: int) -> None:
        """Advance the time of nodes and clients, and let the nodes do what is due: close bundles,
        erase contents.
        """
        self.clock.tick(ms)
        for site in list(self.sites.values()):
            site.settle()

    # Clients

    def client(self, url: str | None, identity: Identity | None = None, **options: Any) -> Client:
        """Return a client on this network. `options`: those of Client; pins are in memory. `url`: None if
        `registry` is among the options.
        """
        return Client(url, identity, **self._options(options))

    def async_client(self, url: str | None, identity: Identity | None = None, **options: Any) -> AsyncClient:
        """Return an async client on this network."""
        return AsyncClient(url, identity, **self._options(options))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        settings = options.pop("settings", ClientSettings())
        return {"pins": None, **options, "settings": replace(settings, network=self)}

    # What clients use: enc.client.wire.network.Network

    def now(self) -> int:
        return self.clock.now

    def monotonic(self) -> float:
        return self.clock.monotonic

    def sleep(self, seconds: float) -> None:
        self.tick(max(round(seconds * 1000), 1))

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def http(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._handle), trust_env=False)

    def async_http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._handle), trust_env=False)

    def connect(self, url: str) -> Connection:
        return Connection(self._site(url).open)

    async def async_connect(self, url: str) -> AsyncConnection:
        return AsyncConnection(self._site(url).open)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        return self._site(str(request.url)).handle(request)

    def _site(self, url: str) -> Site:
        host = urlsplit(url).hostname or ""
        if host not in self.sites:
            raise httpx.ConnectError(f"no node at {host}") if url.startswith("http") else OSError(f"no node at {host}")
        return self.sites[host]
