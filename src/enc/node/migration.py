"""Taking a whole log in: replayed from its first event, believed in nothing, kept slice by slice where nobody looks.

events -> slices -> signatures checked ahead, on every core -> replayed in order -> staged, one transaction a slice

What each slice makes goes through the same steps, and the same rows, as commits do; only heads are signed by another
rule: a size of the log that this node has signed before keeps its head, every other gets one of this node's own. Memory
does not grow with the log: what lies behind the state is read back from where it was staged.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from enc.core import enclave as machine
from enc.core.commit import check_hash
from enc.core.content import revised_id
from enc.core.enclave import EnclaveState, Transition
from enc.core.errors import EncError, EnclaveExists, InvalidCommit, ReplayFailed
from enc.core.event import finalize, target_of
from enc.core.hashing import log_leaf
from enc.core.merkle_log import Edge
from enc.core.policy import Effects
from enc.core.replay import Replay, SeenCommits
from enc.core.signing import PrivateKey
from enc.core.tree_head import sign_head
from enc.core.types import Commit, Event, Target, TreeHead
from enc.node.checkers import CheckedSlice, ImportSignaturePool
from enc.node.store.base import AppendRun, Staging, Step, Store
from enc.node.workspace import BatchOverlay, NodeCache

SLICE, SLICE_BYTES = 1024, 4 << 20
"""Events of one transaction, and bytes of contents and tags: commits to other enclaves wait no longer than it takes."""
AHEAD = 4
"""Slices whose signatures are checked ahead."""
CACHED = 65_536
"""Tree nodes that are kept in memory."""


class Shelf(BatchOverlay):
    """What lies behind the state of a log that is being staged."""

    def __init__(self, store: Store, staging: Staging) -> None:
        super().__init__(store, staging.name, None, NodeCache(CACHED))
        self._staging = staging

        self._events: dict[bytes, Event] = {}

    def target(self, event_id: bytes) -> Target | None:
        event = self._events.get(event_id)
        return target_of(event) if event else self._staging.target(event_id)

    def put(self, event: Event | None, transition: Transition) -> None:
        if transition.tree_nodes or transition.records:
            self.take(transition, None)
        if event is not None:
            self._events[event.id] = event

    def mark_written(self) -> None:
        super().mark_written()
        self._events = {}


class UnboundedCommits(SeenCommits):
    """A past of any length: in a file that SQLite makes and unmakes. Repeated commits are the staging's to find."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("CREATE TABLE gone (id BLOB PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID")

    def is_duplicate(self, event: Event) -> bool:
        return False

    def add(self, event: Event) -> None:
        """Nothing: the staging knows all commits."""

    def add_unexplained(self, event: Event) -> None:
        self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?)", (event.id, event.seq))

    def explain(self, event_id: bytes) -> None:
        self._db.execute("DELETE FROM gone WHERE id = ?", (event_id,))

    def unexplained(self) -> int | None:
        ((seq,),) = self._db.execute("SELECT min(seq) FROM gone")
        return None if seq is None else int(seq)

    def close(self) -> None:
        self._db.close()


class Intake:
    """One log on its way into a staging. `write` puts steps there; `notice` hears of each slice that was."""

    last: Event
    """That was taken."""

    def __init__(
        self,
        store: Store,
        staging: Staging,
        key: PrivateKey,
        enclave: bytes,
        held: EnclaveState | None,
        checkers: ImportSignaturePool,
        *,
        write: Callable[[Sequence[Step | AppendRun]], None],
        notice: Callable[["Intake"], None] = lambda intake: None,
    ) -> None:
        self._store, self._key, self._enclave, self._held = store, key, enclave, held
        self.staging, self._checkers, self._write, self._notice = staging, checkers, write, notice
        self._shelf, self._seen_commits = Shelf(store, staging), UnboundedCommits()
        self._checked: CheckedSlice | None = None
        self._log = Edge()
        self.replay = Replay(enclave, self._shelf, self._seen_commits, self._check)

    def _check(self, event: Event, enc_v: int) -> None:
        if self._checked is not None:
            self._checked.check(event, enc_v)

    def take(self, events: Iterable[Event]) -> None:
        """The log, or what follows of it. What is wrong with it is raised, as ReplayFailed with its seq."""
        waiting, failure = deque[CheckedSlice](), None
        slices = _slices(events)
        while failure is None:
            try:
                slice_ = next(slices, None)
            except EncError as e:
                slice_, failure = None, e
            if slice_ is None:
                break
            waiting.append(self._checkers.submit(slice_))
            if len(waiting) > AHEAD:
                self._take(waiting.popleft())
        while waiting:
            self._take(waiting.popleft())
        if failure is not None:
            raise failure

    def finish(self) -> None:
        """Once all of the log was taken."""
        state = self.replay.finish()
        if self._held is not None and self._held.seq > state.seq:
            raise ReplayFailed(state.seq + 1, EnclaveExists("this node holds more of this log than was brought"))

    def _take(self, checked: CheckedSlice) -> None:
        checked.wait()
        self._checked = checked
        steps = list[Step | AppendRun]()
        try:
            self._replay(checked.events, steps)
        finally:
            if steps:
                self._write(steps)  # of a slice that fails, too: it may tell of a repeated commit before that
        self._shelf.mark_written()
        self._notice(self)

    def _replay(self, events: Sequence[Event], steps: list[Step | AppendRun]) -> None:
        here, at = self._held_ids(events[0].seq, len(events)), 0
        while at < len(events):
            end = at if here else self.replay.add_run(events, at)
            if end > at:
                steps.append(AppendRun(events[at:end], self.replay.state))
            else:
                end = at + 1
                steps.append(self._replay_one(events[at], here))
            at, self.last = end, events[end - 1]

    def _replay_one(self, event: Event, here: dict[int, bytes]) -> Step:
        transition, effects = self.replay.add(event)
        if here.get(event.seq, event.id) != event.id:
            raise ReplayFailed(event.seq, EnclaveExists("this node holds another event of this enclave there"))
        return self._step(transition, event, effects)

    def _held_ids(self, first: int, count: int) -> dict[int, bytes]:
        if self._held is None or first > self._held.seq:
            return {}
        return dict(enumerate(self._store.ids(self._enclave, first, min(count, self._held.seq + 1 - first)), first))

    def _step(self, transition: Transition, event: Event, effects: Effects) -> Step:
        subject = event.type
        if event.type in ("Update", "Delete"):
            target = self._shelf.target(revised_id(event))
            subject = transition.state.policy.subject(event, target).type
        return Step(
            transition=transition,
            event=event,
            effects=effects,
            subject=subject,
            heads=self._heads(transition) if transition.closed else (),
        )

    def _heads(self, transition: Transition) -> tuple[TreeHead, ...]:
        """A head for each size: the one that this node has signed before, or a new one under its own key."""
        state, heads = transition.state, []
        for bundle in transition.closed:
            self._log = self._log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            size, root = self._log.size, self._log.root()
            head = self._store.head(self._enclave, size) if self._held and size <= self._held.log.size else None
            if head is not None and head.r != root:
                last = bundle.first_seq + bundle.count - 1
                raise ReplayFailed(last, EnclaveExists(f"this node has signed another head of size {size}"))
            heads.append(head or sign_head(self._key, self._enclave, state.min_timestamp, size, root))
        return tuple(heads)

    def finalize(self, commit: Commit, clock: int) -> tuple[Event, EnclaveState]:
        """A forced Migrate becomes this node's first event. Nobody hears of it before all is adopted."""
        state = self.replay.state
        check_hash(commit, state.policy.enc_v)
        if state.sequencer == self._key.public and not state.migrated:
            raise InvalidCommit("new_sequencer: this node is the log's sequencer, and must not sign a second ending")
        effects = machine.judge(state, commit, self._shelf, sequencer=self._key.public, takeover=True)
        event = finalize(commit, self._key, machine.next_timestamp(state, commit, clock), state.seq + 1)
        transition = machine.apply(state, event, effects, self._shelf)
        step = self._step(transition, event, effects)
        self.staging.write([step])
        return event, transition.state

    def close(self) -> None:
        self._seen_commits.close()


def _slices(events: Iterable[Event]) -> Iterator[list[Event]]:
    slice_, size = list[Event](), 0
    try:
        for event in events:
            slice_.append(event)
            size += len(event.content or "")
            if event.tags:
                size += sum(64 + len(text) for tag in event.tags for text in tag)
            if len(slice_) >= SLICE or size >= SLICE_BYTES:
                yield slice_
                slice_, size = [], 0
    except EncError:
        if slice_:
            yield slice_  # what came before may be wrong as well, and then that is told
        raise
    if slice_:
        yield slice_
