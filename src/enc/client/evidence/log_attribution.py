"""Attribution of a log in evidence: which signer is responsible for everything before a given event.

No event names the one before it. So a log from which someone removed an event or a content, or into
which a stranger inserted one, looks like a log that its sequencer got wrong. A sequencer is
responsible up to an event

 1. if nothing before it is missing, out of place or erased, and no stranger signed there
 2. and if it signed all of it, or began its term with a valid Migrate, which fixes the log until then.
"""

from collections.abc import Iterable

from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.fault import Fault
from enc.core.primitives.types import Event

_BY_OTHERS = ("sequencer_change", "old_sequencer", "erasure_without_cause")
"""Faults that the author of the evidence may have caused."""


class LogAttribution:
    """Gets every event of the log, in order."""

    def __init__(self) -> None:
        self._events = 0
        self._first_misplaced: int | None = None

    def add(self, event: Event) -> None:
        if self._first_misplaced is None and event.seq != self._events:
            self._first_misplaced = self._events
        self._events += 1

    def binds(self, seq: int, key: bytes, trial: AuditReplay, faults: Iterable[Fault]) -> tuple[bool, tuple[str, ...]]:
        """Return whether the log up to an event binds a key, and what remains assumed or missing."""
        faults = list(faults)
        if self._first_misplaced is not None and self._first_misplaced <= seq + 1:
            return False, (f"that the log is complete: event {self._first_misplaced} is not at its seq",)
        other = next((each for each in faults if each.kind in _BY_OTHERS and each.seq < seq), None)
        if other is not None:
            return False, (f"that the log is unaltered: event {other.seq}: {other.what}",)
        terms = [term for term in trial.sequencers if term[1] <= seq]
        if not terms or (len(terms) == 1 and terms[0][0] == key):
            return True, ()
        (before, _), (last, first) = terms[-2] if len(terms) > 1 else (b"", 0), terms[-1]
        if last != key:
            return False, (f"that this log belongs to {key.hex()}: {last.hex()} signed event {seq}",)
        is_taken = any(each.seq == first and each.kind == "sequencer_change" for each in faults)
        if first in trial.moves and not is_taken:
            return True, ()
        handed = f"that {before.hex()}, who signed the events before {first}, signed no other events for them"
        return first - 1 in trial.moves and not is_taken, (handed,)
