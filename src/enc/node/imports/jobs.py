"""Imports: who may bring an enclave to this node, one job for each import, and its outcome.

A Migrate signed by the enclave's owner orders an import, and needs nothing else: it names this
node. The node checks it, and the operator's policy (who may create enclaves here, quotas, rates),
before it fetches anything. The same Migrate again joins the job that it started, restarts a failed
job, or returns that the import is done.

An import occupies nothing before its log is here. Anyone can send a log that is not what the Migrate
says, or that arrives slowly. So until then an import does not block others: not even one of the
same enclave, or by the same Migrate from another source.
"""

import threading
import time
from collections import OrderedDict
from contextlib import closing

import structlog
from msgspec.structs import replace

from enc.core.errors import EncError, Unauthorized, Unavailable
from enc.core.log.commit import check_expiry
from enc.node.imports.context import ImportContext
from enc.node.imports.log_import import RETRY_MS, ImportJob, LogImport
from enc.node.imports.log_lines import LogFile
from enc.node.imports.orders import ImportOrder, ImportStatus, done_status, parse_order
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.sequencer import signs_nothing
from enc.runtime.fair_queue import FairQueue, Turn

MAX_ENDED = 256
"""Ended imports whose status is kept."""
MAX_WAITING = 1 << 20
"""More than logs can be here: a log that has arrived always finds a place in the queue."""

_log = structlog.get_logger("enc.import")


class Importer:
    """Accepts import orders and runs each import on its own thread, in turn by address.

    `accept` and `status` may be called from any thread.
    """

    def __init__(self, context: ImportContext) -> None:
        self.context, self._policy = context, context.policy
        self._lock = threading.Lock()
        self._fetched: list[ImportJob] = []
        """Jobs whose logs are being fetched."""
        self._jobs: dict[bytes, ImportJob] = {}
        """Jobs whose logs are here."""
        self._ended: OrderedDict[bytes, ImportStatus] = OrderedDict()
        # Half of the threads stay free for others, however long the logs of one address are.
        most = max(1, self._policy.at_once // 2)
        self._queue: FairQueue[ImportJob] = FairQueue(MAX_WAITING, MAX_WAITING, max_running=most)
        self._threads: set[threading.Thread] = set()
        self.ended = {"done": 0, "failed": 0}
        """Number of imports that ended, by outcome."""
        self._stopped = threading.Event()

    # Orders

    def accept(self, line: bytes, has_archive: bool) -> ImportJob | ImportStatus:
        """Check an order and return its job, for `expect` or `start`; or the status if the import
        is running or done.
        """
        context = self.context
        order = parse_order(line, has_archive, context.key.public, allow_private=self._policy.private_endpoints)
        self._policy.restrictions.check_not_purged(order.migrate.enclave)
        self._policy.restrictions.bans.check_identity(order.migrate.from_)
        self._policy.rates.take(order.migrate.from_)
        if (known := self._known(order)) is not None:
            return known
        if context.sequencer.is_read_only:
            raise signs_nothing()
        if not order.is_final:
            check_expiry(order.migrate, context.clock())
        if not self._policy.may_create(order.migrate.from_):
            raise Unauthorized("this node does not create enclaves for this identity")
        if self._policy.at_once == 0:
            raise Unauthorized("this node accepts no imports")
        held = context.held(order.migrate.enclave)
        context.check_quota(order, held, 0)
        return ImportJob(order, held)

    def _known(self, order: ImportOrder) -> ImportStatus | None:
        """Return the status if this Migrate is being imported or already in the log, else None."""
        migrate = order.migrate
        with self._lock:
            status = self._running(order)
        if status is not None:
            return status
        event = self.context.store.committed(migrate.enclave, migrate.hash, migrate.exp)
        return None if event is None else done_status(event)

    def _running(self, order: ImportOrder) -> ImportStatus | None:
        """Return the status of the job that an order joins, or that has just done what it orders."""
        id_ = order.migrate.hash
        if (job := self._jobs.get(id_)) is not None:
            return job.status
        if (ended := self._ended.get(id_)) is not None and ended.status == "done":
            return ended
        same = (job for job in self._fetched if job.id == id_ and job.order.is_same_source(order))
        return next((job.status for job in same), None)

    def status(self, import_: bytes) -> ImportStatus | None:
        with self._lock:
            ended, job = self._ended.get(import_), self._jobs.get(import_)
            if job is None and (ended is None or ended.status != "done"):
                job = next((job for job in self._fetched if job.id == import_), None)
            return ended if job is None else job.status

    # Jobs

    def expect(self, job: ImportJob) -> ImportStatus | None:
        """Note that the log is being fetched, until `start` or `fail`; or return the status of the
        job that this order joins.
        """
        with self._lock:
            if (running := self._running(job.order)) is None:
                self._fetched.append(job)
            return running

    def forget(self, job: ImportJob) -> None:
        """End the fetch of a job without an outcome."""
        with self._lock:
            self._fetched.remove(job)

    def fail(self, job: ImportJob, error: EncError) -> None:
        """Record that the log of a job does not arrive."""
        _log.warning("import_failed", enclave=job.enclave.hex(), code=error.code, reason=error.message)
        with self._lock:
            self._fetched.remove(job)
            if self._running(job.order) is None:
                self._record_end(_failed(job, error))

    def start(self, job: ImportJob, log: LogFile, address: str) -> ImportStatus:
        """Queue a job whose log is here, or join the same job; return its status. Closes `log` when
        it ends.
        """
        with self._lock:
            if job in self._fetched:
                self._fetched.remove(job)
            running, job.log = self._running(job.order), log
            if running is None and not self._stopped.is_set():
                self._jobs[job.id] = job
                self._queue.put((address,), job)
                self._start_queued()
                return job.status if job.id in self._jobs else self._ended[job.id]
        job.close()
        if running is None:
            raise _stopping()
        return running

    def _start_queued(self) -> None:
        """Start queued jobs while there are free threads."""
        while not self._stopped.is_set() and len(self._threads) < self._policy.at_once:
            if (turn := self._queue.take()) is None:
                return
            thread = threading.Thread(target=self._run, args=(turn,), name="import", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads
                turn.item.close()
                error = Unavailable("the system has no free thread for this import", retry_after_ms=RETRY_MS)
                self._end(turn, _failed(turn.item, error), 0)
            else:
                self._threads.add(thread)

    def _end(self, turn: Turn[ImportJob], ended: ImportStatus, seconds: float) -> None:
        self._queue.finish(turn, seconds)
        del self._jobs[turn.item.id]
        self._record_end(ended)

    def open(self) -> dict[str, int]:
        """Return the number of imports that have not ended, by state."""
        running = len(self._threads)
        return {"fetching": len(self._fetched), "waiting": max(len(self._jobs) - running, 0), "running": running}

    def _record_end(self, ended: ImportStatus) -> None:
        self.ended[ended.status] += 1
        id_ = bytes.fromhex(ended.import_)
        self._ended[id_] = ended
        self._ended.move_to_end(id_)
        while len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def stop(self) -> None:
        """Stop all imports and discard their data. The sequencer must still run."""
        self._stopped.set()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        for job in self._jobs.values():  # those that wait
            job.close()

    def _run(self, turn: Turn[ImportJob]) -> None:
        job, began = turn.item, time.perf_counter()
        _log.info("import_started", enclave=job.enclave.hex(), events=job.order.total)
        try:
            with closing(job):
                ended = done_status(LogImport(self.context, job, self._stopped).run())
            took = round(time.perf_counter() - began, 3)
            _log.info("import_done", enclave=job.enclave.hex(), events=job.order.total, seconds=took)
        except EncError as e:
            ended = _failed(job, e)
            _log.warning("import_failed", enclave=job.enclave.hex(), code=e.code, reason=e.message)
        except Exception as e:
            ended = _failed(job, internal_error(e, "import"))
        with self._lock:
            self._threads.discard(threading.current_thread())
            self._end(turn, ended, time.perf_counter() - began)
            self._start_queued()


def _stopping() -> Unavailable:
    return Unavailable("the node is stopping", retry_after_ms=RETRY_MS)


def _failed(job: ImportJob, error: EncError) -> ImportStatus:
    what = {"code": error.code or "UNAVAILABLE", "message": error.message, **error.context}
    return replace(job.status, status="failed", error=what)
