"""Checks each event of an enclave: replays it, and looks it up in every way."""

from functools import cached_property

from enc.core.log.event import is_erasable, target_of
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import content_hash
from enc.core.primitives.types import Event
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import Effects
from enc.core.trees.state_key import DELETED
from enc.node.fsck.difference import Difference
from enc.node.fsck.usage import UsageTally
from enc.node.store.push_interface import Endpoints, register
from enc.node.store.sqlite.check import WRONG, CheckedEvent
from enc.node.store.store_interface import Charge, Store

PAGE = 250
"""Events per page, with their contents."""


class EventCheck:
    """The events of one enclave, in order."""

    def __init__(self, store: Store, enclave: bytes, replay: Replay, tally: UsageTally) -> None:
        self._store, self._enclave, self._replay, self._tally = store, enclave, replay, tally
        self._stored: dict[bytes, bytes] = {}
        self._derived: dict[bytes, bytes] = {}
        """Statuses of events that are not active, by id: as stored, and as the log implies."""
        self.at: int | None = None
        """The seq that is being checked."""
        self._endpoints: Endpoints = {}

    @cached_property
    def _charges(self) -> tuple[Charge, ...]:
        return self._store.charges(self._enclave)

    def read(self) -> list[Event]:
        """Return the next page; empty at the end."""
        self.at = self._replay.events
        try:
            return self._store.events(self._enclave, self.at, PAGE)
        except Exception:  # report the event that cannot be read, not the page
            return self._store.events(self._enclave, self.at, 1)

    def check(self, event: Event) -> CheckedEvent:
        """Check the next event, and return it with what the log and the store say about it."""
        self._check_form(event)
        transition, effects = self._replay.add(event)
        status = self._check_lookups(event)
        self._check_erased(event, effects)
        self._note_statuses(event, effects, status)
        self._tally.count(event, self._charges)
        register(self._endpoints, effects)
        found = self._store.event(self._enclave, revised_id(event)) if event.type in ("Update", "Delete") else None
        target = found.event if found else None
        policy = transition.state.policy
        subject = policy.subject(event, target_of(target) if target else None).type
        return CheckedEvent(event, subject, status, target, is_erasable(event, policy.predefined))

    def _check_form(self, event: Event) -> None:
        seq = self.at = self._replay.events
        if event.seq != seq:
            what = "the event is missing" if event.seq > seq else "another event is in its place"
            raise Difference(self._enclave, seq, what)
        if event.content is not None and content_hash(event.content) != event.content_hash:
            raise Difference(self._enclave, seq, "content: not the one that was signed")

    def _check_lookups(self, event: Event) -> bytes | None:
        """Check that the event is found by its id, by its commit's hash and as a target. Returns
        its stored status.
        """
        found = self._store.event(self._enclave, event.id)
        if found is None or found.event != event:
            raise Difference(self._enclave, event.seq, "not found by its id")
        if self._store.committed(self._enclave, event.hash, event.exp) != event:
            raise Difference(self._enclave, event.seq, "not found by its commit's hash")
        if self._store.target(self._enclave, event.id) != target_of(event):
            raise Difference(self._enclave, event.seq, "not found as a target")
        return DELETED if found.status == "deleted" else found.updated_by

    def _check_erased(self, event: Event, effects: Effects) -> None:
        for gone in effects.erases:
            found = self._store.event(self._enclave, gone)
            if found is None:
                continue
            if found.event.content is not None:
                what = f"content: still present though event {event.seq} removed it"
                raise Difference(self._enclave, found.event.seq, what)
            if self._store.withheld_content(self._enclave, gone) is not None:
                what = f"withheld_contents: still present though event {event.seq} removed the content"
                raise Difference(self._enclave, found.event.seq, what)

    def _note_statuses(self, event: Event, effects: Effects, status: bytes | None) -> None:
        if status is not None:
            self._stored[event.id] = status
        for old in effects.supersedes:
            self._derived[old] = event.id
        if event.type == "Delete":
            self._derived[revised_id(event)] = DELETED

    def check_ids(self, page: list[Event]) -> None:
        if self._store.ids(self._enclave, page[0].seq, len(page)) != [event.id for event in page]:
            raise Difference(self._enclave, page[0].seq, f"ids from here on: {WRONG}")

    def check_endpoints(self) -> None:
        """Compare the endpoints. Call it after all events."""
        stored = self._store.endpoints(self._enclave)
        for identity, trait in sorted(stored.keys() | self._endpoints.keys()):
            if stored.get((identity, trait)) != self._endpoints.get((identity, trait)):
                raise Difference(self._enclave, None, f"endpoint of {identity.hex()} as {trait}: {WRONG}")

    def check_statuses(self) -> None:
        """Compare the statuses. Call it after all events: a later one may change an earlier one's
        status.
        """
        wrong = [
            found.event.seq
            for event_id in self._stored.keys() | self._derived.keys()
            if self._stored.get(event_id) != self._derived.get(event_id)
            and (found := self._store.event(self._enclave, event_id)) is not None
        ]
        if wrong:
            raise Difference(self._enclave, min(wrong), f"status: {WRONG}")
