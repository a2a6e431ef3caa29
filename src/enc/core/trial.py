"""AuditReplay: replay a log as `replay` does, but go on after a fault, and note all of them (docs/audit.md).

A trial asks what a log must show by itself: that each event is the next one, that times never fall, that its sequencer
is the one that the Migrates made it, that the rules allowed it, that contents are gone for a cause. Signatures and
hashes are not asked: whoever holds a trial has them checked elsewhere, on as many cores as there are.

After a fault the trial goes on from what the log says, so that one fault is told once: a seq that was left out moves
the count, a time that fell is the time from which the next is measured, a stranger who took the sequencer's place
stays in it. An event that the rules refuse takes its place in the log and changes nothing else; what it would have
changed is not known, and so roots after a refused event that would have changed the state are not held against anybody
(`doubt`).
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from enc.core.bundle import closes_before
from enc.core.commit import MAX_EXP_WINDOW_MS, SKEW_MS
from enc.core.content import parse_migrate, revised_id
from enc.core.enclave import (
    EnclaveState,
    Transition,
    apply,
    apply_manifest,
    checkpoint_root,
    judge,
    judge_manifest,
    seal,
)
from enc.core.errors import EncError
from enc.core.event import check_time, is_withheld, target_of
from enc.core.fault import Fault, FaultKind
from enc.core.hashing import log_leaf
from enc.core.memory import EnclaveMemory
from enc.core.merkle_log import Edge
from enc.core.policy import Effects
from enc.core.replay import MAX_ALLOWED, ReplayStore, SeenCommits
from enc.core.state_key import LIFECYCLE_KEY, RBAC, STATUS, identity_key
from enc.core.types import Event

NOTHING = Effects()
_OF_NOBODY = frozenset("Update Delete Shared Own Pause Resume Terminate Migrate".split())
"""What changes slots, the lifecycle, and what became of events: nobody's rights."""
MAX_MISSING = 1 << 16
"""Places that were left out and may still be filled later: more of them are gaps at once."""

Step = Callable[[Event | None, Transition], None]
"""Told of each event, of what it closed and of the state after it; without an event, of a bundle that was closed."""


class AuditReplay:
    """One log, event by event. `take` never raises for what an event says; `faults` are all that were found so far."""

    def __init__(
        self,
        enclave: bytes,
        store: ReplayStore | None = None,
        seen_commits: SeenCommits | None = None,
        on_step: Step | None = None,
        check_erasures: bool = True,
        node_bundle_sizes: Mapping[int, int] | None = None,
        node_state_hashes: Mapping[int, bytes] | None = None,
    ) -> None:
        """Without `check_erasures`, an erased content needs no cause.

        Two mappings, by bundle index, hold faults of the node that are known already: `node_bundle_sizes` where
        it put another number of events into a bundle than the rule gives, and `node_state_hashes` where a
        bundle's state hash is not the log's. The replay takes them as given.
        """
        self.enclave, self.store = enclave, EnclaveMemory() if store is None else store
        self.faults: list[Fault] = []
        self.state: EnclaveState | None = None
        self.events = 0
        self.roots_unknown_from: int | None = None
        """The first event whose effects are not known: no root after it can be told."""
        self.sequencers: list[tuple[bytes, int]] = []
        """Each sequencer with the seq of its first event."""
        self.moves: list[int] = []
        """The seqs of the Migrates that stand."""
        self._seen_commits, self._on_step, self._checks_erasures = (
            seen_commits or SeenCommits(),
            on_step,
            check_erasures,
        )
        self._node_bundle_sizes, self._node_state_hashes = node_bundle_sizes or {}, node_state_hashes or {}
        self._allowed: dict[bytes, set[tuple[str, bytes]]] = {}
        """Of each identity, types and sequencers of content events that were allowed since its rights last changed."""
        self._rightful = b""
        self._held: set[bytes] = set()
        """The keys of `sequencers`."""
        self._strangers: set[bytes] = set()
        self._top = -1
        self._last: Event | None = None
        self._missing: dict[int, int] = {}
        """Seqs that were passed over, each with the seq of the event before which it is missing."""

    def add(self, event: Event) -> None:
        """The next event of the log, as the log has it."""
        self.events += 1
        if self.state is None:
            self._take_first(event)
        else:
            self._take_next(self.state, event)
        self._last = event

    def skip(self) -> None:
        """An event that cannot be read: its place is taken, and what it changed is not known."""
        self.events += 1
        self._top += 1
        self._doubt(self._top)

    def finish(self, *, sort: bool = True) -> list[Fault]:
        """All faults, once there are no more events: what is still missing is missing."""
        for seq, (first, last) in self._gaps():
            what = f"event {first} is missing" if first == last else f"events {first} to {last} are missing"
            self._note("gap", first, f"{what}: {self._before(first)} is followed by event {seq}", seq)
        self._missing.clear()
        for seq in self._seen_commits.all_unexplained() if self._checks_erasures else ():
            self._note(
                "erasure_without_cause", seq, "its content is gone without an Update, a Delete or an auto-delete"
            )
        if sort:
            self.faults.sort(key=lambda fault: (fault.seq, fault.kind))
        return self.faults

    def root(self) -> bytes | None:
        """The checkpoint root after the last event."""
        return None if self.state is None else checkpoint_root(self.state, self.store)

    def has_gap_at(self, seq: int) -> bool:
        """Whether a gap starts at a place, as far as the log is known."""
        before = self._missing.get(seq)
        return before is not None and self._missing.get(seq - 1) != before

    def term_end(self, key: bytes) -> int | None:
        """The event with which a sequencer's last term had ended; None: it had none, or still has it."""
        at = max((i for i, (each, _) in enumerate(self.sequencers) if each == key), default=None)
        return None if at is None or at + 1 == len(self.sequencers) else self.sequencers[at + 1][1]

    def _gaps(self) -> list[tuple[int, tuple[int, int]]]:
        runs: list[tuple[int, tuple[int, int]]] = []
        for seq, before in sorted(self._missing.items()):
            if runs and runs[-1][0] == before and runs[-1][1][1] == seq - 1:
                runs[-1] = before, (runs[-1][1][0], seq)
            else:
                runs.append((before, (seq, seq)))
        return runs

    def _before(self, seq: int) -> str:
        return f"event {seq - 1}" if seq else "nothing"

    def _note(self, kind: FaultKind, seq: int, what: str, before: int = -1) -> None:
        self.faults.append(Fault(kind=kind, seq=seq, what=what, before=before))

    def _doubt(self, seq: int) -> None:
        self.roots_unknown_from = seq if self.roots_unknown_from is None else min(self.roots_unknown_from, seq)

    # The first event

    def _take_first(self, event: Event) -> None:
        if event.seq != 0 or event.type != "Manifest" or event.enclave != self.enclave:
            if self.events == 1:
                kind: FaultKind = "gap" if event.seq else "unauthorised_event"
                self._note(kind, 0, "the log does not start with its Manifest: nothing in it can be judged", event.seq)
            self._doubt(0)
            return
        try:
            policy, effects = judge_manifest(event)
        except EncError as e:
            self._note("unauthorised_event", 0, f"the Manifest is none: {e.message}")
            self._doubt(0)
            return
        try:
            check_time(event)
        except EncError as e:
            self._note("unauthorised_event", 0, e.message)
        self._top, self._rightful = 0, event.sequencer
        self._signs(event)
        self._seen_commits.add(event)
        self._keep(event, apply_manifest(event, policy, effects))

    # Every other

    def _take_next(self, state: EnclaveState, event: Event) -> None:
        known = len(self.faults)
        if event.seq != self._top + 1:
            self._check_place(event)
        else:
            self._top = event.seq
        if (
            event.timestamp < state.min_timestamp
            or event.exp + SKEW_MS < event.timestamp
            or event.exp > event.timestamp + MAX_EXP_WINDOW_MS + SKEW_MS
        ):
            self._check_time(state, event, known)
        if event.sequencer != self._rightful:
            state = self._check_sequencer(state, event)
        elif state.sequencer != event.sequencer:
            state = replace(state, sequencer=event.sequencer)
        if self._node_bundle_sizes:
            state = self._draw(state, event)
        effects = self._effects(state, event, known)
        transition = apply(state, event, effects, self.store)
        if event.type in state.policy.predefined:
            self._forget(event.type, transition)
        self._seen_commits.add(event)
        if effects.erases or event.content is None:
            self._explain(event, effects)
        if effects.new_sequencer:
            self._move(event, effects.new_sequencer)
        if self.sequencers[-1][0] != event.sequencer:
            self._signs(event)
        self._keep(event, transition)

    def _signs(self, event: Event) -> None:
        """From this event on."""
        self.sequencers.append((event.sequencer, event.seq))
        self._held.add(event.sequencer)

    def _keep(self, event: Event | None, transition: Transition) -> None:
        if self._node_state_hashes and transition.closed:
            transition = self._claim(transition)
        self.state = transition.state
        self.store.put(event, transition)
        if self._on_step is not None:
            self._on_step(event, transition)

    def _draw(self, state: EnclaveState, event: Event) -> EnclaveState:
        """Close the open bundle where the node did, or keep it open where the node did."""
        bundle, size = state.bundle, self._node_bundle_sizes.get(state.log.size)
        if bundle is None or size is None:
            return state
        if bundle.count < size:
            is_late = closes_before(bundle, event, state.policy.bundle)
            held = replace(bundle, first_timestamp=event.timestamp, sequencer=event.sequencer)
            return replace(state, bundle=held) if is_late else state
        closing = seal(state, bundle.deadline(state.policy.bundle), self.store)
        if closing is None:
            return state
        self._keep(None, replace(closing, state=replace(closing.state, min_timestamp=state.min_timestamp)))
        return self.state or state

    def _claim(self, transition: Transition) -> Transition:
        """The log with the state hashes that the node put into it."""
        closed = [replace(b, state_hash=self._node_state_hashes.get(b.index, b.state_hash)) for b in transition.closed]
        if all(bundle in transition.closed for bundle in closed):
            return transition
        edge = self.state.log if self.state is not None else Edge()
        for bundle in closed:
            edge = edge.with_leaf(log_leaf(bundle.events_root, bundle.state_hash))
        return replace(transition, closed=tuple(closed), state=replace(transition.state, log=edge))

    def _check_place(self, event: Event) -> None:
        if event.seq > self._top:
            missing = range(self._top + 1, event.seq)
            if len(missing) + len(self._missing) > MAX_MISSING:
                what = f"events {missing[0]} to {missing[-1]} are missing"
                self._note(
                    "gap", missing[0], f"{what}: {self._before(missing[0])} is followed by {event.seq}", event.seq
                )
            else:
                self._missing.update(dict.fromkeys(missing, event.seq))
            self._top = event.seq
            return
        stands = f"event {event.seq} stands after event {self._last.seq if self._last else self._top}"
        if self._missing.pop(event.seq, None) is not None:
            self._note("reordering", event.seq, stands, self._last.seq if self._last else -1)
        else:
            self._note("reordering", event.seq, f"{stands}, and a second time", self._last.seq if self._last else -1)

    def _check_time(self, state: EnclaveState, event: Event, known: int) -> None:
        """Where the order is broken, the times are too: that is one fault."""
        if len(self.faults) > known:
            return
        if event.timestamp < state.min_timestamp:
            what = f"its timestamp is {state.min_timestamp - event.timestamp} ms before that of the event before it"
            self._note("falling_timestamp", event.seq, what, self._last.seq if self._last else -1)
            return
        try:
            check_time(event)
        except EncError as e:
            self._note("unauthorised_event", event.seq, e.message)

    def _check_sequencer(self, state: EnclaveState, event: Event) -> EnclaveState:
        """Another signs than the one who should: who takes over by a Migrate is judged as any author of one is."""
        if event.type == "Migrate" and _names(event, event.sequencer):
            return replace(state, sequencer=self._rightful)
        if event.sequencer not in self._strangers:
            self._strangers.add(event.sequencer)
            if self.moves and event.sequencer in self._held:
                what = f"{event.sequencer.hex()} made it after Migrate {self.moves[-1]} had ended its term"
                self._note("old_sequencer", event.seq, what, self.moves[-1])
            else:
                what = f"{event.sequencer.hex()} made it, and no Migrate names that key"
                self._note("sequencer_change", event.seq, what, self._last.seq if self._last else -1)
        return replace(state, sequencer=event.sequencer)

    def _effects(self, state: EnclaveState, event: Event, known: int) -> Effects:
        """What the event changes: nothing, where the rules refuse it."""
        allowed = self._allowed.get(event.from_)
        if (
            allowed
            and (event.type, event.sequencer) in allowed
            and state.lifecycle == "active"
            and not self._seen_commits.is_duplicate(event)
            and event.enclave == self.enclave
        ):
            return NOTHING
        try:
            return self._judge(state, event)
        except EncError as e:
            return self._refused(state, event, e, known)

    def _forget(self, type_: str, transition: Transition) -> None:
        """What a predefined event may have changed of what was allowed.

        Content events are allowed by what their author is and by gates, while the enclave is active, and by nothing
        else. A registry's are judged one by one.
        """
        if type_ in _OF_NOBODY:
            return
        changed = transition.leaves
        if type_ == "Gate" or any(key[:1] not in (RBAC, STATUS) for key in changed if key != LIFECYCLE_KEY):
            self._allowed.clear()
            return
        for identity in [each for each in self._allowed if identity_key(each) in changed]:
            del self._allowed[identity]

    def _judge(self, state: EnclaveState, event: Event) -> Effects:
        if event.enclave != self.enclave:
            raise _refusal("it is an event of another enclave")
        if self._seen_commits.is_duplicate(event):
            raise _refusal("its commit stands in the log already")
        if is_withheld(event, state.policy.predefined):
            raise _Erased(f"the content of a {event.type} is never erased")
        effects = judge(state, event, self.store, sequencer=event.sequencer, takeover=True)
        if event.type not in state.policy.predefined and not state.policy.registry and effects == NOTHING:
            if len(self._allowed) >= MAX_ALLOWED:
                self._allowed.clear()
            self._allowed.setdefault(event.from_, set()).add((event.type, event.sequencer))
        return effects

    def _refused(self, state: EnclaveState, event: Event, error: EncError, known: int) -> Effects:
        is_plain = event.type not in state.policy.predefined and not state.policy.registry
        migrate = event.type == "Migrate" and event.content is not None
        if isinstance(error, _Erased):
            self._note("erasure_without_cause", event.seq, error.message)
        elif migrate and _new_sequencer(event) is not None:
            what = f"the Migrate to {(_new_sequencer(event) or b'').hex()} is not valid: {error.message}"
            self._note("sequencer_change", event.seq, what)
        else:
            self._note("unauthorised_event", event.seq, f"a {event.type} that the rules refuse: {error.message}")
        if not is_plain:
            self._doubt(event.seq)
        if migrate and (key := _new_sequencer(event)) is not None:
            return Effects(lifecycle="migrated", new_sequencer=key)
        return NOTHING

    def _move(self, event: Event, key: bytes) -> None:
        self._rightful = key
        self._strangers.discard(key)
        self.moves.append(event.seq)

    def _explain(self, event: Event, effects: Effects) -> None:
        for gone in effects.erases:
            self._seen_commits.explain(gone)
        if event.content is not None or not self._checks_erasures:
            return
        if event.type != "Update" and event.type in (self.state.policy.predefined if self.state else ()):
            return
        target = self.store.target(revised_id(event)) if event.type == "Update" else None
        if not target_of(event).auto_delete and not (target and target.auto_delete):
            self._seen_commits.add_unexplained(event)


class _Refusal(EncError):
    """A rule of the log itself."""


class _Erased(_Refusal):
    """A content is gone that no rule lets go."""


def _refusal(message: str) -> EncError:
    return _Refusal(message)


def _new_sequencer(event: Event) -> bytes | None:
    try:
        return parse_migrate(event).new_sequencer
    except EncError:
        return None


def _names(event: Event, key: bytes) -> bool:
    return _new_sequencer(event) == key
