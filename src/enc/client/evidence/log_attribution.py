"""Attribution of a log in evidence: whether the accused key itself signed the log up to an event.

No event names the one before it. So a log from which someone removed an event or a content, or into
which another signer put one, looks like a log that its sequencer got wrong. Only signatures of the
accused count, and only for what they bind:

 1. an event that it signed at its own seq: an honest sequencer signs one event for each seq
 2. a Migrate that it finalised with the right checkpoint root: this root covers the ids of all events before it
 3. a head that it signed, bound to the enclave, with the log's own root: this root covers all events under it

An earlier sequencer's events bind a later sequencer by 2 and 3 alone. The Migrate by which an
earlier sequencer hands the enclave over does not: that sequencer may sign a second one, after other
events. Nor does event 0 before a forced Migrate that does not fit it: anyone can send a node a copy
of a Manifest, and the log that the owner then moves there replaces it. No signature of a sequencer
shows that a content was still there.
"""

from collections.abc import Sequence

from enc.core.machine.fault import Fault
from enc.core.primitives.types import Event


class LogAttribution:
    """Gets every event of the log, in order, after the replay has got it."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._events = self._covered = 0
        self._misplaced: int | None = None
        self._repeated: int | None = None
        self._missing: Fault | None = None
        self._starts_well = True
        """Whether the log starts with a valid Manifest. No root covers an event before that."""
        self._others: list[tuple[int, int, bytes]] = []
        """Runs of events that another key signed: number of the first and last event, and the
        key."""
        self._last_id = b""
        self._may_be_copy = False
        """Whether event 0 may be a copied Manifest (docs/protocol.md, section 15.3)."""

    def add(self, event: Event, found: Sequence[Fault]) -> None:
        """Record an event; `found` are the faults that the replay found in it."""
        number, self._events = self._events, self._events + 1
        if number == 0 and found:
            self._starts_well = False
        if self._misplaced is None and event.seq != number:
            self._misplaced = number
        if self._repeated is None and event.id == self._last_id:
            self._repeated = number
        if self._missing is None:
            self._missing = next((fault for fault in found if fault.kind == "erasure_without_cause"), None)
        self._last_id = event.id
        if event.sequencer != self._key:
            self._add_other(number, event.sequencer)
        elif event.type == "Migrate" and self._misplaced is None and not found:
            self._covered = number
        elif event.type == "Migrate" and number == 1:
            self._may_be_copy = True

    def _add_other(self, number: int, key: bytes) -> None:
        if self._others and self._others[-1][1:] == (number - 1, key):
            self._others[-1] = (self._others[-1][0], number, key)
        else:
            self._others.append((number, number, key))

    def cover(self, events: int) -> None:
        """Record that a head of the accused has the root of the log after this many events."""
        self._covered = max(self._covered, events)

    def is_list_faulty(self, events: int) -> bool:
        """Return whether the first events, which a head covers, cannot be those of an honest log.

        A repeated event is not counted: a bundle's tree is padded with its last id, so that anyone
        may repeat that event without changing the root.
        """
        return (
            self._starts_well
            and self._misplaced is not None
            and self._misplaced < events
            and (self._repeated is None or self._repeated >= events)
        )

    def may_be_of_copy(self, size: int) -> bool:
        """Return whether a head of this size by the accused may be of a copied Manifest, which the
        log replaced (docs/protocol.md, section 15.3): it had one bundle at most.
        """
        return size == 1 and bool(self._others) and self._others[0][0] == 0

    def unbound(self, number: int) -> tuple[str, ...]:
        """Return why the log up to event `number` does not bind the key; () if it does."""
        if number >= self._events:
            return ("that the log goes on as the fault requires: it ends before",)
        if self._misplaced is not None and self._misplaced <= number:
            return (f"that the log is complete: event {self._misplaced} is not at its seq",)
        if self._missing is not None and self._missing.seq <= number:
            return (f"that the log is unaltered: event {self._missing.seq}: {self._missing.what}",)
        if self._may_be_copy and number and self._covered < 2:  # a head of the copy covers event 0 alone
            return ("that event 0 is of the same log: anyone may have sent the accused a copy of the Manifest",)
        for first, last, key in self._others:
            after = max(first, self._covered)
            if after <= min(last, number):
                return (
                    f"that the log is {self._key.hex()}'s own: {key.hex()} signed event {after}, and no Migrate or "
                    f"head that {self._key.hex()} signed covers it",
                )
        return ()
