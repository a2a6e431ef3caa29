"""Faults: what an auditor can find in a log, or in heads of it. Each kind is one promise that a node did not keep."""

from typing import Literal, get_args

from msgspec import Struct

FaultKind = Literal[
    "invalid_signature",
    "altered_content",
    "unauthorised_event",
    "gap",
    "reordering",
    "falling_timestamp",
    "wrong_bundle_boundary",
    "wrong_state_root",
    "wrong_log_root",
    "head_not_on_log",
    "equivocation",
    "broken_consistency",
    "sequencer_change",
    "old_sequencer",
    "erasure_without_cause",
]

FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


class Fault(Struct, frozen=True, kw_only=True):
    """One broken promise. `seq` is where: of a head, the last event that it covers, or the first that it gets wrong."""

    kind: FaultKind
    seq: int
    what: str
    """For people: one sentence that names the broken rule."""
    before: int = -1
    """The seq of the other event that it takes to see the fault; -1 where one event is enough."""
