"""Wires the parts of one node together; no other module does.

socket -> api.http, api.websocket -> intake -> admission -> sequencer -> store
                |                                               |           |
                +-> sealed handlers <- state cache <------------+-> hub     +-> sender's process -> endpoints
                                                                     |                |
                                                                subscribers      push supervisor -> sequencer
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache
from urllib.parse import urlsplit

import structlog
from msgspec import structs
from msgspec.json import encode
from starlette.types import Receive, Scope, Send

from enc.core.errors import Unavailable
from enc.core.primitives.signer import Signer
from enc.node.api.admin_api import AdminApi
from enc.node.api.bulk_commits import BulkCommits
from enc.node.api.http_api import HttpApi, with_cors
from enc.node.api.imports import ImportApi
from enc.node.api.read_pool import ReadPool
from enc.node.api.readiness_checks import PROBE_S, ReadinessChecks
from enc.node.api.registry import RegistryApi
from enc.node.api.restriction_orders import RestrictionOrders
from enc.node.api.status_pages import StatusPages
from enc.node.api.subscriptions import SubscriptionHub
from enc.node.api.warm_copies import WarmCopyApi
from enc.node.api.websocket import WebSocketApi, WebSocketLimits
from enc.node.config import NodeConfig
from enc.node.control.operations import Operations
from enc.node.evacuation.control import EvacuationControl
from enc.node.evacuation.copy_orders import CopyOrders
from enc.node.evacuation.notice_log import NoticeLog
from enc.node.evacuation.owner_notices import OwnerNotices
from enc.node.evacuation.report import Report
from enc.node.evacuation.statement import EvacuationStatement
from enc.node.imports.context import ImportContext, ImportPolicy
from enc.node.imports.fetches import Fetches
from enc.node.imports.jobs import Importer
from enc.node.imports.source_calls import SourceCalls
from enc.node.imports.uploads import UploadLimits, Uploads, unnamed_file
from enc.node.imports.warm_copies import WarmCopies, WarmCopyLimits
from enc.node.limits.disk_space import DiskSpace, file_size, read_disk
from enc.node.limits.quota import StorageRules
from enc.node.limits.restrictions import AddressRates, Restrictions
from enc.node.openapi.document import document
from enc.node.ops.metrics import CachedReading, Metrics
from enc.node.ops.readiness import Readiness
from enc.node.ops.request_log import RequestLog
from enc.node.ops.retention import RetentionSweeper
from enc.node.ops.withholding import WithholdingOrders
from enc.node.push.batches import BatchRetention, PushBatcher
from enc.node.push.supervisor import PushSupervisor
from enc.node.read.request_handlers import SealedHandlers
from enc.node.sequence.admission import Admission, CommitValidator
from enc.node.sequence.checkpoint import Checkpoint
from enc.node.sequence.commit_intake import CommitIntake, CommitReplies
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.pool import SignaturePool
from enc.node.store.push_interface import BatchLimits, PushResult
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.steps import Step
from enc.node.store.store_interface import Store
from enc.runtime.clock import boot_s, now_ms
from enc.runtime.rate_limit import RateLimiter
from enc.runtime.serving.peers import Peers

READERS = 2
"""Threads that answer sealed requests."""
ENFORCE_S = 30.0
DAY_MS = 86_400_000
TOTALS_S = 5.0
"""Seconds for which `/metrics` reuses the totals of push queues: counting visits all of them."""

_log = structlog.get_logger("enc.node")


@cache
def _document() -> bytes:
    return encode(document())


async def _openapi() -> tuple[int, str, bytes]:
    return 200, "application/json", _document()


class Node:
    """A store, a key, and everything between them and a socket. Create it on the event loop's
    thread.
    """

    def __init__(
        self,
        config: NodeConfig,
        store: Store,
        key: Signer,
        signatures: SignaturePool | None = None,
        sender_cores: Iterable[int] | None = None,
        cores: frozenset[int] | None = None,
        *,
        now: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = boot_s,
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
        self.restored = store.restored()
        """Why this node signs nothing; empty if it signs."""
        self.metrics = Metrics()
        self.operations = Operations()
        """What commands of the operator can ask this node for."""
        self._allowed = frozenset(config.admission.allow)
        self.statement = EvacuationStatement(config.data_path / "evacuation.json", key, self._now)
        self.states = StateCache(store)
        self.restrictions = Restrictions(store.restrictions.read_all(), self._now)
        self._peers: Peers | None = None
        shares = config.shares_by_address
        replies = CommitReplies(self.loop, config.limits.waiting_commits, self.metrics.count_results, by_address=shares)
        self.hub = SubscriptionHub(config.limits.subscriptions, by_address=shares)
        self.retention_sweeper = RetentionSweeper(
            store, config.retention.purge_after_s * 1000, int(config.retention.sweep_interval_s * 1000)
        )
        self.push_batcher = self._push_batcher()
        folder = config.data_path
        self.disk = DiskSpace(lambda: read_disk(folder), monotonic, store.reusable)
        self._storage = StorageRules(disk=self.disk)
        self._set_storage_rules(config)
        self.sequencer = self._sequencer(replies)
        self._rates = identities, addresses = self._rate_limiters()
        self.signatures = signatures or SignaturePool(0)
        self.admission = Admission(self._validator(identities), self.sequencer, replies.reject, self.signatures)
        self.intake = CommitIntake(self.loop, self.admission, replies)
        self._build_apis(identities, addresses)
        self.push_supervisor = None
        if sender_cores is not None and not self.restored:
            self.push_supervisor = PushSupervisor(config, key, self._has_due, self._store_results, sender_cores)
        RestrictionOrders(
            self.restrictions, store, self.sequencer, self._now, self._enforce, self.retention_sweeper.hurry
        ).add_to(self.operations)
        withholding = WithholdingOrders(store, key, self._now, self.sequencer.wait_for, self.sequencer.check_signs)
        withholding.add_to(self.operations)
        self._add_gauges()

    def _sequencer(self, replies: CommitReplies) -> Sequencer:
        return Sequencer(
            self.store,
            self.key,
            self._now,
            deliver=replies.deliver,
            publish=self._publish,
            observe_write=self.metrics.observe_write,
            maintain=self._maintain,
            states=self.states,
            settings=SequencerSettings(
                seal_idle=self.config.sequencing.seal_idle,
                max_batch=self.config.sequencing.max_batch,
                storage=self._storage,
                restrictions=self.restrictions,
                is_read_only=bool(self.restored),
            ),
            monotonic=self._monotonic,
        )

    def _rate_limiters(self) -> tuple[RateLimiter, RateLimiter]:
        """Return the limiter for identities and the one for addresses."""
        rates = self.config.effective_rates
        identities = RateLimiter(rates.identity_per_s, rates.identity_burst, self._monotonic)
        bans = self.restrictions.bans
        return identities, AddressRates(bans, rates.address_per_s, rates.address_burst, self._monotonic)

    def _validator(self, identities: RateLimiter) -> CommitValidator:
        return CommitValidator(
            self.states,
            self.store,
            self._now,
            identities,
            limits=self.config.limits.commit_limits(),
            max_manifest=self.config.limits.manifest,
            may_create=self._may_create,
            is_clock_wrong=self.sequencer.is_clock_wrong,
            private_endpoints=self.config.private_endpoints,
            restrictions=self.restrictions,
        )

    def _push_batcher(self) -> PushBatcher:
        push = self.config.push
        limits = BatchLimits(events=push.batch_events, bytes=push.batch_bytes)
        keeping = BatchRetention(
            delivered=int(push.delivered_days * DAY_MS),
            dead=int(push.dead_days * DAY_MS),
            unconfirmed=int(push.unconfirmed_days * DAY_MS),
        )
        return PushBatcher(self.store, int(push.interval_s * 1000), limits, keeping)

    def _build_apis(self, identities: RateLimiter, addresses: RateLimiter) -> None:
        """Build the HTTP and WebSocket APIs."""
        limits = self.config.limits
        handlers = SealedHandlers(
            self.states,
            self.store,
            self.key,
            self._now,
            identities,
            self._checkpoint,
            max_page=limits.page_bytes,
            restrictions=self.restrictions,
            may_copy=self.statement.may_copy,
        )
        self.executor = ThreadPoolExecutor(READERS, thread_name_prefix="answers")
        reads = ReadPool(handlers, self.executor, identities, addresses)
        checks = ReadinessChecks(
            self.intake,
            self.admission,
            self.sequencer,
            self._now,
            self.config.data_path,
            self.disk,
            self.restored,
        )
        readiness = Readiness(checks.all())
        self.pages = StatusPages(self.config, self.key.public, readiness, self.metrics, self.statement, self.restored)
        pages = {"/info": self.pages.info, "/health": self.pages.health, "/openapi.json": _openapi}
        if self.config.admin.public_metrics:
            pages["/metrics"] = self.pages.public_prometheus
        admin_pages = {
            "/health/live": self.pages.live,
            "/health/ready": self.pages.health,
            "/metrics": self.pages.prometheus,
        }
        self.admin_app = AdminApi(admin_pages)
        self.registry = RegistryApi(self.store, handlers, self.key.public, self.config.registry.id)
        taking, folder = self.config.imports, self.config.data_path
        self.importer = self._importer(identities)
        bounds = UploadLimits(
            max_count=taking.uploads,
            per_address=taking.uploads_per_address,
            total_bytes=taking.uploads_bytes,
            min_bytes_per_s=taking.upload_bytes_per_s,
            grace_s=taking.upload_grace_s,
        )
        self.uploads = Uploads(bounds, self.disk, self._monotonic, lambda: unnamed_file(folder))
        self.calls = SourceCalls(taking.uploads, allow_private=self.config.private_endpoints)
        context = self.importer.context
        self.warm_copies = WarmCopies(context, self.uploads, self.calls, self._warm_copy_limits, self._monotonic)
        most = taking.total_bytes
        self.fetches = Fetches(self.importer, self.uploads, self.calls, self.key, self._now, most, self.warm_copies)
        self.copy_orders = self._evacuation()
        imports = ImportApi(self.importer, reads, self.uploads, self.fetches, limits.body, taking.archive_bytes)
        bulk = BulkCommits(self.intake, addresses, identities, limits.body, limits.commits_per_request)
        routes = [*self.registry.routes(reads), *imports.routes(), *bulk.routes()]
        routes += WarmCopyApi(self.warm_copies, context, limits.body).routes()
        self.requests = RequestLog(
            self.metrics, self._monotonic, is_logged=self.config.access_log, takes_ids=bool(self.config.proxy.trusted)
        )
        self.http = HttpApi(self.intake, reads, addresses, limits.body, pages, self.requests, routes)
        ws_limits = WebSocketLimits(
            max_subscriptions=limits.subscriptions_per_connection,
            max_buffer=limits.subscriber_buffer_bytes,
            max_websockets=limits.websockets,
            by_address=self.config.shares_by_address,
        )
        self.ws = WebSocketApi(self.intake, reads, self.hub, addresses, ws_limits, self.key.public, self.requests)
        self.app = with_cors(self._app, self.config.cors.origins)

    def _evacuation(self) -> CopyOrders:
        """Return what orders copies of this node's enclaves; add the operator's commands."""
        private, statement = self.config.private_endpoints, self.statement
        orders = CopyOrders(statement, self.store, self.key, self.calls, self._now, allow_private=private)
        report, url = Report(self.store, self.key.public, orders), self.config.public_url
        control = EvacuationControl(statement, orders, report, url, restored=self.restored, allow_private=private)
        control.add_to(self.operations)
        log = NoticeLog(self.config.data_path / "evacuation-notices.jsonl")
        OwnerNotices(statement, log, self.store, self.key, restored=self.restored).add_to(self.operations)
        return orders

    def _warm_copy_limits(self) -> WarmCopyLimits:
        taking = self.config.imports
        return WarmCopyLimits(
            nodes=frozenset(map(bytes.fromhex, taking.ahead_from)),
            enclaves=taking.ahead_enclaves,
            bytes=taking.ahead_bytes,
            log_bytes=taking.total_bytes,
        )

    def _importer(self, identities: RateLimiter) -> Importer:
        taking, limits = self.config.imports, self.config.limits
        policy = ImportPolicy(
            may_create=self._may_create,
            rates=identities,
            rules=self._storage,
            at_once=taking.at_once,
            total_bytes=taking.total_bytes,
            max_ratio=taking.max_ratio,
            limits=limits.commit_limits(),
            max_manifest=limits.manifest,
            private_endpoints=self.config.private_endpoints,
            restrictions=self.restrictions,
        )
        context = ImportContext(
            store=self.store,
            states=self.states,
            sequencer=self.sequencer,
            key=self.key,
            clock=self._now,
            policy=policy,
            cores=self._cores,
        )
        return Importer(context)

    def _add_gauges(self) -> None:
        totals = CachedReading(self.store.totals, TOTALS_S, self._monotonic)
        largest = CachedReading(self.store.largest_size, TOTALS_S, self._monotonic)
        gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("enc_waiting_commits", "Commits accepted and not durable yet", lambda: self.intake.waiting),
            ("enc_subscriptions", "Live subscriptions", lambda: self.hub.count),
            ("enc_websockets", "Open WebSockets", lambda: len(self.ws.connections)),
            ("enc_enclaves", "Enclaves on this node", self.store.count),
            ("enc_largest_enclave_bytes", "Events and tree nodes of the largest enclave", largest),
            ("enc_enclaves_in_memory", "Enclaves whose state is in memory", lambda: len(self.states)),
            ("enc_restored", "1: the store is a copy, and the node signs nothing", lambda: bool(self.restored)),
            ("enc_push_queues", "Queues of endpoints", lambda: totals().queues),
            ("enc_push_waiting_batches", "Batches that wait to be delivered", lambda: totals().waiting),
            ("enc_push_dead_batches", "Dead letters that are kept", lambda: totals().dead),
            (
                "enc_push_unconfirmed_queues",
                "Queues that wait until their endpoint is confirmed",
                lambda: totals().unconfirmed,
            ),
            ("enc_push_oldest_seconds", "Age of the oldest batch that waits", lambda: self._age_s(totals().oldest)),
        )
        for name, meaning, read in (*gauges, *self._machine_gauges()):
            self.metrics.gauge(name, meaning, read)
        self._add_counts()

    def _machine_gauges(self) -> Iterator[tuple[str, str, Callable[[], float]]]:
        """Yield gauges of the node's disk and clock, and whether it is ready."""
        store, folder = self.config.store_path, self.config.data_path
        set_at = self._now() / 1000 - self._monotonic()
        yield "enc_ready", "1: a commit would succeed", lambda: not self.pages.readiness.codes
        yield "enc_database_bytes", "Size of the database file", lambda: file_size(store)
        yield "enc_wal_bytes", "Size of the write-ahead log", lambda: file_size(store.with_name(f"{store.name}-wal"))
        yield "enc_free_bytes", "Free bytes of the data directory's disk", lambda: read_disk(folder).free
        yield "enc_disk_low", "1: the node rejects what grows, because its disk is low", lambda: self.disk.is_low
        yield "enc_keep_free_bytes", "Free bytes below which the node rejects what grows", lambda: self.disk.bound
        yield "enc_reusable_bytes", "Free bytes inside the database file", self.store.reusable
        yield (
            "enc_clock_offset_seconds",
            "By how much the clock was set since the start",
            lambda: self._now() / 1000 - self._monotonic() - set_at,
        )
        yield (
            "enc_clock_behind_seconds",
            "How far the clock is behind the recorded time",
            lambda: self.sequencer.behind_ms(self._now()) / 1000,
        )

    def _add_counts(self) -> None:
        """Add what the parts of the node count themselves."""
        metrics, supervisor, copies = self.metrics, self.push_supervisor, self.warm_copies
        metrics.by_label(
            "enc_not_ready", "1 for each reason", "code", lambda: dict.fromkeys(self.pages.readiness.codes, 1)
        )
        metrics.by_label("enc_imports_open", "Imports that have not ended", "state", self.importer.open)
        metrics.by_label("enc_warm_copies", "Warm copies of other nodes' enclaves", "status", lambda: copies.counts)
        metrics.gauge("enc_warm_copy_bytes", "Bytes of warm copies", lambda: copies.stored_bytes)
        metrics.by_label("enc_imports", "Imports that ended", "outcome", lambda: self.importer.ended, is_counter=True)
        metrics.counter(
            "enc_signature_workers_failed",
            "Processes that check signatures and were replaced",
            lambda: self.signatures.failures,
        )
        metrics.counter(
            "enc_push_senders_failed",
            "Processes that send and were replaced",
            lambda: 0 if supervisor is None else supervisor.failures,
        )

    def watch(self, peers: Peers) -> None:
        """Refuse banned addresses on the public listener, and add the metrics of its connections. Behind a
        proxy, whose address all connections have, requests are refused instead.
        """
        if not self.config.proxy.trusted:
            self._peers, peers.admit = peers, self.restrictions.bans.check_address
        self.metrics.gauge("enc_connections", "Open connections", lambda: peers.count)
        self.metrics.counter("enc_connections_dropped", "Peers dropped", lambda: peers.dropped)
        self.metrics.by_label(
            "enc_connections_refused", "Connections refused", "limit", lambda: peers.refused, is_counter=True
        )

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.ws if scope["type"] == "websocket" else self.http)(scope, receive, send)

    # Callbacks between the parts

    def _maintain(self, now: int) -> None:
        self.disk.run_if_due()
        self.retention_sweeper.run_if_due(now)
        if not self.restored:  # the first node may have made other batches with the same numbers
            self.push_batcher.run_if_due(now)

    def _has_due(self) -> bool:
        return bool(self.store.due(self._now(), 1))

    def _store_results(self, results: Sequence[PushResult]) -> None:
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

    def _enforce(self) -> None:
        """End the subscriptions and connections that the operator forbids. From another thread than the
        event loop's; returns when they have ended.
        """
        done: Future[None] = Future()

        def work() -> None:
            end_reason, is_banned = self.restrictions.end_reason, self.restrictions.bans.is_address_banned
            self.hub.close_where(lambda each: end_reason(each.enclave, each.access.identity))
            self.ws.refuse_where(is_banned)
            if self._peers is not None:
                self._peers.close_where(is_banned)
            done.set_result(None)

        self.loop.call_soon_threadsafe(work)
        try:
            done.result(ENFORCE_S)
        except FutureTimeout:
            raise Unavailable("the order is stored; ending open connections takes longer than usual") from None

    def _checkpoint(self, enclave: bytes, hold_ms: int, request: SpentRequest) -> Checkpoint:
        if not self.config.shares_by_address:
            request = structs.replace(request, address=None)
        return self.sequencer.wait_for(lambda: self.sequencer.checkpoint(enclave, hold_ms, request), PROBE_S)

    def apply(self, config: NodeConfig) -> None:
        """Put the settings into force that can change while the node runs. For the event loop's thread."""
        self.config, self.pages.config, self._allowed = config, config, frozenset(config.admission.allow)
        rates = config.effective_rates
        self._set_storage_rules(config)
        identities, addresses = self._rates
        identities.set_rate(rates.identity_per_s, rates.identity_burst)
        addresses.set_rate(rates.address_per_s, rates.address_burst)
        self.requests.is_logged = config.access_log

    def _set_storage_rules(self, config: NodeConfig) -> None:
        admission, quota, enclaves = config.admission, self._storage.quota, self._storage.enclave_quota
        quota.enclaves, quota.events, quota.bytes = admission.max_enclaves, admission.max_events, admission.max_bytes
        enclaves.events, enclaves.bytes = admission.max_events_per_enclave, admission.max_bytes_per_enclave
        self.disk.setting = config.limits.disk_keep_free_bytes
        self.disk.update()

    # Start and stop

    def start(self) -> None:
        if self.restored:
            _log.error("restored", reason=self.restored, todo="enc node adopt")
        self.disk.run_if_due()
        self.retention_sweeper.run_if_due(self._now())
        self.sequencer.start()
        self.admission.start()
        if self.push_supervisor is not None:
            self.push_supervisor.start()
        self._expiry = self.loop.create_task(self._expire())
        self._ordering = self.loop.create_task(self.copy_orders.run())

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.expire()

    def expire(self) -> None:
        """Close expired subscriptions and slow uploads."""
        self.hub.expire(self._now() // 1000)
        self.uploads.drop_slow()
        self.warm_copies.sweep()

    async def drain(self) -> None:
        """Answer what was accepted, and tell subscribers that it is over."""
        self.intake.is_closed = True
        self.ws.shut_down()
        await self.intake.drained()
        await self.ws.ended()

    def stop(self) -> None:
        """Stop the threads; everything is on disk."""
        self._expiry.cancel()
        self._ordering.cancel()
        self.warm_copies.stop()
        self.fetches.stop()
        self.importer.stop()
        self.admission.stop()
        if self.push_supervisor is not None:
            self.push_supervisor.close()  # its last results go through the sequencer
        self.sequencer.stop()
        self.executor.shutdown(cancel_futures=True)

    def _age_s(self, made_at: int | None) -> float:
        return 0.0 if made_at is None else max(self._now() - made_at, 0) / 1000
