"""Replay: verify a log from its first event on (docs/protocol.md, sections 7.3 and 18.2).

Checked for each event, in this order:

 1. it is the next one: enclave, seq without gaps, the Manifest first; only content events may lack it
 2. commit hash, author's signature, sequencer's signature, id
 3. its timestamp is not before the previous event's, at most a minute after `exp`, and at most 61 minutes before it
 4. no commit hash occurs twice
 5. the sequencer is the expected one, or takes over by a Migrate that names it
 6. lifecycle and authorisation against the state before it; a Migrate's checkpoint
 7. a missing content has a cause: an Update or Delete, an auto-delete tag, or a node's statement
    that it withholds the content

A node's own limits, quotas and clock do not matter. Memory grows with the events' metadata, not
with contents, unless the caller passes a store and seen commits that are kept elsewhere.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from msgspec.structs import replace

from enc.core.errors import Duplicate, EncError, InvalidArchive, ReplayFailed
from enc.core.log.commit import SKEW_MS, manifest_version
from enc.core.log.event import check_content_present, check_event, check_time, signed_statement, target_of
from enc.core.machine.enclave import apply, apply_manifest, checkpoint_root, judge, judge_manifest, state_hash
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import EnclaveState, StoredEnclave, Transition
from enc.core.primitives.types import PREDEFINED, Event, Withheld
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import Effects, kept_types
from enc.core.trees.bundle import OpenBundle

MAX_ALLOWED = 65_536
_NOTHING = Effects()


class ReplayStore(StoredEnclave, Protocol):
    """Storage of a log in replay: a StoredEnclave that also stores what each event adds."""

    def put(self, event: Event | None, transition: Transition) -> None: ...


class SeenCommits:
    """Commit hashes that a replay has seen, and missing contents that have no cause so far.

    A node's statement that it withholds a content counts or not by the log's end, which shows all
    sequencers: the methods that look at statements take their keys.
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._seen_until: list[tuple[int, bytes]] = []
        self._unexplained: dict[bytes, int] = {}
        self._stated: dict[bytes, tuple[int, Withheld]] = {}
        """By event id, the seq of a content with a statement, which any key may have signed."""

    def is_duplicate(self, event: Event) -> bool:
        return event.hash in self._seen

    def add(self, event: Event) -> None:
        """Store the hash until a duplicate could no longer pass the time rule, which bounds the set
        to an hour's events."""
        while self._seen_until and self._seen_until[0][0] + SKEW_MS < event.timestamp:
            self._seen.discard(heappop(self._seen_until)[1])
        self._seen.add(event.hash)
        heappush(self._seen_until, (event.exp, event.hash))

    def add_unexplained(self, event: Event) -> None:
        """Store that the event's content is missing without an Update, a Delete or an auto-delete
        so far."""
        statement = signed_statement(event)
        if statement is None:
            self._unexplained[event.id] = event.seq
        else:
            self._stated[event.id] = event.seq, statement

    def explain(self, event_id: bytes) -> None:
        if self._unexplained.pop(event_id, None) is None:
            self._stated.pop(event_id, None)

    def unexplained(self, nodes: Container[bytes]) -> int | None:
        """Return the first seq whose content is missing without a cause, and without a statement of
        one of the nodes."""
        return min(self.all_unexplained(nodes), default=None)

    def all_unexplained(self, nodes: Container[bytes]) -> list[int]:
        """Return all such seqs, in order."""
        foreign = [seq for seq, statement in self._statements() if statement.node not in nodes]
        return sorted([*self._unexplained.values(), *foreign])

    def withheld(self, nodes: Container[bytes]) -> list[tuple[int, Withheld]]:
        """Return the seqs of contents that one of the nodes withholds, in order, with its
        statements. A content that is erased, too, is not among them."""
        found = [each for each in self._statements() if each[1].node in nodes]
        return sorted(found, key=lambda each: each[0])

    def _statements(self) -> Iterable[tuple[int, Withheld]]:
        return self._stated.values()


class Replay:
    """One log, event by event. `add` raises ReplayFailed, which names the seq and has the broken
    rule's code."""

    def __init__(
        self,
        enclave: bytes | None = None,
        store: ReplayStore | None = None,
        seen_commits: SeenCommits | None = None,
        check: Callable[[Event, int], None] = check_event,
    ) -> None:
        """`check` is check_event or an equivalent, for callers that check signatures elsewhere."""
        self.enclave = enclave
        self.store: ReplayStore = EnclaveMemory() if store is None else store
        self.sequencers: list[tuple[bytes, int]] = []
        """Each sequencer with the seq of its first event."""
        self._state: EnclaveState | None = None
        self._seen_commits, self._check = seen_commits or SeenCommits(), check
        self._allowed: set[tuple[str, bytes, bytes]] = set()
        """Type, author and sequencer of content events that were allowed since the last change of
        the state."""

    @property
    def state(self) -> EnclaveState:
        if self._state is None:
            raise InvalidArchive("the log is empty")
        return self._state

    @property
    def _kept(self) -> frozenset[str]:
        return kept_types(self._state.policy) if self._state else PREDEFINED

    @property
    def events(self) -> int:
        return self._state.seq + 1 if self._state else 0

    def add(self, event: Event) -> tuple[Transition, Effects]:
        """Verify and apply the next event. The effects include the contents that must be erased
        after it."""
        try:
            transition, effects = self._step(event)
        except EncError as e:
            raise ReplayFailed(event.seq, e) from e
        self._state = transition.state
        self.store.put(event, transition)
        if not self.sequencers or self.sequencers[-1][0] != event.sequencer:
            self.sequencers.append((event.sequencer, event.seq))
        return transition, effects

    def add_run(self, events: Sequence[Event], at: int) -> int:
        """Apply events from number `at` on that only extend the log; return the number of the first
        that does more.

        Most of a log is such runs, and this does once for a run what `add` does for each event. If
        the event after the run is invalid, `add` raises the error.
        """
        state = self._state
        if state is None or state.bundle is None:
            return at
        run = events[at : self._end_of_run(state, state.bundle, events, at)]
        if run:
            seq, min_timestamp, bundle = run[-1].seq, run[-1].timestamp, state.bundle.add_all(run)
            self._state = replace(
                state, seq=seq, min_timestamp=min_timestamp, sequencer=run[-1].sequencer, bundle=bundle
            )
            transition = Transition(state=self._state)
            for event in run:
                self.store.put(event, transition)
        return at + len(run)

    def _end_of_run(self, state: EnclaveState, bundle: OpenBundle, events: Sequence[Event], at: int) -> int:
        """Check each as `_step` does, while the bundle stays open and events like it were
        allowed."""
        policy, allowed, check, seen_commits = state.policy, self._allowed, self._check, self._seen_commits
        room, deadline = policy.bundle.size - 1 - bundle.count, bundle.deadline(policy.bundle)
        seq, min_timestamp = state.seq, state.min_timestamp
        for event in events[at : at + max(room, 0)]:
            is_next = event.seq == seq + 1 and event.enclave == state.enclave and event.content is not None
            is_allowed = (event.type, event.from_, event.sequencer) in allowed and event.sequencer == bundle.sequencer
            if not (
                is_next and is_allowed and min_timestamp <= event.timestamp < deadline
            ) or seen_commits.is_duplicate(event):
                break
            try:
                check(event, policy.enc_v)
                check_time(event)
            except EncError:
                break
            seen_commits.add(event)
            at, seq, min_timestamp = at + 1, event.seq, event.timestamp
        return at

    def finish(self) -> EnclaveState:
        """Return the state after the last event; raise ReplayFailed if a missing content has no
        cause."""
        seq = self._seen_commits.unexplained(self.nodes)
        if seq is not None:
            what = "content: missing without an Update, a Delete, an auto-delete or a statement of the node"
            raise ReplayFailed(seq, InvalidArchive(what))
        return self.state

    def withheld(self) -> list[tuple[int, Withheld]]:
        """Return the seqs of the contents that nodes of this log withhold, in order, with their
        statements. Call it after the last event."""
        return self._seen_commits.withheld(self.nodes)

    @property
    def nodes(self) -> frozenset[bytes]:
        """The keys of all sequencers so far, and of the one that is expected next: only their
        statements count."""
        return frozenset(key for key, _ in self.sequencers) | {self.state.sequencer}

    def state_hash(self) -> bytes:
        return state_hash(self.state, self.store)

    def checkpoint_root(self) -> bytes:
        return checkpoint_root(self.state, self.store)

    def _step(self, event: Event) -> tuple[Transition, Effects]:
        state = self._state
        self._check_place(event)
        self._check(event, state.policy.enc_v if state else manifest_version(event))
        self._check_time(event)
        if state is None:
            policy, effects = judge_manifest(event)
            transition = apply_manifest(event, policy, effects)
        else:
            effects = self._judge(state, event)
            transition = apply(state, event, effects, self.store)
            if transition.leaves or event.type in state.policy.predefined:
                self._allowed.clear()
        self._seen_commits.add(event)
        self._explain(event, effects)
        return transition, effects

    def _judge(self, state: EnclaveState, event: Event) -> Effects:
        """Judge an event. Outside a registry, type, author and state decide about a content event,
        so results are cached."""
        asked = event.type, event.from_, event.sequencer
        if asked in self._allowed:
            return _NOTHING
        effects = judge(state, event, self.store, sequencer=event.sequencer, takeover=True)
        if event.type not in state.policy.predefined and not state.policy.registry and effects == _NOTHING:
            if len(self._allowed) >= MAX_ALLOWED:
                self._allowed.clear()
            self._allowed.add(asked)
        return effects

    def _check_place(self, event: Event) -> None:
        state = self._state
        if event.seq != (0 if state is None else state.seq + 1):
            raise InvalidArchive(f"seq: expected {self.events}")
        enclave = self.enclave if state is None else state.enclave
        if enclave is not None and event.enclave != enclave:
            raise InvalidArchive("enclave: an event of another enclave")
        if state is None and event.type != "Manifest":
            raise InvalidArchive("a log starts with its Manifest")
        check_content_present(event, self._kept)

    def _check_time(self, event: Event) -> None:
        if self._state is not None and event.timestamp < self._state.min_timestamp:
            raise InvalidArchive("timestamp: before the previous event's")
        check_time(event)
        if self._seen_commits.is_duplicate(event):
            raise Duplicate("the commit is already in the log")

    def _explain(self, event: Event, effects: Effects) -> None:
        for gone in effects.erases:
            self._seen_commits.explain(gone)
        if event.content is not None:
            return
        target = self.store.target(revised_id(event)) if event.type == "Update" else None
        if not target_of(event).auto_delete and not (target and target.auto_delete):
            self._seen_commits.add_unexplained(event)
