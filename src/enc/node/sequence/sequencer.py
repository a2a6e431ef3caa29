"""The sequencer: the only thread that orders commits, and the only writer of the store.

It takes all waiting commits, judges one after the other against states in memory, and writes all
accepted ones in one transaction: one fsync serves them all. Only after that are their senders
answered and their events published. If the transaction fails, the states are those before it, since
states are values; every sender gets the error and nothing has happened. Only if damaged data made it
fail is it written again in parts (`damage`). If the process dies, the store has all of a transaction
or none, and nobody was answered.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

import structlog
from msgspec import Struct, field

from enc.core.errors import EncError, EnclaveNotFound, ReadOnly, Unavailable
from enc.core.log.event import finalize
from enc.core.log.receipt import build_receipt
from enc.core.machine import enclave as machine
from enc.core.machine.early_tree import EarlyTree
from enc.core.machine.state import EnclaveState
from enc.core.primitives.signer import BatchSigner, Signer
from enc.core.primitives.types import Commit, Event, Receipt
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import Effects
from enc.node.limits.quota import Spending, StorageRules
from enc.node.limits.restrictions import NO_RESTRICTIONS, Restrictions
from enc.node.ops.internal_errors import internal_error
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome, duplicate, judged_manifest, request_of
from enc.node.sequence.batch import CommitBatch, StepBuilder
from enc.node.sequence.batch_overlay import BatchOverlay, NodeCache
from enc.node.sequence.checkpoint import Checkpoint, MigrateHolds
from enc.node.sequence.clock_guard import ClockGuard
from enc.node.sequence.damage import DamagedEnclaves, write_in_parts
from enc.node.sequence.long_judgement import LongJudgement
from enc.node.sequence.preparation import Preparation
from enc.node.sequence.recipients import RecipientCache
from enc.node.sequence.sealing import BundleSealer
from enc.node.sequence.sign_ahead import AheadSigner, expected_digests
from enc.node.sequence.state_cache import StateCache
from enc.node.store.damage import DamagedData
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.steps import Step
from enc.node.store.store_interface import Store

MAX_BATCH = 1024
"""Maximum number of commits in one transaction."""
PAUSE_S = 0.001
"""Seconds for which it waits for commits while it prepares others: other threads run meanwhile."""

READ_ONLY_RETRY_MS = 60_000
"""When a client may try again at a node that signs nothing: an operator must act first."""

T = TypeVar("T")
_log = structlog.get_logger("enc.sequencer")


def signs_nothing() -> ReadOnly:
    """Return the answer to anything for which the node would have to sign."""
    message = "this node's store was restored from a copy: the node signs nothing until its operator adopts the store"
    return ReadOnly(message, retry_after_ms=READ_ONLY_RETRY_MS)


class SequencerSettings(Struct, frozen=True, kw_only=True):
    """What an operator decides about sequencing."""

    seal_idle: bool = True
    """Whether bundles whose time is up are closed without a further event."""
    max_batch: int = MAX_BATCH
    storage: StorageRules = field(default_factory=StorageRules)
    restrictions: Restrictions = NO_RESTRICTIONS
    is_read_only: bool = False
    """Whether nothing is signed: neither events nor heads."""


def _shown(batch: CommitBatch) -> int:
    """Return the time that a batch records: that of its events, or else the deadlines of its bundles."""
    times = (batch.now if step.event is not None else step.transition.state.min_timestamp for step in batch.steps)
    return min(batch.now, max(times))


class Sequencer:
    """Orders commits. `submit` and `call` may be called from any thread; `deliver` and `publish`
    run on the sequencer's own thread, after the fsync.
    """

    def __init__(
        self,
        store: Store,
        key: Signer,
        clock: Callable[[], int],
        *,
        deliver: Callable[[Sequence[CommitOutcome]], None],
        publish: Callable[[Sequence[Step]], None] = lambda steps: None,
        observe_write: Callable[[int, float], None] = lambda events, seconds: None,
        maintain: Callable[[int], None] = lambda now: None,
        states: StateCache | None = None,
        settings: SequencerSettings = SequencerSettings(),  # noqa: B008
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """`clock`: Unix milliseconds. `monotonic`: seconds, to detect jumps of `clock`."""
        self._ahead = AheadSigner(key) if isinstance(key, BatchSigner) else None
        self._store, self._key, self._clock = store, self._ahead or key, clock
        self._deliver, self._publish, self._observe_write, self._maintain = deliver, publish, observe_write, maintain
        self._states = StateCache(store) if states is None else states
        self._settings = settings
        self._guard = ClockGuard(store.clock(), monotonic)
        self._queue: SimpleQueue[Sequence[AdmittedCommit] | Callable[[], None] | None] = SimpleQueue()
        self._cache = NodeCache()
        self._recipients = RecipientCache(store)
        self._steps = StepBuilder(self._key, self._recipients)
        self._holds = MigrateHolds()
        spending = partial(Spending, store, settings.storage)
        long_judgement = LongJudgement(store, key.public, self._states, self._cache, self._check_accepts, spending)
        self._preparation = Preparation(long_judgement.judge, self._states)
        self._damaged = DamagedEnclaves()
        self._sealer = BundleSealer(
            store, key.public, self._states, self._cache, self._steps, self._damaged, self._overlay
        )
        self._has_stopped = False
        self._thread = threading.Thread(target=self._run, name="sequencer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, admitted: Sequence[AdmittedCommit]) -> None:
        """Queue commits; their order is kept."""
        self._queue.put(admitted)

    def call(self, work: Callable[[], T]) -> "Future[T]":
        """Run something on the sequencer's thread, between two batches: all data that it reads is
        durable and does not change meanwhile. After `stop` the result is Unavailable.
        """
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._has_stopped:
                    raise Unavailable("the node is shutting down", retry_after_ms=1000)
                future.set_result(work())
            except BaseException as e:
                future.set_exception(e)

        self._queue.put(run)
        if self._has_stopped:
            self._reject_calls()
        return future

    def wait_for(self, work: Callable[[], T], seconds: float) -> T:
        """Run something as `call` does, and return its result. If it does not begin in so many seconds,
        raise Unavailable: then it never runs.
        """
        future = self.call(work)
        try:
            return future.result(seconds)
        except FutureTimeout:
            if future.cancel():
                raise Unavailable(
                    "the sequencer did not answer in time; nothing was changed", retry_after_ms=1000
                ) from None
            return future.result()

    def stop(self) -> None:
        """Finish what was submitted, then end the thread."""
        self._queue.put(None)
        self._thread.join()
        self._has_stopped = True
        self._reject_calls()

    def _reject_calls(self) -> None:
        """Answer the calls that came after the end of the thread."""
        while not self._queue.empty():
            for call in self._take(0)[1]:
                call()

    def is_clock_wrong(self, now: int) -> bool:
        """Return whether the node's clock is behind, or has jumped ahead. Safe from any thread."""
        return self._guard.is_wrong(now)

    def check_clock(self, now: int) -> None:
        """Raise Unavailable if the node's clock is wrong. Call it on the sequencer's thread."""
        self._guard.check(now)

    def record_clock(self, shown: int) -> None:
        """Note that the store has recorded this time. Call it on the sequencer's thread."""
        self._guard.record(shown)

    def behind_ms(self, now: int) -> int:
        """Return by how much the node's clock shows less than before. Safe from any thread."""
        return self._guard.behind_ms(now)

    def probe(self) -> None:
        """Write an empty batch, which records no time, and use the key; raises if the store or the signer
        fails or the clock is wrong. Call it on the sequencer's thread.
        """
        self._key.ecdh(self._key.public)
        self._guard.check(self._clock())
        self._store.write([], 0)

    def checkpoint(self, enclave: bytes, hold_ms: int, request: SpentRequest | None = None) -> Checkpoint:
        """Return the end of the log; for `hold_ms`, reject everything but a Migrate. Call it on the
        sequencer's thread.

        `request`: the request for the hold, which is then not accepted again.
        """
        state = self._states.get(enclave)
        if state is None:
            raise EnclaveNotFound("no such enclave on this node")
        overlay = BatchOverlay(self._store, enclave, state, self._cache)
        found = Checkpoint(state.seq, machine.checkpoint_root(state, overlay))
        if hold_ms:
            self.check_signs()
            now = self._clock()
            self._guard.check(now)
            if request is not None:
                self._store.spend(request, now)
                self._guard.record(now)
            self._holds.add(enclave, now, hold_ms)
        return found

    def forget(self, enclave: bytes) -> None:
        """Drop cached data of an enclave that was written without this sequencer. Call it on the
        sequencer's thread.
        """
        self._states.forget(enclave)
        self._recipients.forget(enclave)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing is signed, because the store is a copy."""
        return self._settings.is_read_only

    # The thread

    def _run(self) -> None:
        running = True
        while running or self._preparation:
            admitted, calls, goes_on = self._take(PAUSE_S if self._preparation else self._sealer.pause_s)
            running = running and goes_on
            ready = self._preparation.sort(admitted)
            if ready or not self._preparation:
                self.run_once(ready)
            for call in calls:
                call()
            self._run_prepared()
            now = self._clock()
            if not self._guard.has_jumped(now):  # it would delete what is not due
                self._maintain(now)

    def _run_prepared(self) -> None:
        """Prepare for a short time; process what is ready then."""
        if ready := self._preparation.advance():
            self.run_once(ready)
            self._preparation.settle()

    def _take(self, wait_s: float) -> tuple[list[AdmittedCommit], list[Callable[[], None]], bool]:
        """Return the waiting commits up to the batch limit, the calls to run after them, and
        whether to continue.
        """
        admitted: list[AdmittedCommit] = []
        calls: list[Callable[[], None]] = []
        try:
            item = self._queue.get(timeout=wait_s)
            while True:
                if item is None:
                    return admitted, calls, False
                if callable(item):
                    calls.append(item)
                else:
                    admitted.extend(item)
                if calls or len(admitted) >= self._settings.max_batch:
                    break
                item = self._queue.get_nowait()
        except Empty:
            pass
        return admitted, calls, True

    def run_once(self, admitted: Sequence[AdmittedCommit]) -> None:
        """Process one batch: judge, write, answer."""
        batch = CommitBatch(self._clock(), Spending(self._store, self._settings.storage))
        try:
            self._guard.check(batch.now)
            self._find_committed(admitted, batch)
            self._sign_ahead(admitted, batch)
            outcomes = [(each, self._outcome(each, batch)) for each in admitted]
            failure = self._write(batch)
            if batch.failed:
                outcomes = [(each, batch.failed.get(each.commit.enclave, outcome)) for each, outcome in outcomes]
        except EncError as e:
            outcomes, failure = [(each, e) for each in admitted], e
        except Exception as e:
            failure = internal_error(e, "sequencer")
            outcomes = [(each, failure) for each in admitted]
        if failure is not None:
            outcomes = [(each, failure) for each, _ in outcomes]
        self._recipients.trim()
        if outcomes:
            self._deliver(outcomes)
        if failure is None and batch.steps:
            self._publish(batch.steps)

    def _find_committed(self, admitted: Sequence[AdmittedCommit], batch: CommitBatch) -> None:
        """Find the commits that were accepted before."""
        commits = [each.commit for each in admitted]
        try:
            batch.committed = self._store.committed_among(commits) if commits else {}
        except DamagedData:  # find out which commits it concerns
            for commit in commits:
                try:
                    batch.committed |= self._store.committed_among([commit])
                except DamagedData as e:
                    batch.unreadable[commit.hash] = e

    def _sign_ahead(self, admitted: Sequence[AdmittedCommit], batch: CommitBatch) -> None:
        """If the signer is another process, have it sign the whole batch at once."""
        if self._ahead is not None and not self._settings.is_read_only:
            commits = (each.commit for each in admitted if self._may_be_new(each.commit, batch))
            expected = expected_digests(commits, partial(self._state, batch), batch.now, self._key.public)
            self._ahead.prepare(expected)

    def _may_be_new(self, commit: Commit, batch: CommitBatch) -> bool:
        return commit.hash not in batch.committed and not self._damaged.has(commit.enclave, batch.now)

    def _state(self, batch: CommitBatch, enclave: bytes) -> EnclaveState | None:
        with suppress(Exception):  # the commits themselves get and log the error
            return self._overlay(enclave, batch).state
        return None

    def _outcome(self, admitted: AdmittedCommit, batch: CommitBatch) -> Receipt | EncError:
        try:
            return build_receipt(self._sequence(admitted, batch))
        except EncError as e:
            return e
        except Exception as e:  # an internal error must not affect the others
            return internal_error(e, "sequencer", request_of(admitted.sender))

    def _write(self, batch: CommitBatch) -> EncError | None:
        """Seal overdue bundles and make the batch durable. On failure, return the error and drop
        the cached states.
        """
        try:
            if self._settings.seal_idle and not self._settings.is_read_only:
                self._sealer.seal(batch)
            if not batch.steps:
                return None
            start = time.perf_counter()
            shown = _shown(batch)
            self._set_apart(batch, write_in_parts(self._store, batch.steps, shown))
            self._guard.record(shown)
            self._observe_write(len(batch.steps), time.perf_counter() - start)
        except EncError as e:
            _log.error("store_failed", reason=e.message, steps=len(batch.steps))
            return self._fail(batch, e)
        except Exception as e:
            return self._fail(batch, internal_error(e, "store"))
        for enclave, overlay in batch.overlays.items():
            if overlay.state is not None:
                self._states.put(overlay.state)
                if overlay.state.migrated:
                    self._holds.end(enclave)
            self._cache.put(overlay.nodes.items())
        for enclave in batch.unloaded:  # another thread may have loaded it meanwhile
            self._states.forget(enclave)
        return None

    def _set_apart(self, batch: CommitBatch, errors: Mapping[bytes, EncError]) -> None:
        """Take what was not written out of the batch."""
        for enclave, error in errors.items():
            is_damaged = isinstance(error, DamagedData)
            batch.failed[enclave] = self._damaged.add(enclave, batch.now, error.message) if is_damaged else error
            self._states.forget(enclave)
            self._recipients.forget(enclave)
            batch.overlays.pop(enclave, None)
        if errors:
            batch.steps = [step for step in batch.steps if step.transition.state.enclave not in errors]

    def _fail(self, batch: CommitBatch, error: EncError) -> EncError:
        for enclave in (*batch.overlays, *batch.unloaded):
            self._states.forget(enclave)
            self._recipients.forget(enclave)
        return error

    # One commit

    def _sequence(self, admitted: AdmittedCommit, batch: CommitBatch) -> Event:
        """Return the event that the commit becomes, as a step of the batch that is not durable yet."""
        commit = admitted.commit
        self._settings.restrictions.check_commit(commit)
        self._damaged.check(commit.enclave, batch.now)
        if commit.hash in batch.unreadable:
            raise batch.unreadable[commit.hash]
        overlay = self._overlay(commit.enclave, batch)
        if (first := batch.committed.get(commit.hash)) is not None:
            raise duplicate(first, commit)
        self._holds.check(commit, batch.now)
        state = overlay.state
        batch.spending.check(commit, state)
        if state is None:
            if commit.type != "Manifest":
                raise EnclaveNotFound("no such enclave on this node")
            timestamp = machine.next_timestamp(None, commit, batch.now)
            policy, effects = judged_manifest(admitted)
            event = self._finalize(commit, timestamp, 0)
            transition = machine.apply_manifest(event, policy, effects)
        else:
            effects, early = self._judge(admitted, state, overlay)
            timestamp = machine.next_timestamp(state, commit, batch.now)
            event = self._finalize(commit, timestamp, state.seq + 1)
            transition = machine.apply(state, event, effects, overlay, early)
        target = overlay.target(revised_id(event)) if event.type in ("Update", "Delete") else None
        self._steps.add(batch, overlay, transition, event, effects, target)
        batch.spending.charge(commit)
        batch.committed[commit.hash] = event
        return event

    def _finalize(self, commit: Commit, timestamp: int, seq: int) -> Event:
        self.check_signs()
        return finalize(commit, self._key, timestamp, seq)

    def check_signs(self) -> None:
        if self._settings.is_read_only:
            raise signs_nothing()

    def _check_accepts(self, commit: Commit) -> int:
        """Return the time; raise if a commit of its enclave would be rejected now, whatever it says."""
        now = self._clock()
        self._guard.check(now)
        self.check_signs()
        self._settings.restrictions.check_commit(commit)
        self._damaged.check(commit.enclave, now)
        self._holds.check(commit, now)
        return now

    def _judge(self, admitted: AdmittedCommit, state: EnclaveState, overlay: BatchOverlay) -> tuple[Effects, EarlyTree]:
        known = admitted.judgement
        effects = None if known is None else known.effects_in(state)
        if known is None or effects is None:
            return machine.judge(state, admitted.commit, overlay, sequencer=self._key.public), EarlyTree()
        return effects, known.early

    def _overlay(self, enclave: bytes, batch: CommitBatch) -> BatchOverlay:
        overlay = batch.overlays.get(enclave)
        if overlay is None:
            state = self._states.get(enclave)
            overlay = batch.overlays[enclave] = BatchOverlay(self._store, enclave, state, self._cache)
        return overlay
