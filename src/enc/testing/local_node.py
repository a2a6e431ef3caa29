"""A whole node in this process, without sockets.

with local_node() as node, node.client(Identity.new()) as client:
    notes = client.create("notes")
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from msgspec.json import encode

from enc.client import AsyncClient, Client, Identity, Registry
from enc.client.enclave.templates import template
from enc.core.errors import EnclaveExists
from enc.core.log.commit import build_manifest, wire_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from enc.node.assembly import Node
from enc.node.config import NodeConfig, RegistrySettings
from enc.node.ops import key_file
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.asgi_site import PATIENCE_S, AsgiSite
from enc.testing.connections import Deliver, Line
from enc.testing.memory_store import MemoryStore
from enc.testing.network import LocalNetwork


class LocalNode:
    """`network`: has the clock; `identity`: the node's own; `url`: valid only on this network."""

    def __init__(self, host: str, network: LocalNetwork, store: Store, folder: Path) -> None:
        self.url, self.network, self._host, self._store = f"http://{host}", network, host, store
        self.identity = Identity(key_file.load_or_create(folder / "node.key"))
        if (missing := store.clock() - network.now()) > 0:  # the node would wait for the time that its store records
            network.tick(missing)
        registry = RegistrySettings(enclave=self._registry_manifest().enclave.hex())
        self._config = NodeConfig(data=str(folder), dev=True, registry=registry)
        self._is_ready, self._stop, self._failure = threading.Event(), asyncio.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, name=f"enc-{host}", daemon=True)
        self._thread.start()
        self._is_ready.wait(PATIENCE_S)
        if self._failure:
            raise self._failure[0]
        network.sites[host] = self

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as e:
            self._failure.append(e)
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        clock = self.network
        self._node = Node(self._config, self._store, self.identity.key, now=clock.now, monotonic=clock.monotonic)
        self._site = AsgiSite(self._node.app, self._node.loop, self._config.serving_limits)
        self._node.start()
        try:
            self._is_ready.set()
            await self._stop.wait()
            await self._node.drain()
        finally:
            self._node.stop()

    def close(self) -> None:
        """Stop the node, as SIGTERM does; clients cannot reach it any more."""
        self.network.sites.pop(self._host, None)
        if self._thread.is_alive():
            self._site.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_S)
        if self._failure:
            raise self._failure[0]

    # For the network

    def handle(self, request: httpx.Request) -> httpx.Response:
        return self._site.handle(request)

    def open(self, deliver: Deliver) -> Line:
        return self._site.open(deliver)

    def settle(self) -> None:
        for _ in range(2):  # the first turn closes bundles, and the second runs after all that followed
            self._node.sequencer.call(lambda: None).result(PATIENCE_S)

    # For tests

    def client(self, identity: Identity | None = None, **options: Any) -> Client:
        """Return a client of this node. `options`: those of Client; pins are in memory."""
        return self.network.client(self.url, identity, **options)

    def async_client(self, identity: Identity | None = None, **options: Any) -> AsyncClient:
        """Return an async client of this node."""
        return self.network.async_client(self.url, identity, **options)

    def tick(self, ms: int) -> None:
        """Advance the time, and do what is due."""
        self.network.tick(ms)

    @cached_property
    def registry(self) -> Registry:
        """A registry on this node, in which the node is registered; created at the first use."""
        manifest = self._registry_manifest()
        answer = self.handle(httpx.Request("POST", self.url, content=encode(wire_commit(manifest))))
        if answer.status_code != EnclaveExists.status:  # it does in a folder that is used again
            answer.raise_for_status()
        registry = Registry(url=self.url, enclave=manifest.enclave, seq_pub=self.identity.public)
        self.register(registry)
        return registry

    def _registry_manifest(self) -> Commit:
        content = compact_json(template("registry", self.identity.public))
        return build_manifest(self.identity.key, content, self.network.now() + 60_000)

    def register(self, registry: Registry) -> None:
        """Register this node in a registry, also of another node."""
        with self.client(self.identity, registry=registry) as client:
            client.register_node([self.url])


@contextmanager
def local_node(
    host: str = "node.test", *, network: LocalNetwork | None = None, folder: Path | None = None
) -> Iterator[LocalNode]:
    """Run a node inside the block. `network`: that of other nodes; `folder`: keeps the node's key, and
    its store in SQLite, else it is in memory.

    A second node with the same folder, once the first is closed, is the same node: the clock
    continues at least at the time that the store has recorded.
    """
    with ExitStack() as stack:
        store: Store = MemoryStore()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            store = SqliteStore(folder / "enc.db")
            stack.callback(store.close)
        data = folder or Path(stack.enter_context(TemporaryDirectory()))
        node = LocalNode(host, network or LocalNetwork(), store, data)
        stack.callback(node.close)
        yield node
