"""Faults that an auditor can find in a log or in its heads. Each kind is one promise that a node
broke."""

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
    """One broken promise, at event `seq`. For a head, `seq` is the last event that it covers, or
    the first that it gets wrong."""

    kind: FaultKind
    seq: int
    what: str
    """For people: one sentence that names the broken rule."""
    before: int = -1
    """Seq of the second event that is needed to show the fault; -1 if one event is enough."""
