"""The sequencer: the one thread that orders commits, and the only writer of the store.

It takes everything that waits, judges one commit after the other against states in memory, and writes all accepted
ones in one transaction: one fsync serves them all. Only then do their senders hear of them, and only then is anything
published. If the transaction fails, the states go back to what they were before it, since states are values; every
sender hears of the failure and nothing has happened. If the process dies, the store has all of the batch or none, and
nobody was told.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from msgspec import Struct

from enc.core import enclave as machine
from enc.core import sparse_merkle
from enc.core.commit import SKEW_MS
from enc.core.content import revised_id
from enc.core.enclave import EnclaveState, Transition
from enc.core.errors import Duplicate, EncError, EnclaveNotFound, InternalError, Unavailable
from enc.core.event import finalize, target_of
from enc.core.hashing import log_leaf
from enc.core.merkle_log import Edge
from enc.core.policy import Effects
from enc.core.receipt import build_receipt, wire_receipt
from enc.core.signing import PrivateKey
from enc.core.tree_head import sign_head
from enc.core.types import Commit, Event, Receipt, Target, TreeHead
from enc.node.store.base import EnclaveReader, Step, Store

MAX_BATCH = 1024
"""Commits that one transaction takes at most."""
MAX_LIVE = 4096
"""Enclaves whose state is kept in memory; an idle one costs disk only."""
MAX_NODES = 262_144
"""Tree nodes kept in memory, over all enclaves."""


class Ticket(Struct, frozen=True):
    """A commit that was admitted (form, hash, signature, expiry), and whatever its sender is known by."""

    commit: Commit
    sender: Any = None


Outcome = tuple[Ticket, Receipt | EncError]


class _Live(EnclaveReader):
    """One enclave in memory: its state, and what it has made that is not durable yet."""

    def __init__(self, store: Store, enclave: bytes, cache: "_NodeCache") -> None:
        super().__init__(store, enclave)
        self.state: EnclaveState | None = store.load(enclave)
        self.durable = self.state
        self.nodes: dict[bytes, bytes] = {}
        self.events: dict[bytes, Event] = {}
        self.targets: dict[bytes, Target] = {}
        self._cache = cache

    def read_node(self, node_hash: bytes) -> bytes:
        return self.nodes.get(node_hash) or self._cache.get(self, node_hash)

    def stored_node(self, node_hash: bytes) -> bytes:
        return super().read_node(node_hash)

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        return sparse_merkle.get(self, root, key)

    def target(self, event_id: bytes) -> Target | None:
        return self.targets.get(event_id) or super().target(event_id)

    def committed(self, commit_hash: bytes) -> Event | None:
        return self.events.get(commit_hash) or self._store.committed(self._enclave, commit_hash)

    def take(self, transition: Transition, event: Event | None) -> None:
        self.state = transition.state
        self.nodes.update(transition.tree_nodes)
        if event is not None:
            self.events[event.hash] = event
            self.targets[event.id] = target_of(event)

    def settle(self, written: bool) -> None:
        """After a transaction: what was made is durable, or it never was."""
        if written:
            self.durable = self.state
            self._cache.put(self.nodes)
        else:
            self.state = self.durable
        self.nodes, self.events, self.targets = {}, {}, {}


class _NodeCache:
    """Recently read tree nodes. A node is named by its hash, so enclaves may share them."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, live: _Live, node_hash: bytes) -> bytes:
        record = self._nodes.get(node_hash)
        if record is None:
            record = live.stored_node(node_hash)
            self.put({node_hash: record})
        return record

    def put(self, nodes: dict[bytes, bytes]) -> None:
        self._nodes.update(nodes)
        while len(self._nodes) > MAX_NODES:
            self._nodes.popitem(last=False)


class Sequencer:
    """`submit` from any thread; `deliver` and `publish` are called on the sequencer's own thread, after the fsync."""

    def __init__(
        self,
        store: Store,
        key: PrivateKey,
        clock: Callable[[], int],
        *,
        deliver: Callable[[Sequence[Outcome]], None],
        publish: Callable[[Sequence[Step]], None] = lambda steps: None,
        seal_idle: bool = True,
    ) -> None:
        self._store, self._key, self._clock = store, key, clock
        self._deliver, self._publish, self._seal_idle = deliver, publish, seal_idle
        self._highest = store.clock()
        self._queue: SimpleQueue[Ticket | None] = SimpleQueue()
        self._live: OrderedDict[bytes, _Live] = OrderedDict()
        self._cache = _NodeCache()
        self._thread = threading.Thread(target=self._run, name="sequencer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        self._queue.put(ticket)

    def stop(self) -> None:
        """Finish what was submitted, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    # The thread

    def _run(self) -> None:
        running = True
        while running:
            tickets, running = self._take()
            self.run_once(tickets)

    def _take(self, patience: float = 0.2) -> tuple[list[Ticket], bool]:
        """Everything that waits, at most MAX_BATCH; and whether to go on after it."""
        try:
            first = self._queue.get(timeout=patience)
        except Empty:
            return [], True
        tickets: list[Ticket] = []
        while first is not None:
            tickets.append(first)
            if len(tickets) == MAX_BATCH:
                break
            try:
                first = self._queue.get_nowait()
            except Empty:
                return tickets, True
        return tickets, first is not None

    def run_once(self, tickets: Sequence[Ticket]) -> None:
        """One batch: judge, write, tell."""
        now, touched = self._clock(), dict[bytes, _Live]()
        steps: list[Step] = []
        outcomes: list[Outcome] = []
        for ticket in tickets:
            try:
                step = self._sequence(ticket.commit, now, touched)
            except EncError as e:
                outcomes.append((ticket, e))
            except Exception as e:  # a fault of ours must not stop the others
                outcomes.append((ticket, InternalError(f"internal error: {type(e).__name__}")))
            else:
                steps.append(step)
                outcomes.append((ticket, build_receipt(_event_of(step))))
        failure = self._write(steps, now, touched)
        if failure is not None:
            outcomes = [(ticket, failure) for ticket, _ in outcomes]
        self._deliver(outcomes)
        if failure is None and steps:
            self._publish(steps)

    def _write(self, steps: list[Step], now: int, touched: dict[bytes, _Live]) -> EncError | None:
        """Seal what is due and make all of it durable; or say why not, with every state as it was."""
        failure: EncError | None = None
        try:
            if self._seal_idle:
                steps += self._seal(now, touched)
            if steps:
                self._store.write(steps, now)
        except EncError as e:
            failure = e
        except Exception as e:
            failure = InternalError(f"internal error: {type(e).__name__}")
        for live in touched.values():
            live.settle(failure is None)
        return failure

    # One commit

    def _sequence(self, commit: Commit, now: int, touched: dict[bytes, _Live]) -> Step:
        """The step that makes the commit an event, not durable yet."""
        self._check_clock(now)
        live = self._enclave(commit.enclave)
        self._check_duplicate(live, commit)
        if live.state is None:
            if commit.type != "Manifest":
                raise EnclaveNotFound("no such enclave on this node")
            timestamp = machine.next_timestamp(None, commit, now)
            policy, effects = machine.judge_manifest(commit)
            event = finalize(commit, self._key, timestamp, 0)
            transition = machine.found(event, policy, effects)
        else:
            effects = machine.judge(live.state, commit, live, sequencer=self._key.public)
            timestamp = machine.next_timestamp(live.state, commit, now)
            event = finalize(commit, self._key, timestamp, live.state.seq + 1)
            transition = machine.apply(live.state, event, effects, live)
        step = self._step(transition, live, event, effects)
        live.take(transition, event)
        touched[commit.enclave] = live
        return step

    def _check_clock(self, now: int) -> None:
        if now < self._highest - SKEW_MS:
            raise Unavailable("this node's clock stands behind what it was", retry_after_ms=self._highest - now)
        self._highest = max(self._highest, now)

    def _check_duplicate(self, live: _Live, commit: Commit) -> None:
        """One that was accepted before. With the same signature it carries the receipt that the first one earned."""
        first = live.committed(commit.hash) if live.state is not None else None
        if first is not None:
            context = {"receipt": wire_receipt(build_receipt(first))} if first.sig == commit.sig else {}
            raise Duplicate("the commit was accepted before", **context)

    def _step(self, transition: Transition, live: _Live, event: Event | None, effects: Effects) -> Step:
        subject = ""
        if event is not None:
            target = live.target(revised_id(event)) if event.type in ("Update", "Delete") else None
            subject = transition.state.policy.subject(event, target).type
        return Step(
            transition=transition,
            event=event,
            effects=effects,
            subject=subject,
            heads=self._sign_heads(transition, live),
        )

    def _sign_heads(self, transition: Transition, live: _Live) -> tuple[TreeHead, ...]:
        """A head for each tree size that the step reached, signed once and kept."""
        if not transition.closed:
            return ()
        state, before = transition.state, live.state.log if live.state else Edge()
        heads = []
        for bundle in transition.closed:
            before = before.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            heads.append(sign_head(self._key, state.enclave, state.floor, before.size, before.root()))
        return tuple(heads)

    # Sealing

    def _seal(self, now: int, touched: dict[bytes, _Live]) -> list[Step]:
        """Close the bundles whose time is up and that no event closed."""
        steps = []
        for enclave in self._store.overdue(now):
            live = self._enclave(enclave)
            if live.state is None or live.state.sequencer != self._key.public:
                continue
            transition = machine.seal(live.state, now, live)
            if transition is not None:
                steps.append(self._step(transition, live, None, Effects()))
                live.take(transition, None)
                touched[enclave] = live
        return steps

    def _enclave(self, enclave: bytes) -> _Live:
        live = self._live.get(enclave)
        if live is None:
            live = self._live[enclave] = _Live(self._store, enclave, self._cache)
        self._live.move_to_end(enclave)
        if len(self._live) > MAX_LIVE:
            oldest = next(iter(self._live))
            if not self._live[oldest].events:
                del self._live[oldest]
        return live


def _event_of(step: Step) -> Event:
    if step.event is None:
        raise InternalError("a step without an event has no receipt")
    return step.event
