"""Faults of a leaf of the log: a wrong bundle boundary, or a wrong state."""

from msgspec.structs import replace

from enc.bench.faulty_behaviour import FaultyBehaviour
from enc.bench.people import key_of
from enc.bench.plan import Plan
from enc.bench.state_memory import StateMemory
from enc.core.machine import enclave as machine
from enc.core.machine.state import ClosedBundle, EnclaveState, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event
from enc.core.rules.policy_types import Effects
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import BundleConfig, closes_before
from enc.core.trees.state_key import identity_key

_NEVER = 1 << 50
_RIGHTS = (0x302).to_bytes(32, "big")


class WrongBundleBoundary(FaultyBehaviour):
    """Closes a bundle too early or too late, at the first event that finds one open."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._is_early = self.rng.random() < 0.5

    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        """Early: while the bundle could still take the event. Late: after its deadline."""
        if self.done or place < self.place or state.bundle is None:
            return clock
        return state.min_timestamp if self._is_early else max(clock, state.bundle.deadline(state.policy.bundle))

    def apply(self, state: EnclaveState, event: Event, effects: Effects, memory: StateMemory) -> list[Transition]:
        bundle, config = state.bundle, state.policy.bundle
        if self.done or event.seq < self.place or bundle is None:
            return super().apply(state, event, effects, memory)
        if closes_before(bundle, event, config) == self._is_early:
            return super().apply(state, event, effects, memory)
        self.proves, self.seq_wrong = state.log.size, event.seq
        if self._is_early:
            return self._early(state, event, effects, memory)
        return self._late(state, event, effects, memory)

    def _early(self, state: EnclaveState, event: Event, effects: Effects, memory: StateMemory) -> list[Transition]:
        self.done = f"bundle {state.log.size} was closed before event {event.seq}, which belongs to it"
        sealed = machine.seal(state, _NEVER, memory)
        if sealed is None:
            return super().apply(state, event, effects, memory)
        sealed = replace(sealed, state=replace(sealed.state, min_timestamp=state.min_timestamp))
        memory.add(sealed.tree_nodes)
        return [sealed, machine.apply(sealed.state, event, effects, memory)]

    def _late(self, state: EnclaveState, event: Event, effects: Effects, memory: StateMemory) -> list[Transition]:
        self.done = f"bundle {state.log.size} took event {event.seq}, which came after its deadline"
        policy = state.policy
        patient = replace(policy, bundle=BundleConfig(policy.bundle.size, _NEVER))  # type: ignore[type-var]
        taken = machine.apply(replace(state, policy=patient), event, effects, memory)
        return [replace(taken, state=replace(taken.state, policy=policy))]


class WrongStateRoot(FaultyBehaviour):
    """The first bundle that ends at or after the planted place gives a stranger rights."""

    def close(self, before: EnclaveState, transition: Transition, memory: StateMemory) -> Transition:
        if self.done:
            return transition
        log, bundles = before.log, list[ClosedBundle]()
        for bundle in transition.closed:
            last = bundle.first_seq + bundle.count - 1
            if not self.done and last >= self.place:
                bundle = replace(bundle, state_hash=self._forged_root(bundle.state_hash, memory))
                self.proves, self.seq_wrong = bundle.index, last
                self.done = f"the state_hash of bundle {bundle.index} is of a state in which a stranger has rights"
            log = log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            bundles.append(bundle)
        return replace(transition, closed=tuple(bundles), state=replace(transition.state, log=log))

    def _forged_root(self, state_hash: bytes, memory: StateMemory) -> bytes:
        stranger = key_of(self.plan.seed, "stranger", self.plan.number).public
        return sparse_merkle.update(memory, state_hash, {identity_key(stranger): _RIGHTS})[0]
