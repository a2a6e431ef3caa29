"""What a replay records for checking heads and claims: roots at sizes, bundles by index, ids of
events."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.claim import Claim
from enc.core.machine.enclave import state_hash
from enc.core.machine.fault import FaultKind
from enc.core.machine.state import ClosedBundle, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event
from enc.core.trees.bundle import events_root
from enc.core.trees.merkle_log import Edge


class ObservedRoot(Struct, frozen=True):
    """The log at one size: its root, and the last event that it covers."""

    root: bytes
    seq: int
    sequencer: bytes
    end: int
    """How many events of the log it covers."""
    is_closed: bool
    """Whether events of its own sequencer closed the last bundle by the rule, rather than the clock
    or another key."""
    closed_by: int
    """Number of the event that closed the last bundle, or would: its own last one, or the next."""


class ObservedBundle(Struct, frozen=True):
    """One bundle as the log's own events give it."""

    first_seq: int
    first_at: int
    """Number of its first event in the log, counted from 0: its seq, unless seqs are missing before
    it."""
    count: int
    last_seq: int
    events_root: bytes
    state_hash: bytes
    is_closed: bool
    closed_by: int
    """As in ObservedRoot."""


class EventPosition(Struct, frozen=True):
    """An event of the log: its id, and its number, counted from 0."""

    id: bytes
    at: int


class ObservedRoots:
    """Records an AuditReplay: pass `step` as its `on_step`, and call `end` after the last event."""

    def __init__(self, sizes: Iterable[int], claims: Iterable[Claim] = ()) -> None:
        claims = list(claims)
        self._sizes = frozenset(sizes)
        self._claimed, self._places = frozenset(c.index for c in claims), frozenset(c.seq for c in claims)
        self._edge = Edge()
        self._marks: dict[int, ObservedRoot] = {}
        self.bundles: dict[int, ObservedBundle] = {}
        self.places: dict[int, EventPosition] = {}
        self._last, self._events = (-1, b""), 0

    def at(self, size: int) -> ObservedRoot | None:
        return self._marks.get(size)

    @property
    def roots(self) -> dict[int, ObservedRoot]:
        return self._marks

    def step(self, event: Event | None, transition: Transition) -> None:
        if event is None:
            for bundle in transition.closed:
                self._close(bundle, self._last, self._events)
            return
        if event.seq in self._places:
            self.places.setdefault(event.seq, EventPosition(event.id, self._events))
        for i, bundle in enumerate(transition.closed):
            has_event = i == len(transition.closed) - 1 and transition.state.bundle is None
            last = (event.seq, event.sequencer) if has_event else self._last
            self._close(bundle, last, self._events + has_event, event.sequencer == last[1])
        self._last = event.seq, event.sequencer
        self._events += 1

    def _close(self, bundle: ClosedBundle, last: tuple[int, bytes], end: int, is_closed: bool = True) -> None:
        """Record a closed bundle; `end` is the number of events up to its last."""
        self._edge = self._edge.with_leaf(log_leaf(bundle.events_root, bundle.state_hash))
        if self._edge.size in self._sizes:
            self._marks[self._edge.size] = ObservedRoot(self._edge.root(), *last, end, is_closed, self._events)
        if bundle.index in self._claimed:
            roots = bundle.events_root, bundle.state_hash
            first = bundle.first_seq, end - bundle.count
            self.bundles[bundle.index] = ObservedBundle(*first, bundle.count, last[0], *roots, is_closed, self._events)

    def end(self, replay: AuditReplay) -> None:
        """Record the bundle that is still open, as far as it goes."""
        state = replay.state
        if state is None or state.bundle is None:
            return
        open_, index, root = state.bundle, state.log.size, replay.root()
        if index + 1 in self._sizes and root is not None:
            self._marks[index + 1] = ObservedRoot(root, state.seq, self._last[1], self._events, False, self._events)
        if index in self._claimed:
            roots = open_.events_root(), state_hash(state, replay.store)
            first = open_.first_seq, self._events - open_.count
            self.bundles[index] = ObservedBundle(*first, open_.count, state.seq, *roots, False, self._events)


def contradiction(claim: Claim, bundle: ObservedBundle, at: int) -> tuple[FaultKind, int, str] | None:
    """Return how a proved claim contradicts the log's own bundle: kind, seq and description; None
    if it does not.

    `at` is the number of the claim's event in the log, counted from 0. Anyone can write another
    size or index of the same padded tree into a node's proof, so a bundle with the log's own
    `events_root` has the log's own boundaries, whatever the claim says. Of another one the caller
    must check that the claimed events have the claimed `events_root`.
    """
    size, first_at = claim.membership.size, at - claim.membership.ei
    if claim.leaf.events_root != bundle.events_root:
        if (first_at, size) == (bundle.first_at, bundle.count):
            return None  # not these events
        if not bundle.is_closed and (size >= bundle.count or first_at != bundle.first_at):
            return None  # the log may continue after the archive's end
        starts = bundle.first_seq + first_at - bundle.first_at
        seq = min(starts, bundle.first_seq) if starts != bundle.first_seq else starts + min(size, bundle.count)
        drawn = f"the node put {size} events from {starts} on into bundle {claim.index}"
        return "wrong_bundle_boundary", seq, f"{drawn}; by the rule it holds {bundle.count} from {bundle.first_seq} on"
    if claim.leaf.state_hash != bundle.state_hash and bundle.is_closed:
        what = f"the node put the state {claim.leaf.state_hash.hex()} into bundle {claim.index}"
        return "wrong_state_root", bundle.last_seq, f"{what}; after its events it is {bundle.state_hash.hex()}"
    return None


def is_run(ids: Sequence[bytes], claim: Claim) -> bool:
    """Return whether exactly these events are the claim's bundle: an honest proof still verifies
    after its size was changed."""
    return len(ids) == claim.membership.size and events_root(ids) == claim.leaf.events_root
