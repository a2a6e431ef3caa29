"""Assigns faults to enclaves, and behaviours to faults."""

from collections.abc import Mapping, Sequence
from random import Random

from msgspec.structs import replace

from enc.bench.event_faults import (
    AlteredContent,
    ErasureWithoutCause,
    FallingTimestamp,
    ForgedSignature,
    MissingEvent,
    OldSequencer,
    Reordering,
    SequencerChange,
    UnauthorisedEvent,
)
from enc.bench.fault_kinds import Kind
from enc.bench.faulty_behaviour import FaultyBehaviour
from enc.bench.head_faults import BrokenConsistency, ForkedHeads, HeadNotOnLog, WrongLogRoot
from enc.bench.node_behaviour import NodeBehaviour
from enc.bench.people import NODES
from enc.bench.plan import Plan, Plant
from enc.bench.tree_faults import WrongBundleBoundary, WrongStateRoot
from enc.core.errors import MisuseError

MIN_EVENTS = 24
"""Least events of an enclave with a planted fault."""
_FIRST, _LAST = 2, 8
"""Least events before and after a planted one."""


def assign(plans: Sequence[Plan], kinds: Sequence[Kind], seed: int) -> list[Plan]:
    """Return the plans with a fault for each of `kinds`, in an enclave of its own, at a random
    place.
    """
    rng = Random(f"enc-bench:{seed}:planting")
    large = [i for i, plan in enumerate(plans) if plan.events >= MIN_EVENTS]
    if len(large) < len(kinds):
        raise MisuseError(
            f"plant: each fault needs its own enclave of at least {MIN_EVENTS} events: there are {len(large)} "
            f"for {len(kinds)} faults"
        )
    found = list(plans)
    for i, kind in zip(rng.sample(large, len(kinds)), kinds, strict=True):
        found[i] = _planted(plans[i], kind, rng)
    return found


def _planted(plan: Plan, kind: Kind, rng: Random) -> Plan:
    """Return the plan with a fault, without other rare events, and with several bundles around
    it.
    """
    place = rng.randrange(_FIRST, plan.events - _LAST)
    moves = (place - 1,) if kind == "old_sequencer" else ()
    return replace(
        plan,
        plant=Plant(kind, place),
        moves=moves,
        nodes=tuple(rng.sample(range(NODES), len(moves) + 1)),
        earlier=None,
        is_sealed=True,
        bundle_size=min(plan.bundle_size, max(4, plan.events // 6)),
    )


def behaviour_of(plan: Plan) -> NodeBehaviour:
    return NodeBehaviour() if plan.plant is None else _FAULTS[plan.plant.kind](plan)


_FAULTS: Mapping[Kind, type[FaultyBehaviour]] = {
    "invalid_signature": ForgedSignature,
    "altered_content": AlteredContent,
    "unauthorised_event": UnauthorisedEvent,
    "gap": MissingEvent,
    "reordering": Reordering,
    "falling_timestamp": FallingTimestamp,
    "wrong_bundle_boundary": WrongBundleBoundary,
    "wrong_state_root": WrongStateRoot,
    "wrong_log_root": WrongLogRoot,
    "head_not_on_log": HeadNotOnLog,
    "equivocation": ForkedHeads,
    "broken_consistency": BrokenConsistency,
    "sequencer_change": SequencerChange,
    "old_sequencer": OldSequencer,
    "erasure_without_cause": ErasureWithoutCause,
}
