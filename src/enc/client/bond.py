"""Who is bound by a log in evidence: whoever signed what stands before a place cannot say that it was otherwise.

No event names the one before it. So a log from which somebody took an event, or its content, or into which a stranger
put one, looks like a log that its sequencer got wrong. A sequencer is bound up to a place

 1. if nothing is left out, moved or taken away before it, and no stranger signed there
 2. and if it signed all of it, or has its term by a Migrate that stands, which says what the log was until then.
"""

from collections.abc import Iterable

from enc.core.fault import Fault
from enc.core.trial import AuditReplay
from enc.core.types import Event

_BY_OTHERS = ("sequencer_change", "old_sequencer", "erasure_without_cause")
"""What whoever made the evidence may have done to the log."""


class LogAttribution:
    """Told of every event of the log, in its order."""

    def __init__(self) -> None:
        self._events = 0
        self._astray: int | None = None

    def take(self, event: Event) -> None:
        if self._astray is None and event.seq != self._events:
            self._astray = self._events
        self._events += 1

    def up_to(self, seq: int, key: bytes, trial: AuditReplay, faults: Iterable[Fault]) -> tuple[bool, tuple[str, ...]]:
        """Whether the log up to an event binds a key, and what is taken for granted then, or is missing."""
        faults = list(faults)
        if self._astray is not None and self._astray <= seq + 1:
            return False, (f"that the log is whole: event {self._astray} does not stand in its place",)
        other = next((each for each in faults if each.kind in _BY_OTHERS and each.seq < seq), None)
        if other is not None:
            return False, (f"that the log is as it was: event {other.seq}: {other.what}",)
        terms = [term for term in trial.sequencers if term[1] <= seq]
        if not terms or (len(terms) == 1 and terms[0][0] == key):
            return True, ()
        (before, _), (last, first) = terms[-2] if len(terms) > 1 else (b"", 0), terms[-1]
        if last != key:
            return False, (f"that this log is {key.hex()}'s: {last.hex()} signed event {seq}",)
        is_taken = any(each.seq == first and each.kind == "sequencer_change" for each in faults)
        if first in trial.moves and not is_taken:
            return True, ()
        handed = f"that {before.hex()}, who signed what stands before event {first}, signed nothing else for it"
        return first - 1 in trial.moves and not is_taken, (handed,)
