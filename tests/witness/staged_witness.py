"""A witness on a stage: the real service in a separate thread, which polls only when a test calls `poll`.

It asks the stage's nodes, and the stage's clients may ask it: add it to `stage.others` under its
host name.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
from msgspec.json import decode, encode

from enc.client import Identity, Witness
from enc.client.wire.transport import AsyncTransport
from enc.core.primitives.types import TreeHead
from enc.core.trees.cosigning import CosignedHead, check_cosigned, parse_cosigned
from enc.core.trees.tree_head import wire_head
from enc.witness import main
from enc.witness.config import load_config
from enc.witness.ledger import HeadLedger
from tests.client.stage import URL, Stage
from tests.core.world import person

T = TypeVar("T")
PATIENCE_S = 30


class StagedWitness:
    """`view`: the node that answers the witness, if it differs from the one that answers clients."""

    def __init__(self, stage: Stage, enclave: bytes, folder: Path, name: str = "bob", **settings: Any) -> None:
        self.stage, self.enclave, self.folder = stage, enclave, folder
        self.identity, self.host = Identity(person(name)), f"{name}.witness.test"
        self.view: Any = None
        self.asker = "127.0.0.1"
        """The address from which requests come."""
        self._settings = {"enclaves": [f"{enclave.hex()}@{URL}"], "data": str(folder), **settings}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    def open(self) -> None:
        self.do(self._open)

    async def _open(self) -> None:
        config = load_config(None, self._settings)
        listed = [each.enclave for each in config.followed()]
        self.ledger = HeadLedger(config.folder, self.identity.key, self._now, listed, config.keep_heads)
        http = partial(httpx.AsyncClient, transport=httpx.MockTransport(self._answer), trust_env=False)
        with (
            patch.object(main, "AsyncTransport", lambda url, timeout, most: AsyncTransport(url, timeout, http(), most)),
            patch.object(main, "now_ms", self._now),
        ):
            self.service = main.Service(config, self.identity, self.ledger)

    def _now(self) -> int:
        return self.stage.clock.now

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.view is not None and request.url.host == httpx.URL(URL).host:
            found: httpx.Response = self.view(request)
            return found
        return self.stage.at(request.url.host)(request)

    def do(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        async def run() -> T:
            return await work(*args)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def restart(self) -> None:
        self.do(self._close)
        self.open()

    async def _close(self) -> None:
        await self.service._transport.close()
        self.ledger.close()

    def close(self) -> None:
        self.do(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def settle(self) -> None:
        """Do nothing: it is not a node."""

    # Actions

    @property
    def watch(self) -> Any:
        return self.service.watches[self.enclave]

    def poll(self, times: int = 1) -> str:
        """Poll, and return the enclave's state."""
        for _ in range(times):
            self.do(self.watch.poll)
        return str(self.watch.state)

    def submit(self, head: TreeHead, sequencer: bytes | None = None, **changes: Any) -> httpx.Response:
        wire = {"enclave": self.enclave.hex(), "sth": wire_head(head), **changes}
        if sequencer is not None:
            wire["sequencer"] = sequencer.hex()
        return self.ask("POST", "/heads", content=encode(wire))

    # What it publishes

    @property
    def witness(self) -> Witness:
        return Witness(f"http://{self.host}", self.identity.public)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer as a host on the stage."""
        request.read()
        found = self.ask(request.method, str(request.url), content=request.content)
        return httpx.Response(found.status_code, content=found.content)  # for clients that await, or block

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.do(self._ask, method, path, more)

    async def _ask(self, method: str, path: str, more: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.service.app, raise_app_exceptions=False, client=(self.asker, 123))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{self.host}") as client:
            return await client.request(method, path, **more)

    def get(self, path: str, status: int = 200) -> Any:
        found = self.ask("GET", path)
        assert found.status_code == status, found.text
        return decode(found.content) if path != "/heads" else [decode(line) for line in found.content.splitlines()]

    def cosigned(self) -> list[CosignedHead]:
        """Return everything that it shows as co-signed, each checked."""
        found = [parse_cosigned(encode(line)) for line in self.get("/heads")]
        for each in found:
            check_cosigned(each, self.identity.public, self.enclave)
        roots = {(each.head.ts, each.head.r) for each in found}
        assert len({size for size, _ in roots}) == len(roots), "two roots of one size"
        return found

    def sizes(self) -> list[int]:
        return [each.head.ts for each in self.cosigned()]

    def evidence(self) -> list[Any]:
        found: list[Any] = self.get("/evidence")["evidence"]
        return found
