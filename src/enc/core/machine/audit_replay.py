"""AuditReplay: replay a log as `replay` does, but continue after a fault and record all of them
(docs/audit.md).

An audit replay checks what a log proves by itself: that each event is the next one, that timestamps
never fall, that the sequencer is the one that the Migrates appointed, that the rules allowed the
event, and that missing contents have a cause. It does not check signatures and hashes: its callers
check them elsewhere, on as many cores as there are. Only the statements of nodes that withhold a
content are checked here; such a content is not a fault.

After a fault the replay continues from the log's own values, so that one fault is reported once. A
missing seq moves the count; after a falling timestamp, the next is compared with the lower one; an
unknown key that signs as the sequencer counts as the sequencer. An event that the rules reject
keeps its place in the log and changes nothing else. What it would have changed is unknown, so roots
after a rejected event that would have changed the state are not reported as faults
(`roots_unknown_from`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.log.event import check_time, lacks_required_content, target_of
from enc.core.machine.enclave import apply, apply_manifest, checkpoint_root, judge, judge_manifest, seal
from enc.core.machine.fault import Fault, FaultKind
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.missing_seqs import MissingSeqs
from enc.core.machine.replay import MAX_ALLOWED, ReplayStore, SeenCommits
from enc.core.machine.state import EnclaveState, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, Withheld
from enc.core.rules.content import parse_migrate, revised_id
from enc.core.rules.policy_types import Effects, kept_types
from enc.core.trees.bundle import closes_before
from enc.core.trees.merkle_log import Edge
from enc.core.trees.state_key import RBAC, STATUS, identity_key

NOTHING = Effects()
_KEEPS_RIGHTS = frozenset("Update Delete Pause Resume Terminate Migrate Shared Own".split())
"""Types that change slots, the lifecycle or the status of events, but no rights."""

_NOTHING_KNOWN: Mapping[int, Any] = {}

StepCallback = Callable[[Event | None, Transition], None]
"""Called with each event and its transition; without an event, with the closing of a bundle."""


class AuditReplay:
    """One log, event by event. `add` never raises for an invalid event; `faults` lists all faults
    found so far."""

    def __init__(
        self,
        enclave: bytes,
        store: ReplayStore | None = None,
        seen_commits: SeenCommits | None = None,
        on_step: StepCallback | None = None,
        check_erasures: bool = True,
        node_bundle_sizes: Mapping[int, int] = _NOTHING_KNOWN,
        node_state_hashes: Mapping[int, bytes] = _NOTHING_KNOWN,
    ) -> None:
        """Without `check_erasures`, a missing content needs no cause.

        Two mappings, by bundle index, hold faults of the node that are known already:
        `node_bundle_sizes` where it put another number of events into a bundle than the rule gives,
        and `node_state_hashes` where a bundle's state hash is not the log's. The replay takes them
        as given.
        """
        self.enclave, self.store = enclave, EnclaveMemory() if store is None else store
        self.faults: list[Fault] = []
        self.state: EnclaveState | None = None
        self.events = 0
        self.roots_unknown_from: int | None = None
        """The first event whose effects are unknown: roots after it cannot be computed."""
        self.sequencers: list[tuple[bytes, int]] = []
        """Each sequencer with the seq of its first event."""
        self.moves: list[int] = []
        """The seqs of the valid Migrates."""
        self.withheld: list[tuple[int, Withheld]] = []
        """After `finish`: the seqs of the contents that nodes of this log withhold, with their
        statements."""
        self._seen_commits = seen_commits or SeenCommits()
        self._on_step, self._checks_erasures = on_step, check_erasures
        self._node_bundle_sizes, self._node_state_hashes = node_bundle_sizes, node_state_hashes
        self._allowed: dict[bytes, set[tuple[str, bytes]]] = {}
        """By identity, types and sequencers of content events that were allowed since its rights
        last changed."""
        self._expected_sequencer: bytes
        self._held: set[bytes] = set()
        """The keys of `sequencers`."""
        self._appointed: set[bytes] = set()
        """The first sequencer, and those that accepted Migrates name: only their statements count."""
        self._unknown_sequencers: set[bytes] = set()
        self._top = -1
        self._last_seq: int
        self._missing = MissingSeqs()

    def add(self, event: Event) -> None:
        """Check and apply the next event, in the order of the log."""
        self.events += 1
        if self.state is None:
            self._add_first(event)
        else:
            self._add_next(self.state, event)
        self._last_seq = event.seq

    def skip(self) -> None:
        """Count an event that cannot be read. It keeps its place; its effects are unknown."""
        self.events += 1
        self._top += 1
        self._mark_unknown(self._top)

    def finish(self, *, sort: bool = True) -> list[Fault]:
        """Return all faults at the end of the log; seqs that are still missing become gaps."""
        for gap in self._missing.take_gaps():
            self._add_fault("gap", gap.first, str(gap), gap.before)
        if self._checks_erasures:
            self._check_missing()
        if sort:
            self.faults.sort(key=lambda fault: (fault.seq, fault.kind))
        return self.faults

    def _check_missing(self) -> None:
        """Sort the contents that no event erases into withheld ones and faults."""
        what = (
            "its content is missing from this copy, without an Update, a Delete, an auto-delete or a valid statement "
            "of the node"
        )
        for seq in self._seen_commits.all_unexplained(self._appointed):
            self._add_fault("erasure_without_cause", seq, what)
        self.withheld = self._seen_commits.withheld(self._appointed)

    def root(self) -> bytes | None:
        """Return the checkpoint root after the last event; None without a Manifest."""
        return None if self.state is None else checkpoint_root(self.state, self.store)

    def has_gap_at(self, seq: int) -> bool:
        """Return whether a gap starts at this seq, so far."""
        return self._missing.has_gap_at(seq)

    def term_end(self, key: bytes) -> int | None:
        """Return the seq at which a sequencer's last term had ended; None if it had none or it has
        not ended."""
        at = max((i for i, (each, _) in enumerate(self.sequencers) if each == key), default=None)
        return None if at is None or at + 1 == len(self.sequencers) else self.sequencers[at + 1][1]

    def _add_fault(self, kind: FaultKind, seq: int, what: str, before: int = -1) -> None:
        self.faults.append(Fault(kind=kind, seq=seq, what=what, before=before))

    def _mark_unknown(self, seq: int) -> None:
        self.roots_unknown_from = seq if self.roots_unknown_from is None else min(self.roots_unknown_from, seq)

    # The first event

    def _add_first(self, event: Event) -> None:
        if event.seq != 0 or event.type != "Manifest" or event.enclave != self.enclave:
            if self.events == 1:
                kind: FaultKind = "gap" if event.seq else "unauthorised_event"
                what = "the log does not start with its Manifest: nothing in it can be judged"
                self._add_fault(kind, 0, what, event.seq)
            self._mark_unknown(0)
            return
        if event.content is None:
            self._add_fault("erasure_without_cause", 0, _missing(event))
            self._mark_unknown(0)
            return
        try:
            policy, effects = judge_manifest(event)
        except EncError as e:
            self._add_fault("unauthorised_event", 0, f"the Manifest is not valid: {e.message}")
            self._mark_unknown(0)
            return
        try:
            check_time(event)
        except EncError as e:
            self._add_fault("unauthorised_event", 0, e.message)
        self._top, self._expected_sequencer = 0, event.sequencer
        self._appointed.add(event.sequencer)
        self._signs(event)
        self._seen_commits.add(event)
        self._keep(event, apply_manifest(event, policy, effects))

    # The events after it

    def _add_next(self, state: EnclaveState, event: Event) -> None:
        known = len(self.faults)
        if event.seq != self._top + 1:
            self._check_place(event)
        else:
            self._top = event.seq
        self._check_time(state, event, known)
        if event.sequencer != self._expected_sequencer:
            state = self._check_sequencer(state, event)
        elif state.sequencer != event.sequencer:
            state = replace(state, sequencer=event.sequencer)
        if self._node_bundle_sizes:
            state = self._follow_boundaries(state, event)
        effects = self._effects(state, event, known)
        transition = apply(state, event, effects, self.store)
        if event.type in state.policy.predefined:
            self._forget(event.type, transition)
        self._seen_commits.add(event)
        if effects.erases or event.content is None:
            self._explain(state, event, effects)
        if effects.new_sequencer:
            self._move(event, effects.new_sequencer)
        if self.sequencers[-1][0] != event.sequencer:
            self._signs(event)
        self._keep(event, transition)

    def _signs(self, event: Event) -> None:
        """Record that its sequencer signs from this event on."""
        self.sequencers.append((event.sequencer, event.seq))
        self._held.add(event.sequencer)

    def _keep(self, event: Event | None, transition: Transition) -> EnclaveState:
        if transition.closed:
            transition = self._follow_state_hashes(transition)
        self.state = transition.state
        self.store.put(event, transition)
        if self._on_step is not None:
            self._on_step(event, transition)
        return transition.state

    def _follow_boundaries(self, state: EnclaveState, event: Event) -> EnclaveState:
        """Close the open bundle where the node closed it, and keep it open where the node did
        not."""
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
        return self._keep(None, replace(closing, state=replace(closing.state, min_timestamp=state.min_timestamp)))

    def _follow_state_hashes(self, transition: Transition) -> Transition:
        """Return the transition with the state hashes that the node put into the log."""
        closed = [replace(b, state_hash=self._node_state_hashes.get(b.index, b.state_hash)) for b in transition.closed]
        if all(bundle in transition.closed for bundle in closed):
            return transition
        edge = self.state.log if self.state is not None else Edge()
        for bundle in closed:
            edge = edge.with_leaf(log_leaf(bundle.events_root, bundle.state_hash))
        return replace(transition, closed=tuple(closed), state=replace(transition.state, log=edge))

    def _check_place(self, event: Event) -> None:
        if event.seq > self._top:
            gap = self._missing.skip(range(self._top + 1, event.seq), event.seq)
            if gap is not None:
                self._add_fault("gap", gap.first, str(gap), gap.before)
            self._top = event.seq
            return
        what = f"event {event.seq} comes after event {self._last_seq}"
        if not self._missing.found(event.seq):
            what = f"{what}, and for the second time"
        self._add_fault("reordering", event.seq, what, self._last_seq)

    def _check_time(self, state: EnclaveState, event: Event, known: int) -> None:
        """Check the timestamp, unless the order is broken here too: that counts as one fault."""
        if len(self.faults) > known:
            return
        if event.timestamp < state.min_timestamp:
            what = f"its timestamp is {state.min_timestamp - event.timestamp} ms before the previous event's"
            self._add_fault("falling_timestamp", event.seq, what, self._last_seq)
            return
        try:
            check_time(event)
        except EncError as e:
            self._add_fault("unauthorised_event", event.seq, e.message)

    def _check_sequencer(self, state: EnclaveState, event: Event) -> EnclaveState:
        """Handle an event of another sequencer than the expected one. A takeover by a Migrate is
        judged like any other."""
        if event.type == "Migrate" and _names_sequencer(event, event.sequencer):
            return replace(state, sequencer=self._expected_sequencer)
        if event.sequencer not in self._unknown_sequencers:
            self._unknown_sequencers.add(event.sequencer)
            if self.moves and event.sequencer in self._held:
                what = f"{event.sequencer.hex()} signed it after Migrate {self.moves[-1]} had ended its term"
                self._add_fault("old_sequencer", event.seq, what, self.moves[-1])
            else:
                what = f"{event.sequencer.hex()} signed it, and no Migrate names that key"
                self._add_fault("sequencer_change", event.seq, what, self._last_seq)
        return replace(state, sequencer=event.sequencer)

    def _effects(self, state: EnclaveState, event: Event, known: int) -> Effects:
        """Return what the event changes; nothing if the rules reject it."""
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
            return self._reject(state, event, e, known)

    def _forget(self, type_: str, transition: Transition) -> None:
        """Drop cached permissions that a predefined event may have changed.

        While the enclave is active, only the author's rights and the gates decide about a content
        event. The entries of a registry have effects, so they are judged one by one.
        """
        if type_ in _KEEPS_RIGHTS:
            return
        changed = transition.leaves
        if any(key[:1] not in (RBAC, STATUS) for key in changed):
            self._allowed.clear()
            return
        for identity in [each for each in self._allowed if identity_key(each) in changed]:
            del self._allowed[identity]

    def _judge(self, state: EnclaveState, event: Event) -> Effects:
        if event.enclave != self.enclave:
            raise _refusal("it belongs to another enclave")
        if self._seen_commits.is_duplicate(event):
            raise _refusal("the commit is already in the log")
        if event.content is None and lacks_required_content(event, kept_types(state.policy)):
            raise _Erased(_missing(event))
        effects = judge(state, event, self.store, sequencer=event.sequencer, takeover=True)
        if effects.new_sequencer:
            self._appointed.add(effects.new_sequencer)
        if event.type not in state.policy.predefined and effects == NOTHING:
            if len(self._allowed) >= MAX_ALLOWED:
                self._allowed.clear()
            self._allowed.setdefault(event.from_, set()).add((event.type, event.sequencer))
        return effects

    def _reject(self, state: EnclaveState, event: Event, error: EncError, known: int) -> Effects:
        is_plain = event.type not in state.policy.predefined and not state.policy.registry
        new_sequencer = _new_sequencer(event) if event.type == "Migrate" else None
        if isinstance(error, _Erased):
            self._add_fault("erasure_without_cause", event.seq, error.message)
        elif new_sequencer is not None:
            what = f"the Migrate to {new_sequencer.hex()} is not valid: {error.message}"
            self._add_fault("sequencer_change", event.seq, what)
        else:
            self._add_fault("unauthorised_event", event.seq, f"the rules reject this {event.type}: {error.message}")
        if not is_plain:
            self._mark_unknown(event.seq)
        return NOTHING if new_sequencer is None else Effects(lifecycle="migrated", new_sequencer=new_sequencer)

    def _move(self, event: Event, key: bytes) -> None:
        self._expected_sequencer = key
        self._unknown_sequencers.discard(key)
        self.moves.append(event.seq)

    def _explain(self, state: EnclaveState, event: Event, effects: Effects) -> None:
        for gone in effects.erases:
            self._seen_commits.explain(gone)
        if event.content is not None or not self._checks_erasures:
            return
        if lacks_required_content(event, kept_types(state.policy)):
            return
        target = self.store.target(revised_id(event)) if event.type == "Update" else None
        if not target_of(event).auto_delete and not (target and target.auto_delete):
            self._seen_commits.add_unexplained(event)


class _Refusal(EncError):
    """The event breaks a rule of the log itself."""


class _Erased(_Refusal):
    """A content is erased that no rule allows to be erased."""


def _refusal(message: str) -> EncError:
    return _Refusal(message)


def _missing(event: Event) -> str:
    return f"the content of this {event.type}, which no rule lets anyone erase, is missing from this copy"


def _new_sequencer(event: Event) -> bytes | None:
    try:
        return parse_migrate(event).new_sequencer
    except EncError:
        return None


def _names_sequencer(event: Event, key: bytes) -> bool:
    return _new_sequencer(event) == key
