"""Wires the parts of one node together; no other module does.

socket -> api_http, api_ws -> intake -> admission -> sequencer -> store
                |                                     |           |
                +-> answers <- states <---------------+-> hub     +-> sender's process -> endpoints
                                                           |                |
                                                      subscribers      senders -> sequencer
"""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from itertools import islice
from urllib.parse import urlsplit

import structlog
import uvloop
from msgspec.json import encode
from starlette.types import Receive, Scope, Send

from enc.core.errors import EncError, MisuseError, Unavailable
from enc.core.machine.state import EnclaveState
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import VERSIONS, Receipt
from enc.node.api.http import HttpApi, ReadPool, with_cors
from enc.node.api.imports import ImportApi
from enc.node.api.registry import RegistryApi
from enc.node.api.subscriptions import SubscriptionHub
from enc.node.api.websocket import WebSocketApi, WebSocketLimits
from enc.node.config import Config
from enc.node.http.server import NodeServer
from enc.node.imports.jobs import Importer, ImportPolicy
from enc.node.imports.uploads import UploadLimits, Uploads
from enc.node.limits.quota import Quota
from enc.node.openapi.document import document
from enc.node.ops import key_file
from enc.node.ops.metrics import CachedReading, Metrics
from enc.node.ops.registration import Announcer
from enc.node.ops.retention import RetentionSweeper
from enc.node.push.batches import BatchRetention, PushBatcher
from enc.node.push.supervisor import PushSupervisor
from enc.node.read.sealed_requests import SealedHandlers
from enc.node.sequence.admission import Admission, CommitValidator
from enc.node.sequence.checkpoint import Checkpoint
from enc.node.sequence.commit_intake import CommitIntake, CommitReplies
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.pool import SignaturePool
from enc.node.store.protocol import Store
from enc.node.store.push_protocol import BatchLimits, DeliveryResult
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from enc.runtime.checked_http import authorities
from enc.runtime.clock import now_ms
from enc.runtime.logs import setup_logs
from enc.runtime.rate_limit import RateLimiter
from enc.runtime.signals import end_on_next_signal
from enc.version import __version__

PROBE_S = 5
"""Seconds that the sequencer has for a write, in a health check or a checkpoint."""
READERS = 2
"""Threads that answer sealed requests."""
SAMPLE = 16
"""Enclaves that are checked at the start."""
DAY_MS = 86_400_000
TOTALS_S = 5.0
"""Seconds for which `/metrics` reuses the totals of push queues: counting visits all of them."""
GC_THRESHOLD = (10_000, 20, 20)
"""A batch makes thousands of objects that live for milliseconds, so the collector runs less often
than by default.
"""

_log = structlog.get_logger("enc.node")


class StatusPages:
    """The pages about the node itself: /info, /health and /metrics."""

    def __init__(self, config: Config, seq_pub: bytes, sequencer: Sequencer, metrics: Metrics) -> None:
        self._config, self._seq_pub, self._sequencer, self._metrics = config, seq_pub, sequencer, metrics
        self._probe: asyncio.Task[str | None] | None = None
        """The last health check."""
        self._probe_until = 0.0
        """Loop time until which its result is reused."""

    async def info(self) -> tuple[int, str, bytes]:
        limits = self._config.limits
        info = {
            "seq_pub": self._seq_pub.hex(),
            "software": {"name": "enc", "version": __version__},
            "enc_v": VERSIONS,
            "url": self._config.public_url or None,
            "create": self._config.admission.create,
            "imports": {
                "at_once": self._config.imports.at_once,
                "archive_bytes": self._config.imports.archive_bytes,
                "total_bytes": self._config.imports.total_bytes,
            },
            "registry": self._config.registry.enclave or None,
            "limits": {
                "content": limits.content,
                "manifest": limits.manifest,
                "body": limits.body,
                "type": limits.type,
                "tags": limits.tags,
                "tag_strings": limits.tag_strings,
                "tag_string": limits.tag_string,
                "page_bytes": limits.page_bytes,
                "subscriptions_per_connection": limits.subscriptions_per_connection,
            },
        }
        return 200, "application/json", encode(info)

    async def health(self) -> tuple[int, str, bytes]:
        """Report whether a write reaches the disk through the sequencer; tries at most once a
        second.
        """
        loop = asyncio.get_running_loop()
        if self._probe is None or (self._probe.done() and loop.time() >= self._probe_until):
            self._probe = loop.create_task(self._try_write())
            self._probe_until = loop.time() + 1
        reason = await asyncio.shield(self._probe)
        if reason is None:
            return 200, "application/json", encode({"status": "ok"})
        return 503, "application/json", encode({"status": "failing", "reason": reason})

    async def _try_write(self) -> str | None:
        """Write through the sequencer; return the reason if that fails, else None."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._sequencer.call(self._sequencer.probe)), PROBE_S)
        except EncError as e:
            return e.message
        except TimeoutError:
            return "the sequencer did not answer in time"
        return None

    async def prometheus(self) -> tuple[int, str, bytes]:
        return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics.text()


async def _openapi() -> tuple[int, str, bytes]:
    return 200, "application/json", encode(document())


class Node:
    """A store, a key, and everything between them and a socket. Create it on the event loop's
    thread.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        key: PrivateKey,
        signatures: SignaturePool | None = None,
        sender_cores: Iterable[int] | None = None,
        cores: frozenset[int] | None = None,
        *,
        now: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sender_cores`: cores for the sender's process, empty for any; None: nothing is sent.

        A sender opens the store file that the configuration names. `cores`: those that an import
        may use, by default those of this process. `now` and `monotonic`: the clocks, in Unix
        milliseconds and in seconds.
        """
        self.config, self.store, self.key = config, store, key
        self._now, self._monotonic = now or now_ms, monotonic  # `now_ms` is looked up here since tests replace it
        self._cores = frozenset(os.sched_getaffinity(0)) if cores is None else cores
        self.loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self._allowed = frozenset(config.admission.allow)
        self.states = StateCache(store)
        replies = CommitReplies(self.loop, self.metrics.count_results)
        self.hub = SubscriptionHub(store, config.limits.subscriptions)
        self.retention_sweeper = RetentionSweeper(
            store, config.retention.purge_after_s * 1000, int(config.retention.sweep_interval_s * 1000)
        )
        self.push_batcher = self._push_batcher()
        self._quota = Quota(config.admission.max_enclaves, config.admission.max_events, config.admission.max_bytes)
        self.sequencer = Sequencer(
            store,
            key,
            self._now,
            deliver=replies.deliver,
            publish=self._publish,
            observe_write=self.metrics.observe_write,
            maintain=self._maintain,
            states=self.states,
            settings=SequencerSettings(
                seal_idle=config.sequencing.seal_idle, max_batch=config.sequencing.max_batch, quota=self._quota
            ),
        )
        identities, addresses = self._rate_limiters()
        pool = signatures or SignaturePool(0)
        self.admission = Admission(self._validator(identities), self.sequencer, replies.reject, pool)
        self.intake = CommitIntake(self.loop, self.admission, replies, config.limits.waiting_commits)
        self._build_apis(identities, addresses)
        self.push_supervisor = None
        if sender_cores is not None:
            self.push_supervisor = PushSupervisor(config, key, self._has_due, self._store_results, sender_cores)
        self._add_gauges()

    def _rate_limiters(self) -> tuple[RateLimiter, RateLimiter]:
        """Return the limiter for identities and the one for addresses."""
        rates = self.config.effective_rates
        identities = RateLimiter(rates.identity_per_s, rates.identity_burst, self._monotonic)
        return identities, RateLimiter(rates.address_per_s, rates.address_burst, self._monotonic)

    def _validator(self, identities: RateLimiter) -> CommitValidator:
        return CommitValidator(
            self.states,
            self.store,
            self._now,
            identities,
            limits=self.config.limits.commit_limits(),
            max_manifest=self.config.limits.manifest,
            may_create=self._may_create,
            is_behind=self.sequencer.is_behind,
            private_endpoints=self.config.private_endpoints,
        )

    def _push_batcher(self) -> PushBatcher:
        push = self.config.push
        limits = BatchLimits(events=push.batch_events, bytes=push.batch_bytes)
        keeping = BatchRetention(int(push.delivered_days * DAY_MS), int(push.dead_days * DAY_MS))
        return PushBatcher(self.store, int(push.interval_s * 1000), limits, keeping)

    def _build_apis(self, identities: RateLimiter, addresses: RateLimiter) -> None:
        """Build the HTTP and WebSocket APIs."""
        limits = self.config.limits
        handlers = SealedHandlers(
            self.states, self.store, self.key, self._now, identities, self._checkpoint, max_page=limits.page_bytes
        )
        self.executor = ThreadPoolExecutor(READERS, thread_name_prefix="answers")
        reads = ReadPool(handlers, self.executor)
        self.pages = StatusPages(self.config, self.key.public, self.sequencer, self.metrics)
        pages = {
            "/info": self.pages.info,
            "/health": self.pages.health,
            "/metrics": self.pages.prometheus,
            "/openapi.json": _openapi,
        }
        self.registry = RegistryApi(self.store, handlers, self.key.public, self.config.registry.id)
        self.importer = self._importer(identities)
        taking = self.config.imports
        bounds = UploadLimits(
            max_count=taking.uploads,
            per_address=taking.uploads_per_address,
            total_bytes=taking.uploads_bytes,
            min_bytes_per_s=taking.upload_bytes_per_s,
            grace_s=taking.upload_grace_s,
        )
        self.uploads = Uploads(bounds, self._monotonic)
        folder = self.config.data_path
        imports = ImportApi(self.importer, reads, self.uploads, limits.body, taking.archive_bytes, folder)
        routes = [*self.registry.routes(reads), *imports.routes()]
        self.http = HttpApi(self.intake, reads, addresses, limits.body, pages, self.metrics.count_response, routes)
        ws_limits = WebSocketLimits(
            max_subscriptions=limits.subscriptions_per_connection,
            max_buffer=limits.subscriber_buffer_bytes,
            max_websockets=limits.websockets,
        )
        self.ws = WebSocketApi(self.intake, reads, self.hub, addresses, ws_limits, self.key.public)
        self.app = with_cors(self._app, self.config.cors.origins)

    def _importer(self, identities: RateLimiter) -> Importer:
        policy = ImportPolicy(
            may_create=self._may_create,
            rates=identities,
            quota=self._quota,
            at_once=self.config.imports.at_once,
            total_bytes=self.config.imports.total_bytes,
            max_manifest=self.config.limits.manifest,
            private_endpoints=self.config.private_endpoints,
        )
        return Importer(self.store, self.states, self.sequencer, self.key, self._now, policy, self._cores)

    def _add_gauges(self) -> None:
        totals = CachedReading(self.store.totals, TOTALS_S, self._monotonic)
        gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("enc_waiting_commits", "Commits accepted and not durable yet", lambda: self.intake.waiting),
            ("enc_subscriptions", "Live subscriptions", lambda: self.hub.count),
            ("enc_websockets", "Open WebSockets", lambda: len(self.ws.connections)),
            ("enc_enclaves", "Enclaves on this node", self.store.count),
            ("enc_enclaves_in_memory", "Enclaves whose state is in memory", lambda: len(self.states)),
            ("enc_push_queues", "Queues of endpoints", lambda: totals().queues),
            ("enc_push_waiting_batches", "Batches that wait to be delivered", lambda: totals().waiting),
            ("enc_push_dead_batches", "Dead letters that are kept", lambda: totals().dead),
            ("enc_push_oldest_seconds", "Age of the oldest batch that waits", lambda: self._age_s(totals().oldest)),
        )
        for name, meaning, read in gauges:
            self.metrics.gauge(name, meaning, read)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.ws if scope["type"] == "websocket" else self.http)(scope, receive, send)

    # Callbacks between the parts

    def _maintain(self, now: int) -> None:
        self.retention_sweeper.run_if_due(now)
        self.push_batcher.run_if_due(now)

    def _has_due(self) -> bool:
        return bool(self.store.due(self._now(), 1))

    def _store_results(self, results: Sequence[DeliveryResult]) -> None:
        """Store results durably, and log the batches that died."""
        died = self.sequencer.call(lambda: self.store.record_results(results)).result()
        self.metrics.count_deliveries(results)
        for one in died:
            host = urlsplit(one.url).hostname or ""  # only the host: the rest of the URL may be a secret
            _log.error("batch_dead", identity=one.identity.hex(), host=host, push_seq=one.push_seq, reason=one.error)

    def _may_create(self, identity: bytes) -> bool:
        create = self.config.admission.create
        return create == "open" or (create == "allowlist" and identity.hex() in self._allowed)

    def _publish(self, steps: Sequence[Step]) -> None:
        if self.hub.count:
            self.loop.call_soon_threadsafe(self.hub.publish, steps)

    def _checkpoint(self, enclave: bytes, hold_ms: int) -> Checkpoint:
        future = self.sequencer.call(lambda: self.sequencer.checkpoint(enclave, hold_ms))
        try:
            return future.result(PROBE_S)
        except FutureTimeout:
            future.cancel()  # the caller would not know that the enclave is held
            raise Unavailable("the sequencer did not answer in time", retry_after_ms=1000) from None

    # Start and stop

    def start(self) -> None:
        self.retention_sweeper.run_if_due(self._now())
        self.sequencer.start()
        self.admission.start()
        if self.push_supervisor is not None:
            self.push_supervisor.start()
        self._expiry = self.loop.create_task(self._expire())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.expire()

    def expire(self) -> None:
        """Close expired subscriptions and slow uploads."""
        self.hub.expire(self._now() // 1000)
        self.uploads.drop_slow()

    async def drain(self) -> None:
        """Answer what was accepted, and tell subscribers that it is over."""
        self.intake.is_closed = True
        self.ws.shut_down()
        await self.intake.drained()
        await self.ws.ended()

    def stop(self) -> None:
        """Stop the threads; everything is on disk."""
        self._expiry.cancel()
        self.importer.stop()
        self.admission.stop()
        if self.push_supervisor is not None:
            self.push_supervisor.close()  # its last results go through the sequencer
        self.sequencer.stop()
        self.executor.shutdown(cancel_futures=True)

    def _age_s(self, made_at: int | None) -> float:
        return 0.0 if made_at is None else max(self._now() - made_at, 0) / 1000


async def _serve(
    config: Config,
    store: Store,
    key: PrivateKey,
    signatures: SignaturePool,
    sender_cores: set[int],
    cores: frozenset[int] | None = None,
) -> None:
    node, announcer = Node(config, store, key, signatures, sender_cores, cores), _announcer(config, key)

    def ready(url: str) -> None:
        line = {"ready": True, "url": url, "seq_pub": key.public.hex()}
        sys.stdout.write(encode(line).decode() + "\n")
        sys.stdout.flush()
        _log.info("ready", url=url, seq_pub=key.public.hex())
        if announcer is not None:
            announcer.start()

    server = NodeServer(node.app, config, node.drain, ready, node.http.quick)
    gc.freeze()  # existing objects stay, so the collector need not visit them
    gc.set_threshold(*GC_THRESHOLD)
    node.start()
    try:
        await server.run_until_stopped()
    finally:
        if announcer is not None:
            announcer.stop()
        end_on_next_signal()  # the event loop has removed its own handlers
        node.stop()


def _assign_cores(config: Config) -> tuple[SignaturePool, set[int]]:
    """Start the processes that check signatures, and keep this one's threads, which share an interpreter, together.

    Returns the signature pool and the cores that are left to other processes; empty: all of them.
    """
    cores = sorted(os.sched_getaffinity(0))
    if not config.sequencing.one_core or len(cores) == 1:
        return SignaturePool(config.sequencing.verify_processes), set()
    own = cores[os.getpid() % len(cores)]
    others = set(cores) - {own}
    signatures = SignaturePool(config.sequencing.verify_processes, others)
    os.sched_setaffinity(0, {own})
    return signatures, others


def _signers(store: Store, state: EnclaveState) -> set[bytes]:
    """Return the log's sequencer and the one of its last event: they differ if the log moved away."""
    return {state.sequencer, *(event.sequencer for event in store.events(state.enclave, state.seq, 1))}


def check_key(store: Store, key: PrivateKey) -> None:
    """Log an error if no enclave here belongs to this key: it may be another node's key."""
    states = [state for enclave in islice(store.enclaves(), SAMPLE) if (state := store.load(enclave)) is not None]
    if states and not any(key.public in _signers(store, state) for state in states):
        _log.error("key_of_no_enclave", seq_pub=key.public.hex(), sequencer=states[0].sequencer.hex())


def _announcer(config: Config, key: PrivateKey) -> Announcer | None:
    """Return the announcer if the node registers itself in a registry.

    The client is imported on the thread that uses it.
    """
    where, endpoints = config.registry.announce_to, config.registry.endpoints or (config.public_url,)
    if not where:
        return None
    if not all(endpoints):
        raise MisuseError(
            "registry.announce_to: set registry.endpoints or public_url, so that others can reach the node"
        )
    url, _, rest = where.partition("#")
    id_, _, seq_pub = rest.partition(":")

    def register() -> Receipt | None:
        from enc.client import Client, Identity, Registry

        registry = Registry(url=url, enclave=bytes.fromhex(id_), seq_pub=bytes.fromhex(seq_pub) or None)
        pins = config.data_path / "pins"
        with Client(identity=Identity(key), registry=registry, pins=pins, patience=0) as client:
            return client.register_node(endpoints)

    return Announcer(register, endpoints)


def _check_registry(store: Store, config: Config) -> None:
    """Raise MisuseError if the enclave that lookups are served from is not a registry. It may be
    created later.
    """
    state = store.load(config.registry.id) if config.registry.id else None
    if state is not None and not state.policy.registry:
        raise MisuseError(f"registry: {config.registry.enclave}: the enclave is not a registry")


def run(config: Config) -> int:
    """Run a node until it is stopped; return its exit code."""
    setup_logs(config.log_level, config.log_format)
    authorities(config.push.ca_file, "push.ca_file")  # fail now: the sender reads the file later, in another process
    try:
        config.data_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise MisuseError(f"data: {config.data}: {e.strerror}") from None
    if config.store_path.exists() and not os.path.lexists(config.key_path):
        raise MisuseError(f"key file {config.key_path}: is missing, but {config.store_path} exists and needs its key")
    os.umask(0o077)  # only the node may read what it stores, whatever the directory allows
    key = key_file.load_or_create(config.key_path)
    with ExitStack() as stack:
        store = SqliteStore(config.store_path)
        stack.callback(store.close)
        check_key(store, key)
        _check_registry(store, config)
        cores = frozenset(os.sched_getaffinity(0))
        signatures, sender_cores = _assign_cores(config)
        stack.callback(signatures.close)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, store, key, signatures, sender_cores, cores))
    _log.info("stopped")
    return 0
