"""Replay: read a log from its first event and believe nothing (docs/protocol.md, sections 7.3 and 18.2).

For each event, in this order:

 1. it is the next one: enclave, seq without gaps, the Manifest first; only what applications wrote may be erased
 2. commit hash, author's signature, sequencer's signature, id
 3. time: never before the event before it, at most a minute after `exp`, `exp` at most 61 minutes after it
 4. no commit hash occurs twice
 5. the sequencer is the expected one, or takes over by a Migrate that names it
 6. lifecycle and authorisation against the state before it; a Migrate's checkpoint
 7. a content that is gone has a cause: an Update or Delete, or an auto-delete tag

A node's own limits, quotas and clock are not asked. Memory grows with the events' metadata, not with contents.
"""

from heapq import heappop, heappush

from enc.core.commit import MAX_EXP_WINDOW_MS, SKEW_MS, manifest_version
from enc.core.content import revised_id
from enc.core.enclave import EnclaveState, Transition, apply, checkpoint_root, found, judge, judge_manifest, state_hash
from enc.core.errors import Duplicate, EncError, InvalidArchive, ReplayFailed
from enc.core.event import check_event, is_erasable, target_of
from enc.core.memory import EnclaveMemory
from enc.core.policy import Effects
from enc.core.types import PREDEFINED, Event


class Replay:
    """One log, event by event. `take` raises ReplayFailed, which names the seq and keeps the broken rule's code."""

    def __init__(self, enclave: bytes | None = None, store: EnclaveMemory | None = None) -> None:
        self.enclave = enclave
        self.store = store or EnclaveMemory()
        self.sequencers: list[tuple[bytes, int]] = []
        """Each sequencer with the seq of its first event."""
        self._state: EnclaveState | None = None
        self._seen: set[bytes] = set()
        self._seen_until: list[tuple[int, bytes]] = []
        self._unexplained: dict[bytes, int] = {}

    @property
    def state(self) -> EnclaveState:
        if self._state is None:
            raise InvalidArchive("the log is empty")
        return self._state

    @property
    def _predefined(self) -> frozenset[str]:
        return self._state.policy.predefined if self._state else PREDEFINED

    @property
    def events(self) -> int:
        return self._state.seq + 1 if self._state else 0

    def take(self, event: Event) -> tuple[Transition, Effects]:
        """The next event. The effects name, among others, the contents that must be gone after it."""
        try:
            transition, effects = self._take(event)
        except EncError as e:
            raise ReplayFailed(event.seq, e) from e
        self._state = transition.state
        self.store.put(event, transition)
        if not self.sequencers or self.sequencers[-1][0] != event.sequencer:
            self.sequencers.append((event.sequencer, event.seq))
        return transition, effects

    def finish(self) -> EnclaveState:
        """The state after the last event; by now every erased content must be explained."""
        if self._unexplained:
            seq = min(self._unexplained.values())
            raise ReplayFailed(seq, InvalidArchive("content: gone without an Update, a Delete or an auto-delete"))
        return self.state

    def state_hash(self) -> bytes:
        return state_hash(self.state, self.store)

    def checkpoint_root(self) -> bytes:
        return checkpoint_root(self.state, self.store)

    def _take(self, event: Event) -> tuple[Transition, Effects]:
        state = self._state
        self._check_place(event)
        check_event(event, state.policy.enc_v if state else manifest_version(event))
        self._check_time(event)
        if state is None:
            policy, effects = judge_manifest(event)
            transition = found(event, policy, effects)
        else:
            effects = judge(state, event, self.store, sequencer=event.sequencer, takeover=True)
            transition = apply(state, event, effects, self.store)
        self._remember(event)
        self._explain(event, effects)
        return transition, effects

    def _check_place(self, event: Event) -> None:
        if event.seq != self.events:
            raise InvalidArchive(f"seq: expected {self.events}")
        enclave = self._state.enclave if self._state else self.enclave
        if enclave is not None and event.enclave != enclave:
            raise InvalidArchive("enclave: an event of another enclave")
        if self._state is None and event.type != "Manifest":
            raise InvalidArchive("a log starts with its Manifest")
        if event.content is None and not is_erasable(event, self._predefined):
            raise InvalidArchive(f"content: a {event.type} is never erased")

    def _check_time(self, event: Event) -> None:
        if self._state is not None and event.timestamp < self._state.floor:
            raise InvalidArchive("timestamp: before that of the event before")
        if event.timestamp > event.exp + SKEW_MS:
            raise InvalidArchive("timestamp: more than 60 s after exp")
        if event.exp > event.timestamp + MAX_EXP_WINDOW_MS + SKEW_MS:
            raise InvalidArchive("exp: more than an hour after timestamp")
        if event.hash in self._seen:
            raise Duplicate("the commit stands in the log already")

    def _remember(self, event: Event) -> None:
        """Keep the hash as long as a repeat could still pass the time rule: the set is bounded by an hour's events."""
        while self._seen_until and self._seen_until[0][0] + SKEW_MS < event.timestamp:
            self._seen.discard(heappop(self._seen_until)[1])
        self._seen.add(event.hash)
        heappush(self._seen_until, (event.exp, event.hash))

    def _explain(self, event: Event, effects: Effects) -> None:
        for gone in effects.erases:
            self._unexplained.pop(gone, None)
        if event.content is not None:
            return
        target = self.store.target(revised_id(event)) if event.type == "Update" else None
        if not target_of(event).auto_delete and not (target and target.auto_delete):
            self._unexplained[event.id] = event.seq
