"""Runs one witness: polls each enclave, and serves the results."""

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator
from secrets import SystemRandom
from typing import TypeVar

import structlog
from msgspec.json import encode

from enc.client.clients.wiring import Setup
from enc.client.keys.identity import Identity
from enc.client.verify.pins import Pin
from enc.client.wire.flow import Flow, run_async
from enc.client.wire.transport import AsyncTransport
from enc.runtime.clock import now_ms
from enc.runtime.rate_limit import RateLimiter
from enc.runtime.service_manager import ServiceManager
from enc.runtime.serving.descriptors import raise_file_limit
from enc.runtime.serving.server import Server
from enc.runtime.serving.server_config import server_config
from enc.runtime.serving.sites import SiteRules
from enc.witness.api import WitnessApi
from enc.witness.config import FollowedEnclave, WitnessConfig
from enc.witness.ledger import HeadLedger
from enc.witness.watcher import Watch

T = TypeVar("T")

MAX_ANSWER = 16 << 20
"""Bytes of a node's answer: a page of events is the largest."""
AT_ONCE = 16
"""Enclaves polled at the same time."""
SUBMITTED_PER_S, SUBMITTED_BURST, MAX_ADDRESSES = 5.0, 50, 4096
"""How many heads one address may submit: each makes the witness ask a node."""
TOO_MANY = "too many heads were submitted from this address"
JITTER = 0.2

_log = structlog.get_logger("enc.witness")


class Service:
    """The watches and the API. Create and close it on the event loop's thread."""

    def __init__(self, config: WitnessConfig, identity: Identity, ledger: HeadLedger) -> None:
        followed, registry = config.followed(), config.known_registry()
        nodes = list(dict.fromkeys([*config.nodes, *(each.node for each in followed if each.node)]))
        first = None if registry else nodes[0]
        self._interval, self._gate = config.interval_s, asyncio.Semaphore(AT_ONCE)
        self._transport = AsyncTransport(first, config.timeout_s, most=MAX_ANSWER)
        self._setup = Setup(first, identity, None, ledger, 0, nodes=nodes, registry=registry)
        self.watches = {each.enclave: self._watch(each, ledger) for each in followed}
        rates = RateLimiter(SUBMITTED_PER_S, SUBMITTED_BURST, time.monotonic, MAX_ADDRESSES, TOO_MANY)
        by_address = config.connections_per_address > 0
        self.app = WitnessApi(identity.public, ledger, self.watches, rates, config.interval_s, by_address=by_address)

    def _watch(self, followed: FollowedEnclave, ledger: HeadLedger) -> Watch:
        if followed.sequencer is not None and ledger.load(followed.enclave) is None:
            ledger.store(followed.enclave, Pin(followed.sequencer, None))
        return Watch(self._setup.reader(followed.enclave, followed.node), ledger, self._run, now_ms)

    async def _run(self, flow: Flow[T]) -> T:
        return await run_async(flow, self._transport.send, asyncio.sleep)

    async def _follow(self, watch: Watch) -> None:
        while True:
            async with self._gate:
                try:
                    await watch.poll()
                except Exception as e:  # a failure of one enclave must not stop the others
                    _log.error("unexpected", enclave=watch.enclave.hex(), error=type(e).__name__)
            await asyncio.sleep(self._interval * SystemRandom().uniform(1 - JITTER, 1 + JITTER))

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Poll each enclave repeatedly while the block runs."""
        tasks = [asyncio.create_task(self._follow(watch)) for watch in self.watches.values()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._transport.close()


async def _serve(config: WitnessConfig, identity: Identity, ledger: HeadLedger, listening: socket.socket) -> None:
    service = Service(config, identity, ledger)
    settings = server_config(service.app, limits=config.limits, lifespan="off")

    def ready() -> None:
        key = identity.public.hex()
        sys.stdout.write(encode({"ready": True, "url": server.url, "witness": key}).decode() + "\n")
        sys.stdout.flush()
        _log.info("ready", url=server.url, witness=key)

    sites, manager = SiteRules(hosts=config.hosts), ServiceManager.take()
    server = Server(settings, listening, sites=sites, ready=ready, manager=manager)
    async with service.following():
        await server.run_until_stopped()


def run(config: WitnessConfig, identity: Identity, listening: socket.socket) -> int:
    """Run a witness until a signal stops it; return the exit code."""
    raise_file_limit(config.limits.connections)
    followed = [each.enclave for each in config.followed()]
    ledger = HeadLedger(config.folder, identity.key, now_ms, followed, config.keep_heads)
    try:
        asyncio.run(_serve(config, identity, ledger, listening))
    finally:
        ledger.close()
    _log.info("stopped")
    return 0
