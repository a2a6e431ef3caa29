"""Replays a whole log from its first event, without trusting it, into a staging area that readers
do not see.

events -> slices -> signatures checked ahead, on every core -> replayed in order -> staged, one transaction a slice

Each slice produces the same steps and rows as commits do. Only tree heads follow another rule: for
a log size that this node signed before, its old head is kept; every other size gets a new head
signed by this node, except where the log replaces a copied Manifest. Memory use does not grow with
the log: replay reads what it needs back from the staging area.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from enc.core.errors import EncError, EnclaveExists, InvalidCommit, MisuseError, ReplayFailed
from enc.core.log.commit import check_hash
from enc.core.log.event import finalize, signed_statement, target_of
from enc.core.machine import enclave as machine
from enc.core.machine.replay import Replay, SeenCommits
from enc.core.machine.state import EnclaveState, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Commit, Event, Target, TreeHead
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import Effects
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from enc.node.imports.copied_manifest import CopiedManifest, copied_manifest
from enc.node.sequence.batch_overlay import BatchOverlay, NodeCache
from enc.node.signatures.import_check import CheckedSlice, ImportSignaturePool
from enc.node.store.steps import AppendRun, Step
from enc.node.store.store_interface import Staging, Store

SLICE_EVENTS, SLICE_BYTES = 1024, 4 << 20
"""Most events in one transaction, and most bytes of their contents and tags.

Commits to other enclaves wait no longer than such a transaction takes.
"""
SLICES_AHEAD = 4
"""Slices whose signatures are checked ahead of the replay."""
CACHED_NODES = 65_536
"""Tree nodes cached in memory."""


class StagingOverlay(BatchOverlay):
    """Reads earlier events and tree nodes of the log that is being staged."""

    def __init__(self, store: Store, staging: Staging) -> None:
        super().__init__(store, staging.name, None, NodeCache(CACHED_NODES))
        self._staging = staging

        self._events: dict[bytes, Event] = {}

    def target(self, event_id: bytes) -> Target | None:
        event = self._events.get(event_id)
        return target_of(event) if event else self._staging.target(event_id)

    def put(self, event: Event | None, transition: Transition) -> None:
        if transition.tree_nodes or transition.records:
            self.add(transition, None)
        if event is not None:
            self._events[event.id] = event

    def mark_written(self) -> None:
        super().mark_written()
        self._events = {}

    def forget_cached(self) -> None:
        self._cache = NodeCache(CACHED_NODES)


class UnboundedCommits(SeenCommits):
    """Events with missing contents, for a log of any length, in a temporary SQLite file.

    The staging area itself finds repeated commits.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("CREATE TABLE gone (id BLOB PRIMARY KEY, seq INTEGER NOT NULL, node BLOB) WITHOUT ROWID")

    def is_duplicate(self, event: Event) -> bool:
        return False

    def add(self, event: Event) -> None:
        """Do nothing: the staging area knows all commits."""

    def add_unexplained(self, event: Event) -> None:
        statement = signed_statement(event)
        node = None if statement is None else statement.node
        self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?, ?)", (event.id, event.seq, node))

    def explain(self, event_id: bytes) -> None:
        self._db.execute("DELETE FROM gone WHERE id = ?", (event_id,))

    def unexplained(self, nodes: Container[bytes]) -> int | None:
        return min(
            (seq for seq, node in self._db.execute("SELECT seq, node FROM gone") if node not in nodes), default=None
        )

    def close(self) -> None:
        self._db.close()


class StagedReplay:
    """Replays one log into a staging area.

    `write` stores steps there; `on_slice` is called after each stored slice. Without `checkers`, set
    them before the replay. The replay may go on later, with others.
    """

    last: Event
    """The last event replayed."""

    def __init__(
        self,
        store: Store,
        staging: Staging,
        key: Signer,
        enclave: bytes,
        held: EnclaveState | None,
        checkers: ImportSignaturePool | None,
        *,
        write: Callable[[Sequence[Step | AppendRun]], None],
        on_slice: Callable[["StagedReplay"], None] = lambda staged: None,
    ) -> None:
        self._store, self._key, self._enclave, self._held = store, key, enclave, held
        self.staging, self.checkers, self._write, self.on_slice = staging, checkers, write, on_slice
        self._overlay, self._seen_commits = StagingOverlay(store, staging), UnboundedCommits()
        self._checked: CheckedSlice | None = None
        self._log = Edge()
        self._copy: CopiedManifest | None = None
        """The copied Manifest that this log replaces."""
        self.replay = Replay(enclave, self._overlay, self._seen_commits, self._check)

    def _check(self, event: Event, enc_v: int) -> None:
        if self._checked is not None:
            self._checked.check(event, enc_v)

    def replay_events(self, events: Iterable[Event]) -> None:
        """Replay the log, or its next part. An invalid event raises ReplayFailed with its seq."""
        if self.checkers is None:
            raise MisuseError("a replay needs processes that check signatures")
        waiting, failure = deque[CheckedSlice](), None
        slices = _slices(events)
        while failure is None:
            try:
                slice_ = next(slices, None)
            except EncError as e:
                slice_, failure = None, e
            if slice_ is None:
                break
            waiting.append(self.checkers.submit(slice_))
            if len(waiting) > SLICES_AHEAD:
                self._replay_slice(waiting.popleft())
        while waiting:
            self._replay_slice(waiting.popleft())
        if failure is not None:
            raise failure

    def rest(self) -> None:
        """Free the memory that the replay can do without until it goes on."""
        self._overlay.forget_cached()
        self._checked = None

    def finish(self) -> None:
        """Check the end of the log; call it after the last event."""
        state = self.replay.finish()
        if self._held is not None and self._held.seq > state.seq:
            raise ReplayFailed(state.seq + 1, EnclaveExists("this node already holds more events of this log"))

    def check_replacement(self, state: EnclaveState) -> None:
        """Check, with the state at the log's end, that it may replace what this node holds."""
        if self._copy is not None:
            signers = [key for key, _ in self.replay.sequencers]
            self._copy.check_imported(state.seq, state.log.size, signers, self._key.public)

    def _replay_slice(self, checked: CheckedSlice) -> None:
        checked.wait()
        self._checked = checked
        steps = list[Step | AppendRun]()
        try:
            self._replay(checked.events, steps)
        finally:
            if steps:
                self._write(steps)  # also of a slice that fails: writing may find a repeated commit before the failure
        self._overlay.mark_written()
        self.on_slice(self)

    def _replay(self, events: Sequence[Event], steps: list[Step | AppendRun]) -> None:
        held_ids, at = self._held_ids(events[0].seq, len(events)), 0
        while at < len(events):
            end = at if held_ids else self.replay.add_run(events, at)
            if end > at:
                steps.append(AppendRun(events[at:end], self.replay.state))
            else:
                end = at + 1
                steps.append(self._replay_one(events[at], held_ids))
            at, self.last = end, events[end - 1]

    def _replay_one(self, event: Event, held_ids: dict[int, bytes]) -> Step:
        transition, effects = self.replay.add(event)
        if self._held is not None and held_ids.get(event.seq, event.id) != event.id:
            (stored,) = self._store.events(self._enclave, event.seq, 1)
            self._copy, self._held = copied_manifest(self._held, stored, event, self._key.public), None
        return self._step(transition, event, effects)

    def _held_ids(self, first: int, count: int) -> dict[int, bytes]:
        if self._held is None or first > self._held.seq:
            return {}
        return dict(enumerate(self._store.ids(self._enclave, first, min(count, self._held.seq + 1 - first)), first))

    def _step(self, transition: Transition, event: Event, effects: Effects) -> Step:
        subject = event.type
        if event.type in ("Update", "Delete"):
            target = self._overlay.target(revised_id(event))
            subject = transition.state.policy.subject(event, target).type
        return Step(
            transition=transition,
            event=event,
            effects=effects,
            subject=subject,
            heads=self._heads(transition) if transition.closed else (),
        )

    def _heads(self, transition: Transition) -> tuple[TreeHead | None, ...]:
        """Return a head for each new size: the one that this node signed before, or a new one; None
        if it must not sign one.
        """
        state, heads = transition.state, list[TreeHead | None]()
        for bundle in transition.closed:
            self._log = self._log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            size, root = self._log.size, self._log.root()
            if self._held is not None and size <= self._held.log.size:
                head = self._store.head(self._enclave, size)
                if head is not None and head.r != root:
                    last = bundle.first_seq + bundle.count - 1
                    failure = EnclaveExists(f"this node has signed a different tree head of size {size}")
                    raise ReplayFailed(last, failure)
            else:
                head = self._new_head(state, size, root, is_last=bundle is transition.closed[-1])
            heads.append(head)
        return tuple(heads)

    def _new_head(self, state: EnclaveState, size: int, root: bytes, *, is_last: bool) -> TreeHead | None:
        at: int | None = state.min_timestamp
        if self._copy is not None:
            is_end = is_last and state.sequencer == self._key.public
            at = self._copy.head_time(size, state.min_timestamp, is_last=is_end)
        return None if at is None else sign_head(self._key, self._enclave, at, size, root)

    def finalize(self, commit: Commit, clock: int) -> tuple[Event, EnclaveState]:
        """Turn a forced Migrate into this node's first event; nobody sees it before the log is
        adopted.
        """
        state = self.replay.state
        check_hash(commit, state.policy.enc_v)
        if state.sequencer == self._key.public and not state.migrated:
            raise InvalidCommit("new_sequencer: this node is the log's sequencer, and must not sign a second ending")
        effects = machine.judge(state, commit, self._overlay, sequencer=self._key.public, takeover=True)
        event = finalize(commit, self._key, machine.next_timestamp(state, commit, clock), state.seq + 1)
        transition = machine.apply(state, event, effects, self._overlay)
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
            if len(slice_) >= SLICE_EVENTS or size >= SLICE_BYTES:
                yield slice_
                slice_, size = [], 0
    except EncError:
        if slice_:
            yield slice_  # an earlier event may be invalid, too; then that error is reported
        raise
    if slice_:
        yield slice_
