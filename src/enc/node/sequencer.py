"""The sequencer: the one thread that orders commits, and the only writer of the store.

It takes everything that waits, judges one commit after the other against states in memory, and writes all accepted
ones in one transaction: one fsync serves them all. Only then do their senders hear of them, and only then is anything
published. If the transaction fails, the states are those before it, since states are values; every sender hears of
the failure and nothing has happened. If the process dies, the store has all of the batch or none, and nobody was told.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import structlog
from msgspec import Struct

from enc.core import enclave as machine
from enc.core.commit import SKEW_MS
from enc.core.content import revised_id
from enc.core.enclave import Transition
from enc.core.errors import Duplicate, EncError, EnclaveNotFound, InternalError, Unavailable
from enc.core.event import finalize
from enc.core.hashing import log_leaf
from enc.core.merkle_log import Edge
from enc.core.policy import Effects
from enc.core.receipt import build_receipt, wire_receipt
from enc.core.signing import PrivateKey
from enc.core.tree_head import sign_head
from enc.core.types import Commit, Event, Receipt, Target, TreeHead
from enc.node.audience import Audiences
from enc.node.directory import Directory
from enc.node.quota import NO_QUOTA, Quota, Spending
from enc.node.store.base import Step, Store
from enc.node.workspace import NodeCache, Workspace

MAX_BATCH = 1024
"""Commits that one transaction takes at most."""
MAX_SEALS = 256
"""Idle bundles that one transaction closes at most."""
PATIENCE = 0.2
"""Seconds after which an idle sequencer looks for bundles to seal."""
MAX_HOLD_MS = 30_000

T = TypeVar("T")
_log = structlog.get_logger("enc.sequencer")


class Ticket(Struct, frozen=True):
    """A commit that was admitted (form, hash, signature, expiry), and whatever its sender is known by."""

    commit: Commit
    sender: Any = None


Outcome = tuple[Ticket, Receipt | EncError]


class Checkpoint(Struct, frozen=True):
    """Where a log stands, as a Migrate must name it."""

    seq: int
    ct_root: bytes


class _Batch:
    """One transaction in the making."""

    def __init__(self, now: int, spending: Spending) -> None:
        self.now, self.spending = now, spending
        self.committed: dict[bytes, Event] = {}
        """Events by the hash of their commits: those of this batch, and earlier ones that it repeats."""
        self.spaces: dict[bytes, Workspace] = {}
        self.steps: list[Step] = []


class Sequencer:
    """`submit` and `call` from any thread; `deliver` and `publish` run on the sequencer's own, after the fsync."""

    def __init__(
        self,
        store: Store,
        key: PrivateKey,
        clock: Callable[[], int],
        *,
        deliver: Callable[[Sequence[Outcome]], None],
        publish: Callable[[Sequence[Step]], None] = lambda steps: None,
        watch: Callable[[int, float], None] = lambda events, seconds: None,
        chore: Callable[[int], None] = lambda now: None,
        directory: Directory | None = None,
        seal_idle: bool = True,
        max_batch: int = MAX_BATCH,
        quota: Quota = NO_QUOTA,
    ) -> None:
        self._store, self._key, self._clock = store, key, clock
        self._deliver, self._publish, self._watch, self._chore = deliver, publish, watch, chore
        self._directory = Directory(store) if directory is None else directory
        self._seal_idle, self._max_batch, self._quota = seal_idle, max_batch, quota
        self._highest = store.clock()
        self._queue: SimpleQueue[Sequence[Ticket] | Callable[[], None] | None] = SimpleQueue()
        self._cache = NodeCache()
        self._audiences = Audiences(store)
        self._holds: dict[bytes, int] = {}
        self._is_behind = False
        self._unsealed: set[bytes] = set()
        """Enclaves that could not be sealed since the start."""
        self._thread = threading.Thread(target=self._run, name="sequencer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Put commits in line; their order is kept."""
        self._queue.put(tickets)

    def call(self, work: Callable[[], T]) -> "Future[T]":
        """Run something on the sequencer's thread, between two batches: what it sees is durable and stands still."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as e:
                future.set_exception(e)

        self._queue.put(run)
        return future

    def stop(self) -> None:
        """Finish what was submitted, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def probe(self) -> None:
        """Write to the disk and nothing else; raises if the store cannot. Call it on the sequencer's thread."""
        self._check_clock(self._clock())
        self._store.write([], self._clock())

    def checkpoint(self, enclave: bytes, hold_ms: int) -> Checkpoint:
        """Where the log stands; for `hold_ms` nothing but a Migrate is taken. Call it on the sequencer's thread."""
        state = self._directory.get(enclave)
        if state is None:
            raise EnclaveNotFound("no such enclave on this node")
        space = Workspace(self._store, enclave, state, self._cache)
        found = Checkpoint(state.seq, machine.checkpoint_root(state, space))
        if hold_ms:
            now = self._clock()
            self._holds = {held: until for held, until in self._holds.items() if until > now}
            self._holds[enclave] = now + min(hold_ms, MAX_HOLD_MS)
        return found

    def forget(self, enclave: bytes) -> None:
        """The enclave was written past this sequencer. Call it on the sequencer's thread."""
        self._directory.forget(enclave)
        self._audiences.forget(enclave)

    # The thread

    def _run(self) -> None:
        running = True
        while running:
            tickets, calls, running = self._take()
            self.run_once(tickets)
            for call in calls:
                call()
            self._chore(self._clock())

    def _take(self) -> tuple[list[Ticket], list[Callable[[], None]], bool]:
        """Everything that waits, up to the batch's limit; what to call after it; and whether to go on."""
        tickets: list[Ticket] = []
        calls: list[Callable[[], None]] = []
        try:
            item = self._queue.get(timeout=PATIENCE)
            while True:
                if item is None:
                    return tickets, calls, False
                if callable(item):
                    calls.append(item)
                else:
                    tickets.extend(item)
                if calls or len(tickets) >= self._max_batch:
                    break
                item = self._queue.get_nowait()
        except Empty:
            pass
        return tickets, calls, True

    def run_once(self, tickets: Sequence[Ticket]) -> None:
        """One batch: judge, write, tell."""
        batch = _Batch(self._clock(), Spending(self._store, self._quota))
        try:
            self._check_clock(batch.now)
            if tickets:
                batch.committed = self._store.committed_among([ticket.commit for ticket in tickets])
            outcomes = [(ticket, self._outcome(ticket.commit, batch)) for ticket in tickets]
            failure = self._write(batch)
        except EncError as e:
            outcomes, failure = [(ticket, e) for ticket in tickets], e
        except Exception as e:
            failure = internal(e, "sequencer")
            outcomes = [(ticket, failure) for ticket in tickets]
        if failure is not None:
            outcomes = [(ticket, failure) for ticket, _ in outcomes]
        self._audiences.trim()
        if outcomes:
            self._deliver(outcomes)
        if failure is None and batch.steps:
            self._publish(batch.steps)

    def _outcome(self, commit: Commit, batch: _Batch) -> Receipt | EncError:
        try:
            return build_receipt(self._sequence(commit, batch))
        except EncError as e:
            return e
        except Exception as e:  # a fault of ours must not stop the others
            return internal(e, "sequencer")

    def _write(self, batch: _Batch) -> EncError | None:
        """Seal what is due and make all of it durable; or say why not, with every state as it was."""
        try:
            if self._seal_idle:
                self._seal(batch)
            if not batch.steps:
                return None
            start = time.perf_counter()
            self._store.write(batch.steps, batch.now)
            self._watch(len(batch.steps), time.perf_counter() - start)
        except EncError as e:
            _log.error("store_failed", reason=e.message, steps=len(batch.steps))
            return self._fail(batch, e)
        except Exception as e:
            return self._fail(batch, internal(e, "store"))
        for enclave, space in batch.spaces.items():
            if space.state is not None:
                self._directory.put(space.state)
                if space.state.migrated:
                    self._holds.pop(enclave, None)
            self._cache.put(space.nodes.items())
        return None

    def _fail(self, batch: _Batch, error: EncError) -> EncError:
        for enclave in batch.spaces:
            self._directory.forget(enclave)
            self._audiences.forget(enclave)
        return error

    # One commit

    def _sequence(self, commit: Commit, batch: _Batch) -> Event:
        """The event that the commit becomes, as a step of the batch that is not durable yet."""
        space = self._space(commit.enclave, batch)
        if (first := batch.committed.get(commit.hash)) is not None:
            raise duplicate(first, commit)
        self._check_hold(commit, batch.now)
        batch.spending.check(commit)
        state = space.state
        if state is None:
            if commit.type != "Manifest":
                raise EnclaveNotFound("no such enclave on this node")
            timestamp = machine.next_timestamp(None, commit, batch.now)
            policy, effects = machine.judge_manifest(commit)
            event = finalize(commit, self._key, timestamp, 0)
            transition = machine.apply_manifest(event, policy, effects)
        else:
            effects = machine.judge(state, commit, space, sequencer=self._key.public)
            timestamp = machine.next_timestamp(state, commit, batch.now)
            event = finalize(commit, self._key, timestamp, state.seq + 1)
            transition = machine.apply(state, event, effects, space)
        target = space.target(revised_id(event)) if event.type in ("Update", "Delete") else None
        self._keep(batch, space, transition, event, effects, target)
        batch.spending.charge(commit)
        batch.committed[commit.hash] = event
        return event

    def _space(self, enclave: bytes, batch: _Batch) -> Workspace:
        space = batch.spaces.get(enclave)
        if space is None:
            state = self._directory.get(enclave)
            space = batch.spaces[enclave] = Workspace(self._store, enclave, state, self._cache)
        return space

    def is_behind(self, now: int) -> bool:
        """Whether the node's clock stands behind what it was. From any thread."""
        return now < self._highest - SKEW_MS

    def _check_clock(self, now: int) -> None:
        is_behind, was_behind = self.is_behind(now), self._is_behind
        self._is_behind = is_behind
        if is_behind:
            if not was_behind:
                _log.error("clock_behind", by_ms=self._highest - now)
            raise Unavailable("this node's clock stands behind what it was", retry_after_ms=self._highest - now)
        self._highest = max(self._highest, now)

    def _check_hold(self, commit: Commit, now: int) -> None:
        until = self._holds.get(commit.enclave, 0)
        if until > now and commit.type != "Migrate":
            raise Unavailable("the enclave is held for a Migrate", retry_after_ms=until - now)

    def _keep(
        self,
        batch: _Batch,
        space: Workspace,
        transition: Transition,
        event: Event | None,
        effects: Effects,
        target: Target | None = None,
    ) -> None:
        heads = self._sign_heads(transition, space)
        if event is None:
            step = Step(transition=transition, heads=heads)
        else:
            subject = transition.state.policy.subject(event, target)
            step = Step(
                transition=transition,
                event=event,
                effects=effects,
                subject=subject.type,
                heads=heads,
                audience=self._audiences.of(event, subject, effects, transition, space),
            )
        space.take(transition, event)
        batch.steps.append(step)

    def _sign_heads(self, transition: Transition, space: Workspace) -> tuple[TreeHead, ...]:
        """A head for each tree size that the step reached, signed once and kept."""
        if not transition.closed:
            return ()
        state, before = transition.state, space.state.log if space.state else Edge()
        heads = []
        for bundle in transition.closed:
            before = before.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            heads.append(sign_head(self._key, state.enclave, state.min_timestamp, before.size, before.root()))
        return tuple(heads)

    def _seal(self, batch: _Batch) -> None:
        """Close the bundles whose time is up and that no event closed."""
        for enclave in self._store.overdue(batch.now, MAX_SEALS + len(self._unsealed)):
            if enclave in self._unsealed:
                continue
            try:
                self._seal_one(enclave, batch)
            except Unavailable:
                raise
            except Exception as e:  # one damaged enclave must not stop the others; fsck tells more
                internal(e, "seal")
                self._unsealed.add(enclave)
                batch.spaces.pop(enclave, None)

    def _seal_one(self, enclave: bytes, batch: _Batch) -> None:
        space = self._space(enclave, batch)
        if space.state is None or space.state.sequencer != self._key.public:
            return
        transition = machine.seal(space.state, batch.now, space)
        if transition is not None:
            self._keep(batch, space, transition, None, Effects())


def internal(error: BaseException, where: str) -> InternalError:
    """What the wire says of a fault of ours; the log says more, and neither says what the peer sent."""
    _log.error("internal_error", where=where, exc_info=error)
    return InternalError(f"internal error: {type(error).__name__}")


def duplicate(first: Event, commit: Commit) -> Duplicate:
    """The commit became `first` before. By the same signature, it carries the receipt that the first one earned."""
    context = {"receipt": wire_receipt(build_receipt(first))} if first.sig == commit.sig else {}
    return Duplicate("the commit was accepted before", **context)
