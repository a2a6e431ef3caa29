"""Items: events as a node shows them, in a page or live, and the checks before a caller gets them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from enc.client.verify.decode_answers import WireItem, WireProof, anchor_of, digest
from enc.client.verify.facts import Anchor, EventFact, StateFact, check_anchor
from enc.client.verify.log_verifier import LogVerifier
from enc.core.errors import InvalidProof
from enc.core.log.commit import auto_delete_at
from enc.core.log.event import event_from_wire, is_erasable, keep_valid_statement
from enc.core.log.filter import Filter
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import BundleProof, Event, Tags, TreeHead, Withheld, event_text, json_of
from enc.core.trees.bundle import check_membership
from enc.core.trees.proof import bundle_proof_from_wire, check_state_proof, state_proof_from_wire
from enc.core.trees.state_key import DELETED, status_key


class Item(Struct, frozen=True):
    """A verified event of this enclave, and its status."""

    event: Event
    status: Literal["active", "updated"]
    updated_by: bytes | None = None
    fact: EventFact | None = None
    """The proof, if one was requested and the event's bundle is closed."""
    violations: tuple[str, ...] | None = None
    """With `query(valid=…)`: why the current content violates its schema; empty if it satisfies it."""
    judged: str | None = None
    """With `query(valid=…)`: the current content, which `violations` is about."""

    @property
    def id(self) -> bytes:
        return self.event.id

    @property
    def seq(self) -> int:
        return self.event.seq

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def author(self) -> bytes:
        return self.event.from_

    @property
    def enclave(self) -> bytes:
        return self.event.enclave

    @property
    def timestamp(self) -> int:
        """Unix milliseconds, by the node's clock."""
        return self.event.timestamp

    @property
    def tags(self) -> Tags:
        return self.event.tags

    @property
    def content(self) -> str | None:
        """None: erased or withheld. With `query(valid=…)`, the current content: that of the latest Update."""
        return self.event.content if self.judged is None else self.judged

    @property
    def json(self) -> Any:
        """The content, parsed as JSON; None if it is missing or is not JSON."""
        return json_of(self.content)

    @property
    def withheld(self) -> Withheld | None:
        """The verified statement of a node of this log that it withholds the content; None without
        one."""
        return self.event.withheld

    @property
    def target(self) -> bytes | None:
        """The id of the event that an Update or Delete names; None for every other type."""
        return self.event.target

    def __repr__(self) -> str:
        return f"Item({event_text(self)}, {self.status}{', proved' if self.fact else ''})"


def verify_items(verifier: LogVerifier, wires: Sequence[WireItem], filter_: Filter, answer: bytes) -> list[Item]:
    """Verify the items of a page or of a subscription: event, filter and status."""
    with verifier.blame_node("event", answer):
        items = [_item(wire, filter_) for wire in wires]
    verifier.verify_events([item.event for item in items], answer)
    with verifier.blame_node("event", answer):
        return [item if item.event.content is not None else _without_content(item, verifier) for item in items]


def _item(wire: WireItem, filter_: Filter) -> Item:
    event = event_from_wire(wire.event)
    updated_by = None if wire.updated_by is None else digest(wire.updated_by, "updated_by")
    if (updated_by is None) != (wire.status == "active"):
        raise InvalidProof("updated_by: expected for an updated event, and only for one")
    if not filter_.matches(event):
        raise InvalidProof(f"{event.seq}: does not match the filter")
    return Item(event, wire.status, updated_by)


def _without_content(item: Item, verifier: LogVerifier) -> Item:
    """Check that a missing content was erased or is withheld by a statement of a node of this log.
    Return the item without a statement that does not count.

    A later Update, not shown in the item, erases an Update.
    """
    event = keep_valid_statement(item.event, verifier.nodes_of(item.event))
    has_cause = item.updated_by is not None or event.type == "Update" or auto_delete_at(event) is not None
    if not (has_cause or event.withheld) or not is_erasable(event, verifier.dialect.predefined):
        raise InvalidProof(f"event {event.seq}: its content is missing without an erasure or a node's valid statement")
    return item if event is item.event else replace(item, event=event)


def check_order(events: Sequence[Event], reverse: bool = False) -> None:
    """Check that each event comes after the one before it, by seq and by timestamp."""
    ordered = list(reversed(events)) if reverse else events
    for before, after in pairwise(ordered):
        if before.seq >= after.seq:
            raise InvalidProof(f"event {after.seq}: out of order")
        if before.timestamp > after.timestamp:
            raise InvalidProof(f"event {after.seq}: dated before event {before.seq}")


def prove_items(
    items: Sequence[Item], wires: Sequence[WireItem], newest: Anchor | None, head: TreeHead, verifier: LogVerifier
) -> list[Item]:
    """Return the items with their proofs. Only events of the open bundle, the newest, have none."""
    if newest is not None and newest.index != head.ts - 1:
        raise InvalidProof("state: not the newest leaf")
    log, found = _Leaves(head, verifier), list[Item]()
    for item, wire in zip(items, wires, strict=True):
        if wire.proof is None:
            log.check_pending(item.event)
            found.append(item)
        else:
            fact = EventFact(item.event, *log.place(item.event, wire.proof), _status(item, wire.proof, newest))
            found.append(Item(item.event, item.status, item.updated_by, fact))
    return found


class _Leaves:
    """The leaves that hold a page's events. Each is checked once, however many events it holds."""

    def __init__(self, head: TreeHead, verifier: LogVerifier) -> None:
        self._head, self._verifier = head, verifier
        self._anchors: dict[int, Anchor] = {}
        self._first_seqs: dict[int, int] = {}
        self._closed, self._open = -1, MAX_INT
        """The last event with a proof, and the first without one."""

    def place(self, event: Event, wire: WireProof) -> tuple[BundleProof, Anchor]:
        anchor, place = anchor_of(wire.inclusion, self._head), bundle_proof_from_wire(wire.bundle)
        if self._anchors.setdefault(anchor.index, anchor) is anchor:
            check_anchor(anchor, self._verifier.enclave, self._verifier.sequencer)
        elif self._anchors[anchor.index] != anchor:
            raise InvalidProof("inclusion: two different proofs for one leaf")
        check_membership(place, event.id, anchor.leaf.events_root)
        first_seq = event.seq - place.ei
        if self._first_seqs.setdefault(anchor.index, first_seq) != first_seq:
            raise InvalidProof(f"event {event.seq}: its place in the bundle does not match its seq")
        self._closed = max(self._closed, event.seq)
        self._check_split()
        return place, anchor

    def check_pending(self, event: Event) -> None:
        self._open = min(self._open, event.seq)
        self._check_split()
        if self._head.ts and event.timestamp < self._head.t:
            raise InvalidProof(f"event {event.seq}: the proof is withheld")

    def _check_split(self) -> None:
        if self._open < self._closed:
            raise InvalidProof(f"event {self._open}: the proof is withheld")


def _status(item: Item, wire: WireProof, newest: Anchor | None) -> StateFact:
    """Return the proved status. The item's own may be newer (open bundle) but never older."""
    if newest is None:
        raise InvalidProof("state: missing")
    proof = state_proof_from_wire(wire.status)
    check_state_proof(status_key(item.id), proof, newest.leaf, newest.inclusion, newest.head)
    if proof.v == DELETED or (proof.v is not None and item.updated_by is None):
        raise InvalidProof(f"event {item.seq}: shown with an outdated status")
    return StateFact("event_status", item.id, proof, newest)
