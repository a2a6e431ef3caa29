"""What a client uses of the world outside. Tests of apps replace it (`enc.testing`)."""

from typing import Any, Protocol

import httpx


class Network(Protocol):
    """Connections and clocks. `now`: Unix milliseconds; `monotonic` and `sleep`: seconds.

    `connect` and `async_connect` open a WebSocket with the calls of the library `websockets` that a
    subscription uses: `send`, `recv` and `close`.
    """

    def now(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    async def async_sleep(self, seconds: float) -> None: ...

    def http(self) -> httpx.Client: ...

    def async_http(self) -> httpx.AsyncClient: ...

    def connect(self, url: str) -> Any: ...

    async def async_connect(self, url: str) -> Any: ...
