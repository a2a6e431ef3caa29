"""Imports: who may bring an enclave here, one job for each, and what became of it.

A Migrate signed by the enclave's owner orders an import, and is all that one needs: it names this node. It is checked,
with what this node's operator decides (who may found enclaves here, quotas, rates), before anything is fetched. The
same Migrate again joins the job that it started, starts a failed one anew, or hears that it is done.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, Protocol, TypeVar

import structlog
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.json import Decoder
from msgspec.structs import replace

from enc.core.archive import check_header, check_sth, read_archive
from enc.core.commit import check_author, check_expiry, manifest_version, parse_commit, version_of
from enc.core.content import parse_migrate
from enc.core.enclave import EnclaveState
from enc.core.encoding import decode_json
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
from enc.core.event import check_sequenced, parse_event
from enc.core.receipt import build_receipt, wire_receipt
from enc.core.signing import PrivateKey
from enc.core.types import VERSIONS, Commit, Event
from enc.node.checkers import ImportSignaturePool
from enc.node.dialing import resolve
from enc.node.directory import StateCache
from enc.node.endpoints import Endpoint, parse_endpoint
from enc.node.migration import Intake
from enc.node.quota import Quota
from enc.node.sequencer import Sequencer, internal_error
from enc.node.source import Cancelled, Source
from enc.node.store.base import Store, Usage
from enc.runtime.rate_limit import RateLimiter

MAX_KEPT = 256
"""Imports that have ended and are still told of."""
CHUNK = 1 << 16
"""Bytes of an archive that are read at once."""
RETRY_MS = 5000

T = TypeVar("T")
_log = structlog.get_logger("enc.import")


class _Wire(Struct, forbid_unknown_fields=True):
    migrate: Raw
    source: str | UnsetType = UNSET


class _Kind(Struct):
    seq_sig: str | UnsetType = UNSET


_wire, _kind = Decoder(_Wire), Decoder(_Kind)


class Order(Struct, frozen=True):
    """What an import was asked with: the Migrate, and where the log is, if it does not come along."""

    migrate: Commit
    prev_seq: int
    source: Endpoint | None = None

    @property
    def is_final(self) -> bool:
        """The node before has finalised the Migrate: a peaceful move."""
        return isinstance(self.migrate, Event)

    @property
    def total(self) -> int:
        return self.prev_seq + 2


class Status(Struct, frozen=True, omit_defaults=True):
    """What is told of an import."""

    import_: str
    enclave: str
    status: str
    events: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET
    receipt: dict[str, Any] | UnsetType = UNSET

    def to_wire(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__[1:]}
        return {"import": self.import_, **{name: value for name, value in fields.items() if value is not UNSET}}


class Job:
    """One import under way."""

    def __init__(self, order: Order, held: EnclaveState | None) -> None:
        self.order, self.held = order, held
        self.id, self.enclave = order.migrate.hash, order.migrate.enclave
        self.status = Status(self.id.hex(), self.enclave.hex(), "running", 0, order.total)


class Archive(Protocol):
    """A log that has come: bytes, from its start."""

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Permits(Struct, frozen=True, kw_only=True):
    """What this node's operator decides."""

    may_create: Callable[[bytes], bool]
    rates: RateLimiter
    quota: Quota
    at_once: int
    total_bytes: int
    max_manifest: int
    private_endpoints: bool


class Importer:
    """`accept` and `status` from any thread; each import runs on a thread of its own."""

    def __init__(
        self,
        store: Store,
        states: StateCache,
        sequencer: Sequencer,
        key: PrivateKey,
        clock: Callable[[], int],
        permits: Permits,
        cores: frozenset[int],
    ) -> None:
        self._store, self._states, self._sequencer = store, states, sequencer
        self._key, self._clock, self._permits, self._cores = key, clock, permits, cores
        self._lock = threading.Lock()
        self._jobs: dict[bytes, Job] = {}
        self._ended: OrderedDict[bytes, Status] = OrderedDict()
        self._line: deque[tuple[Job, Archive | None]] = deque()
        """Jobs that have not begun."""
        self._threads: set[threading.Thread] = set()
        self._stopped = threading.Event()

    # Orders

    def accept(self, line: bytes, has_archive: bool) -> Job | Status:
        """The job that the order starts, once it is given to `start`; or how it stands already."""
        order = self._read(line, has_archive)
        self._permits.rates.take(order.migrate.from_)
        if (known := self._known(order)) is not None:
            return known
        if not order.is_final:
            check_expiry(order.migrate, self._clock())
        if not self._permits.may_create(order.migrate.from_):
            raise Unauthorized("this node does not create enclaves for this identity")
        if self._permits.at_once == 0:
            raise Unauthorized("this node takes no imports")
        held = self._held(order.migrate.enclave)
        self._check_quota(order, held, 0)
        if order.source is not None:
            resolve(order.source, allow_private=self._permits.private_endpoints)
        job = Job(order, held)
        with self._lock:
            running = self._other(job)
            if running is None and not has_archive:
                self._check_free()
        return job if running is None else running.status

    def _read(self, line: bytes, has_archive: bool) -> Order:
        """The order, whose Migrate proves itself."""
        wire = decode_json(line, _wire, InvalidQuery)
        is_final = decode_json(bytes(wire.migrate), _kind, InvalidQuery).seq_sig is not UNSET
        commit = parse_event(bytes(wire.migrate)) if is_final else parse_commit(bytes(wire.migrate))
        if commit.type != "Migrate":
            raise InvalidCommit("migrate: expected a Migrate")
        migrate = parse_migrate(commit)
        if migrate.new_sequencer != self._key.public:
            raise InvalidCommit("migrate: new_sequencer: another node than this one")
        _check_signed(commit)
        if (wire.source is not UNSET) == has_archive:
            raise InvalidQuery("expected a source, or an archive after the first line")
        if wire.source is UNSET:
            return Order(commit, migrate.prev_seq)
        if not is_final:
            raise InvalidQuery("source: the node there must have finalised the Migrate; bring an archive otherwise")
        source = parse_endpoint(wire.source, allow_private=self._permits.private_endpoints)
        return Order(commit, migrate.prev_seq, source)

    def _known(self, order: Order) -> Status | None:
        """How the import of this Migrate stands, unless it is to be begun."""
        migrate = order.migrate
        with self._lock:
            job = self._jobs.get(migrate.hash)
        if job is not None:
            return job.status
        event = self._store.committed(migrate.enclave, migrate.hash, migrate.exp)
        return None if event is None else _done(event)

    def _held(self, enclave: bytes) -> EnclaveState | None:
        state = self._states.get(enclave)
        if state is not None and state.lifecycle == "terminated":
            raise EnclaveTerminated("the enclave was terminated")
        return state

    def _check_quota(self, order: Order, held: EnclaveState | None, size: int) -> None:
        """All that is new here counts as the Migrate's author's."""
        quota, used = self._permits.quota, self._store.usage(order.migrate.from_)
        events = order.total - (held.seq + 1 if held else 0)
        used = Usage(used.enclaves + (held is None), used.events + max(events, 0), used.bytes + size)
        for name in ("enclaves", "events", "bytes"):
            most = getattr(quota, name)
            if most and getattr(used, name) > most and (name != "enclaves" or held is None):
                raise Unauthorized(f"this identity's quota of {name} on this node is used up: {most}")

    def _other(self, job: Job) -> Job | None:
        """The same job, if it is under way. One of the same enclave must not be."""
        if self._stopped.is_set():
            raise Unavailable("the node stops", retry_after_ms=RETRY_MS)
        if job.id not in self._jobs and any(other.enclave == job.enclave for other in self._jobs.values()):
            raise Unavailable("another import of this enclave is under way", retry_after_ms=RETRY_MS)
        return self._jobs.get(job.id)

    def _check_free(self) -> None:
        """Archives that are here and wait keep no source out: it waits behind them. Only sources do."""
        if sum(job.order.source is not None for job in self._jobs.values()) >= self._permits.at_once:
            raise Unavailable("as many imports as this node takes are under way", retry_after_ms=RETRY_MS)

    def status(self, import_: bytes) -> Status | None:
        with self._lock:
            job = self._jobs.get(import_)
            return self._ended.get(import_) if job is None else job.status

    # Jobs

    def start(self, job: Job, archive: Archive | None = None) -> Status:
        """Begin, or wait for its turn, or join the same job. `archive` is closed at the end."""
        with ExitStack() as undo:
            if archive is not None:
                undo.callback(archive.close)
            with self._lock:
                if (running := self._other(job)) is not None:
                    return running.status
                if archive is None:
                    self._check_free()
                self._jobs[job.id] = job
                self._line.append((job, archive))
                self._begin()
                status = job.status if job.id in self._jobs else self._ended[job.id]
            undo.pop_all()
        return status

    def _begin(self) -> None:
        """Those whose turn it is, as many as may run."""
        while self._line and len(self._threads) < self._permits.at_once:
            job, archive = self._line.popleft()
            thread = threading.Thread(target=self._run, args=(job, archive), name="import", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads
                if archive is not None:
                    archive.close()
                self._end(job, _failed(job, Unavailable("no thread is left for it", retry_after_ms=RETRY_MS)))
            else:
                self._threads.add(thread)

    def _end(self, job: Job, ended: Status) -> None:
        del self._jobs[job.id]
        self._ended[job.id] = ended
        self._ended.move_to_end(job.id)
        while len(self._ended) > MAX_KEPT:
            self._ended.popitem(last=False)

    def stop(self) -> None:
        """End what is under way; nothing of it is kept. The sequencer must still run."""
        with self._lock:
            self._stopped.set()
            for _, archive in self._line:
                if archive is not None:
                    archive.close()
            self._line.clear()
        for thread in list(self._threads):
            thread.join()

    def _run(self, job: Job, archive: Archive | None) -> None:
        began = time.perf_counter()
        _log.info("import_started", enclave=job.enclave.hex(), events=job.order.total)
        try:
            with ExitStack() as stack:
                if archive is not None:
                    stack.callback(archive.close)
                ended = _done(self._import(job, archive))
            took = round(time.perf_counter() - began, 3)
            _log.info("import_done", enclave=job.enclave.hex(), events=job.order.total, seconds=took)
        except EncError as e:
            ended = _failed(job, e)
            _log.warning("import_failed", enclave=job.enclave.hex(), code=e.code, reason=e.message)
        except Exception as e:
            ended = _failed(job, internal_error(e, "import"))
        with self._lock:
            self._end(job, ended)
            self._threads.discard(threading.current_thread())
            self._begin()

    def _call(self, work: Callable[[], T]) -> T:
        """On the sequencer's thread, the only one that writes."""
        return self._sequencer.call(work).result()

    def _import(self, job: Job, archive: Archive | None) -> Event:
        """The Migrate as it stands in the log that is this node's now."""
        held_seq = job.held.seq if job.held else -1
        staging = self._call(lambda: self._store.stage(job.enclave, held_seq))
        with ExitStack() as stack:
            stack.callback(staging.drop)
            checkers = ImportSignaturePool(self._cores, job.order.total)
            stack.callback(checkers.close)
            intake = Intake(
                self._store,
                staging,
                self._key,
                job.enclave,
                job.held,
                checkers,
                write=lambda steps: self._call(lambda: staging.write(steps)),
                notice=lambda intake: self._notice(job, intake),
            )
            stack.callback(intake.close)
            if archive is not None:
                self._take_archive(job, intake, archive)
            else:
                self._take_source(job, intake)
            intake.finish()
            return self._call(lambda: self._adopt(job, intake))

    def _notice(self, job: Job, intake: Intake) -> None:
        """After each slice: is it still wanted, and taken?"""
        if self._stopped.is_set():
            raise Cancelled("the node stops")
        self._check_quota(job.order, job.held, intake.staging.size)
        job.status = replace(job.status, events=intake.replay.events)

    def _hosted(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events; but a Manifest that this node would not have taken is not even read. No replay takes a second."""
        most, events = self._permits.max_manifest, iter(events)
        for event in islice(events, 1):
            if event.seq == 0 and len((event.content or "").encode()) > most:
                raise ReplayFailed(0, InvalidCommit(f"content: this node takes Manifests of at most {most} bytes"))
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
            raise ReplayFailed(0, InvalidCommit("enc_v: this node hosts no enclaves of this version"))

    def _take_archive(self, job: Job, intake: Intake, archive: Archive) -> None:
        header, events = read_archive(_chunks(archive), max_total=self._permits.total_bytes)
        migrate, before = job.order.migrate, job.order.prev_seq + 1
        if header.enclave != job.enclave:
            raise InvalidArchive("header: enclave is not the Migrate's")
        if header.events != before and not (job.order.is_final and header.events == before + 1):
            raise InvalidArchive(f"header: says {header.events} events, the Migrate comes after {before}")
        intake.take(self._hosted(events))
        check_header(header, intake.replay)
        if isinstance(migrate, Event) and header.events == before:
            intake.take([migrate])

    def _take_source(self, job: Job, intake: Intake) -> None:
        migrate, endpoint = job.order.migrate, job.order.source
        if not isinstance(migrate, Event) or endpoint is None:
            raise InvalidQuery("source: the Migrate is not final")
        source = Source(
            endpoint,
            self._key,
            migrate.sequencer,
            job.enclave,
            migrate.seq,
            self._clock,
            self._stopped,
            max_bytes=self._permits.total_bytes,
            allow_private=self._permits.private_endpoints,
        )
        intake.take(self._hosted(source.events()))
        if source.sth is not None:
            check_sth(source.sth, intake.replay)

    def _adopt(self, job: Job, intake: Intake) -> Event:
        """On the sequencer's thread: what is looked at stands still, and one transaction makes all of it visible."""
        now, migrate = self._clock(), job.order.migrate
        if self._sequencer.is_behind(now):
            raise Unavailable("this node's clock stands behind what it was", retry_after_ms=RETRY_MS)
        if _age(self._held(job.enclave)) != _age(job.held):
            raise Unavailable("the enclave changed here while its log was taken in", retry_after_ms=RETRY_MS)
        self._check_quota(job.order, job.held, intake.staging.size)
        if isinstance(migrate, Event):
            event, state = intake.last, intake.replay.state
            if event.id != migrate.id:
                raise ReplayFailed(event.seq, InvalidArchive("the log does not end with this Migrate"))
        else:
            event, state = intake.finalize(migrate, now)
        intake.staging.adopt(state, migrate.from_, now)
        self._sequencer.forget(job.enclave)
        self._states.put(state)
        return event


def _check_signed(commit: Commit) -> None:
    """Its hash by either version, its author's signature, and its sequencer's if it has."""
    version_of(commit)
    check_author(commit)
    if isinstance(commit, Event):
        check_sequenced(commit)


def _chunks(archive: Archive) -> Iterator[bytes]:
    while chunk := archive.read(CHUNK):
        yield chunk


def _age(state: EnclaveState | None) -> tuple[int, int] | None:
    return None if state is None else (state.seq, state.log.size)


def _done(event: Event) -> Status:
    receipt = wire_receipt(build_receipt(event))
    return Status(event.hash.hex(), event.enclave.hex(), "done", event.seq + 1, event.seq + 1, receipt=receipt)


def _failed(job: Job, error: EncError) -> Status:
    what = {"code": error.code or "UNAVAILABLE", "message": error.message, **error.context}
    return replace(job.status, status="failed", error=what)
