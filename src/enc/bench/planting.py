"""Where faults go, and which lie each of them is."""

from collections.abc import Mapping, Sequence
from random import Random

from msgspec.structs import replace

from enc.bench.conduct import Conduct
from enc.bench.event_lies import (
    AlteredContent,
    ErasureWithoutCause,
    FallingTimestamp,
    Gap,
    InvalidSignature,
    OldSequencer,
    Reordering,
    SequencerChange,
    UnauthorisedEvent,
)
from enc.bench.head_lies import BrokenConsistency, Equivocation, HeadNotOnLog, WrongLogRoot
from enc.bench.kinds import Kind
from enc.bench.lie import Lie
from enc.bench.people import NODES
from enc.bench.plan import Plan, Plant
from enc.bench.tree_lies import WrongBundleBoundary, WrongStateRoot
from enc.core.errors import MisuseError

MIN_EVENTS = 24
"""Of an enclave in which something is planted."""
_FIRST, _LAST = 2, 8
"""So many events are before a planted one, and after it, at least."""


def assign(plans: Sequence[Plan], kinds: Sequence[Kind], seed: int) -> list[Plan]:
    """The plans, with a fault for each of `kinds` in an enclave of its own, at a random place."""
    rng = Random(f"enc-bench:{seed}:planting")
    large = [i for i, plan in enumerate(plans) if plan.events >= MIN_EVENTS]
    if len(large) < len(kinds):
        raise MisuseError(
            f"each fault needs an enclave of its own, of at least {MIN_EVENTS} events: there are {len(large)}, "
            f"and {len(kinds)} faults"
        )
    found = list(plans)
    for i, kind in zip(rng.sample(large, len(kinds)), kinds, strict=True):
        found[i] = _planted(plans[i], kind, rng)
    return found


def _planted(plan: Plan, kind: Kind, rng: Random) -> Plan:
    """Nothing else that is rare happens there, and it has bundles enough for a fault to be between them."""
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


def conduct_of(plan: Plan) -> Conduct:
    return Conduct() if plan.plant is None else _LIES[plan.plant.kind](plan)


_LIES: Mapping[Kind, type[Lie]] = {
    "invalid_signature": InvalidSignature,
    "altered_content": AlteredContent,
    "unauthorised_event": UnauthorisedEvent,
    "gap": Gap,
    "reordering": Reordering,
    "falling_timestamp": FallingTimestamp,
    "wrong_bundle_boundary": WrongBundleBoundary,
    "wrong_state_root": WrongStateRoot,
    "wrong_log_root": WrongLogRoot,
    "head_not_on_log": HeadNotOnLog,
    "equivocation": Equivocation,
    "broken_consistency": BrokenConsistency,
    "sequencer_change": SequencerChange,
    "old_sequencer": OldSequencer,
    "erasure_without_cause": ErasureWithoutCause,
}
