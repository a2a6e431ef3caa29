"""Imports: who may bring an enclave to this node, one job for each import, and its outcome.

A Migrate signed by the enclave's owner orders an import, and needs nothing else: it names this
node. The node checks it, and the operator's policy (who may create enclaves here, quotas, rates),
before it fetches anything. The same Migrate again joins the job that it started, restarts a failed
job, or returns that the import is done.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Protocol, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import (
    EncError,
    EnclaveTerminated,
    InvalidArchive,
    InvalidCommit,
    InvalidQuery,
    ReplayFailed,
    Unauthorized,
    Unavailable,
)
from enc.core.log.commit import check_expiry, manifest_version
from enc.core.machine.archive import read_archive
from enc.core.machine.archive_check import check_header, check_sth
from enc.core.machine.state import EnclaveState
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import VERSIONS, Event
from enc.node.imports.orders import ImportOrder, ImportStatus, done_status, parse_order
from enc.node.imports.replay import StagedReplay
from enc.node.imports.source_node import ImportCancelled, RemoteLog
from enc.node.limits.quota import Quota
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.import_check import ImportSignaturePool
from enc.node.store.store_interface import Store, Usage
from enc.runtime.checked_http import addresses_of
from enc.runtime.rate_limit import RateLimiter

MAX_ENDED = 256
"""Ended imports whose status is kept."""
CHUNK = 1 << 16
"""Bytes of an archive that are read at a time."""
RETRY_MS = 5000

T = TypeVar("T")
_log = structlog.get_logger("enc.import")


class ImportJob:
    """One running import."""

    def __init__(self, order: ImportOrder, held: EnclaveState | None) -> None:
        self.order, self.held = order, held
        self.id, self.enclave = order.migrate.hash, order.migrate.enclave
        self.status = ImportStatus(self.id.hex(), self.enclave.hex(), "running", 0, order.total)


class ArchiveFile(Protocol):
    """A complete archive, read from its start."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class ImportPolicy(Struct, frozen=True, kw_only=True):
    """What this node's operator allows imports to do."""

    may_create: Callable[[bytes], bool]
    rates: RateLimiter
    quota: Quota
    at_once: int
    total_bytes: int
    max_manifest: int
    private_endpoints: bool


class Importer:
    """Accepts import orders and runs each import on its own thread.

    `accept` and `status` may be called from any thread.
    """

    def __init__(
        self,
        store: Store,
        states: StateCache,
        sequencer: Sequencer,
        key: PrivateKey,
        clock: Callable[[], int],
        policy: ImportPolicy,
        cores: frozenset[int],
    ) -> None:
        self._store, self._states, self._sequencer = store, states, sequencer
        self._key, self._clock, self._policy, self._cores = key, clock, policy, cores
        self._lock = threading.Lock()
        self._jobs: dict[bytes, ImportJob] = {}
        self._ended: OrderedDict[bytes, ImportStatus] = OrderedDict()
        self._queue: deque[tuple[ImportJob, ArchiveFile | None]] = deque()
        """Jobs that have not started."""
        self._threads: set[threading.Thread] = set()
        self._stopped = threading.Event()

    # Orders

    def accept(self, line: bytes, has_archive: bool) -> ImportJob | ImportStatus:
        """Check an order and return its job, for `start`; or the status if the import is running or
        done.
        """
        allow_private = self._policy.private_endpoints
        order = parse_order(line, has_archive, self._key.public, allow_private=allow_private)
        self._policy.rates.take(order.migrate.from_)
        if (known := self._known(order)) is not None:
            return known
        if not order.is_final:
            check_expiry(order.migrate, self._clock())
        if not self._policy.may_create(order.migrate.from_):
            raise Unauthorized("this node does not create enclaves for this identity")
        if self._policy.at_once == 0:
            raise Unauthorized("this node accepts no imports")
        held = self._held(order.migrate.enclave)
        self._check_quota(order, held, 0)
        if order.source is not None:
            addresses_of(order.source, allow_private=self._policy.private_endpoints)
        job = ImportJob(order, held)
        with self._lock:
            running = self._other(job)
            if running is None and not has_archive:
                self._check_free()
        return job if running is None else running.status

    def _known(self, order: ImportOrder) -> ImportStatus | None:
        """Return the status if this Migrate is being imported or already in the log, else None."""
        migrate = order.migrate
        with self._lock:
            job = self._jobs.get(migrate.hash)
        if job is not None:
            return job.status
        event = self._store.committed(migrate.enclave, migrate.hash, migrate.exp)
        return None if event is None else done_status(event)

    def _held(self, enclave: bytes) -> EnclaveState | None:
        state = self._states.get(enclave)
        if state is not None and state.lifecycle == "terminated":
            raise EnclaveTerminated("the enclave was terminated")
        return state

    def _check_quota(self, order: ImportOrder, held: EnclaveState | None, size: int) -> None:
        """Charge everything that is new on this node to the Migrate's author; raise Unauthorized
        over a quota.
        """
        quota, used = self._policy.quota, self._store.usage(order.migrate.from_)
        events = order.total - (held.seq + 1 if held else 0)
        used = Usage(used.enclaves + (held is None), used.events + max(events, 0), used.bytes + size)
        for name in ("enclaves", "events", "bytes"):
            most = getattr(quota, name)
            if most and getattr(used, name) > most and (name != "enclaves" or held is None):
                raise Unauthorized(f"this identity has used up its quota of {name} on this node: {most}")

    def _other(self, job: ImportJob) -> ImportJob | None:
        """Return the job with the same Migrate if it runs.

        Raises Unavailable if another job imports the same enclave, or if the node is stopping.
        """
        if self._stopped.is_set():
            raise Unavailable("the node is stopping", retry_after_ms=RETRY_MS)
        if job.id not in self._jobs and any(other.enclave == job.enclave for other in self._jobs.values()):
            raise Unavailable("another import of this enclave is running", retry_after_ms=RETRY_MS)
        return self._jobs.get(job.id)

    def _check_free(self) -> None:
        """Raise Unavailable if as many imports from sources run as may.

        Queued archives do not count: an import from a source may wait behind them.
        """
        if sum(job.order.source is not None for job in self._jobs.values()) >= self._policy.at_once:
            raise Unavailable("too many imports are running on this node", retry_after_ms=RETRY_MS)

    def status(self, import_: bytes) -> ImportStatus | None:
        with self._lock:
            job = self._jobs.get(import_)
            return self._ended.get(import_) if job is None else job.status

    # Jobs

    def start(self, job: ImportJob, archive: ArchiveFile | None = None) -> ImportStatus:
        """Start a job, queue it, or join the same job; return its status. Closes `archive` when it
        ends.
        """
        with ExitStack() as undo:
            if archive is not None:
                undo.callback(archive.close)
            with self._lock:
                if (running := self._other(job)) is not None:
                    return running.status
                if archive is None:
                    self._check_free()
                self._jobs[job.id] = job
                self._queue.append((job, archive))
                self._start_queued()
                status = job.status if job.id in self._jobs else self._ended[job.id]
            undo.pop_all()
        return status

    def _start_queued(self) -> None:
        """Start queued jobs while there are free threads."""
        while self._queue and len(self._threads) < self._policy.at_once:
            job, archive = self._queue.popleft()
            thread = threading.Thread(target=self._run, args=(job, archive), name="import", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads
                if archive is not None:
                    archive.close()
                error = Unavailable("the system has no free thread for this import", retry_after_ms=RETRY_MS)
                self._record_end(job, _failed(job, error))
            else:
                self._threads.add(thread)

    def _record_end(self, job: ImportJob, ended: ImportStatus) -> None:
        del self._jobs[job.id]
        self._ended[job.id] = ended
        self._ended.move_to_end(job.id)
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def stop(self) -> None:
        """Stop all imports and discard their data. The sequencer must still run."""
        with self._lock:
            self._stopped.set()
            for _, archive in self._queue:
                if archive is not None:
                    archive.close()
            self._queue.clear()
        for thread in list(self._threads):
            thread.join()

    def _run(self, job: ImportJob, archive: ArchiveFile | None) -> None:
        began = time.perf_counter()
        _log.info("import_started", enclave=job.enclave.hex(), events=job.order.total)
        try:
            with ExitStack() as stack:
                if archive is not None:
                    stack.callback(archive.close)
                ended = done_status(self._import(job, archive))
            took = round(time.perf_counter() - began, 3)
            _log.info("import_done", enclave=job.enclave.hex(), events=job.order.total, seconds=took)
        except EncError as e:
            ended = _failed(job, e)
            _log.warning("import_failed", enclave=job.enclave.hex(), code=e.code, reason=e.message)
        except Exception as e:
            ended = _failed(job, internal_error(e, "import"))
        with self._lock:
            self._record_end(job, ended)
            self._threads.discard(threading.current_thread())
            self._start_queued()

    def _call(self, work: Callable[[], T]) -> T:
        """Run `work` on the sequencer's thread, the only one that writes, and return its result."""
        return self._sequencer.call(work).result()

    def _import(self, job: ImportJob, archive: ArchiveFile | None) -> Event:
        """Replay the log into a staging area and adopt it; return the Migrate as stored in the log."""
        held_seq = job.held.seq if job.held else -1
        staging = self._call(lambda: self._store.stage(job.enclave, held_seq))
        with ExitStack() as stack:
            stack.callback(staging.drop)
            checkers = ImportSignaturePool(self._cores, job.order.total)
            stack.callback(checkers.close)
            staged = StagedReplay(
                self._store,
                staging,
                self._key,
                job.enclave,
                job.held,
                checkers,
                write=lambda steps: self._call(lambda: staging.write(steps)),
                on_slice=lambda staged: self._after_slice(job, staged),
            )
            stack.callback(staged.close)
            if archive is not None:
                self._replay_archive(job, staged, archive)
            else:
                self._replay_source(job, staged)
            staged.finish()
            return self._call(lambda: self._adopt(job, staged))

    def _after_slice(self, job: ImportJob, staged: StagedReplay) -> None:
        """Check after each slice that the import may continue, and update its status."""
        if self._stopped.is_set():
            raise ImportCancelled("the node is stopping")
        self._check_quota(job.order, job.held, staged.staging.size)
        job.status = replace(job.status, events=staged.replay.events)

    def _with_checked_manifest(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events; raise if the first is a Manifest that this node would not accept.

        The check comes before the event is parsed further. Replay rejects any second Manifest.
        """
        most, events = self._policy.max_manifest, iter(events)
        for event in islice(events, 1):
            if event.seq == 0 and len((event.content or "").encode()) > most:
                raise ReplayFailed(0, InvalidCommit(f"content: over this node's limit for a Manifest, {most} bytes"))
            if event.seq == 0 and event.type == "Manifest" and event.content is not None:
                self._check_version(event)
            yield event
        yield from events

    def _check_version(self, manifest: Event) -> None:
        try:
            enc_v = manifest_version(manifest)
        except InvalidCommit as e:
            raise ReplayFailed(0, e) from None
        if enc_v not in VERSIONS:
            raise ReplayFailed(0, InvalidCommit(f"enc_v: this node does not host enclaves of version {enc_v}"))

    def _replay_archive(self, job: ImportJob, staged: StagedReplay, archive: ArchiveFile) -> None:
        header, events = read_archive(_chunks(archive), max_total=self._policy.total_bytes)
        migrate, before = job.order.migrate, job.order.prev_seq + 1
        if header.enclave != job.enclave:
            raise InvalidArchive("header: enclave: expected the Migrate's")
        if header.events != before and not (job.order.is_final and header.events == before + 1):
            raise InvalidArchive(f"header: events: {header.events}, but the Migrate comes after {before} events")
        staged.replay_events(self._with_checked_manifest(events))
        check_header(header, staged.replay)
        if isinstance(migrate, Event) and header.events == before:
            staged.replay_events([migrate])

    def _replay_source(self, job: ImportJob, staged: StagedReplay) -> None:
        migrate, endpoint = job.order.migrate, job.order.source
        if not isinstance(migrate, Event) or endpoint is None:
            raise InvalidQuery("source: the Migrate is not final")
        source = RemoteLog(
            endpoint,
            self._key,
            migrate.sequencer,
            job.enclave,
            migrate.seq,
            self._clock,
            self._stopped,
            max_bytes=self._policy.total_bytes,
            allow_private=self._policy.private_endpoints,
        )
        staged.replay_events(self._with_checked_manifest(source.events()))
        if source.sth is not None:
            check_sth(source.sth, staged.replay)

    def _adopt(self, job: ImportJob, staged: StagedReplay) -> Event:
        """Make the replayed log visible in one transaction; runs on the sequencer's thread.

        Nothing else writes meanwhile, so what it checks cannot change.
        """
        now, migrate = self._clock(), job.order.migrate
        if self._sequencer.is_behind(now):
            raise Unavailable("this node's clock shows less than it has shown before", retry_after_ms=RETRY_MS)
        if _position(self._held(job.enclave)) != _position(job.held):
            raise Unavailable("the enclave changed on this node during the import", retry_after_ms=RETRY_MS)
        self._check_quota(job.order, job.held, staged.staging.size)
        if isinstance(migrate, Event):
            event, state = staged.last, staged.replay.state
            if event.id != migrate.id:
                raise ReplayFailed(event.seq, InvalidArchive("the log does not end with this Migrate"))
        else:
            event, state = staged.finalize(migrate, now)
        staged.check_replacement(state)
        staged.staging.adopt(state, migrate.from_, now)
        self._sequencer.forget(job.enclave)
        self._states.put(state)
        return event


def _chunks(archive: ArchiveFile) -> Iterator[bytes]:
    while chunk := archive.read(CHUNK):
        yield chunk


def _position(state: EnclaveState | None) -> tuple[int, int] | None:
    return None if state is None else (state.seq, state.log.size)


def _failed(job: ImportJob, error: EncError) -> ImportStatus:
    what = {"code": error.code or "UNAVAILABLE", "message": error.message, **error.context}
    return replace(job.status, status="failed", error=what)
