"""Lies about a leaf of the log: a bundle that is drawn elsewhere, or a state that never was."""

from msgspec.structs import replace

from enc.bench.lie import Lie
from enc.bench.people import key_of
from enc.bench.plan import Plan
from enc.bench.shelf import Shelf
from enc.core import enclave as machine
from enc.core import sparse_merkle
from enc.core.bundle import BundleConfig, closes_before
from enc.core.enclave import ClosedBundle, EnclaveState, Transition
from enc.core.hashing import log_leaf
from enc.core.policy import Effects
from enc.core.state_key import identity_key
from enc.core.types import Event

_NEVER = 1 << 50
_RIGHTS = (0x302).to_bytes(32, "big")


class WrongBundleBoundary(Lie):
    """At the first event from the planted place on that finds a bundle open: close it early, or keep it too long."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._is_early = self.rng.random() < 0.5

    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        """Early: while the bundle could still take the event. Late: once it no longer could."""
        if self.done or place < self.place or state.bundle is None:
            return clock
        return state.min_timestamp if self._is_early else max(clock, state.bundle.deadline(state.policy.bundle))

    def apply(self, state: EnclaveState, event: Event, effects: Effects, shelf: Shelf) -> list[Transition]:
        bundle, config = state.bundle, state.policy.bundle
        if self.done or event.seq < self.place or bundle is None:
            return super().apply(state, event, effects, shelf)
        if closes_before(bundle, event, config) == self._is_early:
            return super().apply(state, event, effects, shelf)
        self.proves, self.seq_wrong = state.log.size, event.seq
        if self._is_early:
            return self._early(state, event, effects, shelf)
        return self._late(state, event, effects, shelf)

    def _early(self, state: EnclaveState, event: Event, effects: Effects, shelf: Shelf) -> list[Transition]:
        self.done = f"bundle {state.log.size} was closed before event {event.seq}, which belongs to it"
        sealed = machine.seal(state, _NEVER, shelf)
        if sealed is None:
            return super().apply(state, event, effects, shelf)
        sealed = replace(sealed, state=replace(sealed.state, min_timestamp=state.min_timestamp))
        shelf.add(sealed.tree_nodes)
        return [sealed, machine.apply(sealed.state, event, effects, shelf)]

    def _late(self, state: EnclaveState, event: Event, effects: Effects, shelf: Shelf) -> list[Transition]:
        self.done = f"bundle {state.log.size} took event {event.seq}, which came after its deadline"
        policy = state.policy
        patient = replace(policy, bundle=BundleConfig(policy.bundle.size, _NEVER))  # type: ignore[type-var]
        taken = machine.apply(replace(state, policy=patient), event, effects, shelf)
        return [replace(taken, state=replace(taken.state, policy=policy))]


class WrongStateRoot(Lie):
    """The first bundle that ends at or after the planted place says that a stranger has rights."""

    def close(self, before: EnclaveState, transition: Transition, shelf: Shelf) -> Transition:
        if self.done:
            return transition
        log, bundles = before.log, list[ClosedBundle]()
        for bundle in transition.closed:
            last = bundle.first_seq + bundle.count - 1
            if not self.done and last >= self.place:
                bundle = replace(bundle, state_hash=self._dream(bundle.state_hash, shelf))
                self.proves, self.seq_wrong = bundle.index, last
                self.done = f"the state_hash of bundle {bundle.index} is of a state in which a stranger has rights"
            log = log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            bundles.append(bundle)
        return replace(transition, closed=tuple(bundles), state=replace(transition.state, log=log))

    def _dream(self, state_hash: bytes, shelf: Shelf) -> bytes:
        stranger = key_of(self.plan.seed, "stranger", self.plan.number).public
        return sparse_merkle.update(shelf, state_hash, {identity_key(stranger): _RIGHTS})[0]
