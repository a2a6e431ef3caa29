"""The operator's orders to withhold the content of one event, and to show it again
(docs/protocol.md, 6.5).

An order runs on the sequencer's thread, the only one that writes. The store changes the event's row
in one transaction, so that every reader sees either the content or the node's statement.
"""

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from enc.core.errors import EnclaveNotFound, EventNotFound, InvalidCommit, MisuseError
from enc.core.log.event import is_erasable, restore_content
from enc.core.log.withheld import REASONS, sign_withheld
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event
from enc.core.rules.policy_types import kept_types
from enc.node.control.operations import Operations
from enc.node.store.damage import DamagedData
from enc.node.store.store_interface import Store
from enc.node.store.withheld_store import WithheldContent, WithheldEvent
from enc.runtime.clock import utc_time

TIMEOUT_S = 30.0
PAGE = 1000
"""Most events in one answer."""
MAX_NOTE = 1000

_REF = re.compile(r"([0-9a-f]{64})(?:/([0-9]{1,15}))?", re.ASCII)


class EventParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event's id, or `ENCLAVE/SEQ`."""

    event: str


class WithholdParams(EventParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str
    note: str = ""
    destroy: bool = False


class ListParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    skip: int = 0


class WithholdingOrders:
    """Call `add_to` once. `wait_for`: the sequencer's."""

    def __init__(
        self,
        store: Store,
        key: Signer,
        clock: Callable[[], int],
        wait_for: Callable[[Callable[[], None], float], None],
        check_signs: Callable[[], None],
    ) -> None:
        """`check_signs` raises if the node signs nothing."""
        self._store, self._key, self._clock, self._check_signs = store, key, clock, check_signs
        self._wait_for = wait_for

    def add_to(self, operations: Operations) -> None:
        operations.add("withhold", WithholdParams, self.withhold)
        operations.add("unwithhold", EventParams, self.unwithhold)
        operations.add("withheld", ListParams, self.list, changes=False)

    def withhold(self, params: WithholdParams) -> dict[str, Any]:
        """Replace an event's content by this node's statement; return the event as `list` does."""
        self._check_signs()
        if params.reason not in REASONS:
            raise MisuseError(f"reason: {params.reason!r} is not one of {', '.join(REASONS)}")
        if len(params.note) > MAX_NOTE:
            raise MisuseError(f"note: over {MAX_NOTE} characters")
        event = self._find(params.event)
        self._check_may_be_withheld(event)
        self._run(lambda: self._withhold(event.enclave, event.id, params))
        return self._report(event)

    def unwithhold(self, params: EventParams) -> dict[str, Any]:
        """Show the content that is kept aside again; return the event."""
        event = self._find(params.event)
        self._run(lambda: self._unwithhold(event.enclave, event.id))
        return {"enclave": event.enclave.hex(), "seq": event.seq, "id": event.id.hex()}

    def list(self, params: ListParams) -> list[dict[str, Any]]:
        """Return some events with a statement. Their content is kept aside, destroyed, or, if the
        statement came with an import, absent.
        """
        if params.skip < 0:
            raise MisuseError(f"skip: {params.skip} is negative")
        return [_wire(each) for each in self._store.withheld_events(params.skip, PAGE)]

    # The event

    def _find(self, text: str) -> Event:
        """Return the event that the text names."""
        match = _REF.fullmatch(text)
        if match is None:
            raise MisuseError(f"event: {text[:100]!r} is neither an event's id (64 hex digits) nor ENCLAVE/SEQ")
        name, seq = bytes.fromhex(match[1]), match[2]
        if seq is None:
            enclave = self._store.enclave_of(name)
            found = None if enclave is None else self._store.event(enclave, name)
            if found is None:
                raise EventNotFound(f"event: no enclave on this node has the event {text}, or the enclave is purged")
            return found.event
        if self._store.is_purged(name):
            raise EnclaveNotFound(f"event: the enclave {match[1]} is purged; it has no contents any more")
        events = self._store.events(name, int(seq), 1)
        if not events:
            raise EventNotFound(f"event: this node has no enclave {match[1]} with an event {seq}")
        return events[0]

    def _check_may_be_withheld(self, event: Event) -> None:
        state = self._store.load(event.enclave)
        if state is not None and not is_erasable(event, kept_types(state.policy)):
            raise MisuseError(
                f"event {event.seq} is a {event.type}: only content events and Updates can be withheld, because others "
                f"decide the enclave's state; `enc node suspend {event.enclave.hex()}` stops serving the whole enclave"
            )

    def _read(self, enclave: bytes, event_id: bytes) -> tuple[Event, WithheldContent | None]:
        """Return the event as it is now, and what the operator withholds of it."""
        found = self._store.event(enclave, event_id)
        if found is None:
            raise EventNotFound("event: its enclave was purged meanwhile")
        event, own = found.event, self._store.withheld_content(enclave, event_id)
        if event.withheld is not None and own is None:
            node = event.withheld.node.hex()
            raise MisuseError(f"event {event.seq}: the node {node} withholds its content, and this node has no copy")
        return event, own

    # On the sequencer's thread

    def _run(self, work: Callable[[], None]) -> None:
        self._wait_for(work, TIMEOUT_S)

    def _withhold(self, enclave: bytes, event_id: bytes, params: WithholdParams) -> None:
        event, own = self._read(enclave, event_id)
        before = event.withheld
        if event.content is None and before is None:
            raise MisuseError(f"event {event.seq}: its content is erased already")
        destroys = params.destroy and own is not None and own.content is not None
        if before is not None and before.reason == params.reason and not destroys:
            since = f"since {utc_time(before.ts)} for the reason {before.reason}"
            raise MisuseError(f"event {event.seq}: its content is withheld already, {since}")
        at = self._clock() if before is None else before.ts
        statement = sign_withheld(self._key, enclave, event_id, params.reason, at)
        note = params.note or (own.note if own is not None else "")
        self._store.withhold(enclave, event_id, statement, note, keep=not params.destroy)

    def _unwithhold(self, enclave: bytes, event_id: bytes) -> None:
        event, own = self._read(enclave, event_id)
        if own is None:
            raise MisuseError(f"event {event.seq}: its content is not withheld")
        if own.content is None:
            raise MisuseError(
                f"event {event.seq}: its content was destroyed and cannot be shown again; an import of the log from "
                "an archive does not bring it back either"
            )
        try:
            restore_content(event, own.content)
        except InvalidCommit:
            message = f"event {event.seq}: the content kept aside is not the one that was signed; run enc node fsck"
            raise DamagedData(message) from None
        self._store.unwithhold(enclave, event_id)

    def _report(self, event: Event) -> dict[str, Any]:
        now, own = self._read(event.enclave, event.id)
        if now.withheld is None:
            raise MisuseError(f"event {event.seq}: it was erased meanwhile")
        return _wire(WithheldEvent(event.enclave, event.seq, event.id, now.withheld, own))


def _wire(found: WithheldEvent) -> dict[str, Any]:
    own = found.own
    return {
        "enclave": found.enclave.hex(),
        "seq": found.seq,
        "id": found.id.hex(),
        "reason": found.statement.reason,
        "since": found.statement.ts,
        "node": found.statement.node.hex(),
        "content": "absent" if own is None else "destroyed" if own.content is None else "kept",
        "note": "" if own is None else own.note,
    }
