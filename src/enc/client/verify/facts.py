"""Facts: what a signed head proves, with the complete proof. A fact can be checked without a node.

Anchor      a leaf of the log under a signed head
EventFact   an event under an anchor, and its current status
StateFact   the value of one state key after an anchor's bundle
"""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from enc.core.errors import InvalidProof
from enc.core.log.commit import version_of
from enc.core.log.event import check_event
from enc.core.primitives.types import BundleProof, Event, InclusionProof, StateProof, TreeHead
from enc.core.trees.proof import LogLeaf, check_event_proof, check_leaf, check_state_proof, wire_inclusion
from enc.core.trees.state_key import DELETED, Namespace, tree_key
from enc.core.trees.tree_head import check_bound_head, wire_head

EventStatus = Literal["active", "updated", "deleted"]


class Anchor(Struct, frozen=True):
    leaf: LogLeaf
    inclusion: InclusionProof
    head: TreeHead

    @property
    def index(self) -> int:
        """The index of the bundle."""
        return self.inclusion.li


class StateFact(Struct, frozen=True):
    namespace: Namespace
    key: bytes
    """The raw key, 32 bytes."""
    proof: StateProof
    anchor: Anchor

    @property
    def value(self) -> bytes | None:
        return self.proof.v


class EventFact(Struct, frozen=True):
    event: Event
    membership: BundleProof
    anchor: Anchor
    status_fact: StateFact | None = None
    update: Event | None = None
    """The Update that the status names, if it was read."""

    @property
    def status(self) -> EventStatus | None:
        """The status as of the status fact's bundle; None without one."""
        return None if self.status_fact is None else status_of(self.status_fact)


def status_of(fact: StateFact) -> EventStatus:
    """Return the status of an event that is known to exist."""
    if fact.value is None:
        return "active"
    return "deleted" if fact.value == DELETED else "updated"


def check_anchor(anchor: Anchor, enclave: bytes, sequencer: bytes) -> None:
    check_bound_head(anchor.head, sequencer, enclave)
    check_leaf(anchor.leaf, anchor.inclusion, anchor.head)


def check_state_fact(fact: StateFact, enclave: bytes, sequencer: bytes) -> None:
    check_state_facts([fact], enclave, sequencer)


def check_state_facts(facts: Sequence[StateFact], enclave: bytes, sequencer: bytes) -> None:
    """Check many facts of one anchor; the head's signature is checked once."""
    check_bound_head(facts[0].anchor.head, sequencer, enclave)
    for fact in facts:
        key, anchor = tree_key(fact.namespace, fact.key), facts[0].anchor
        check_state_proof(key, fact.proof, anchor.leaf, anchor.inclusion, anchor.head)


def check_event_fact(fact: EventFact, enclave: bytes, sequencer: bytes) -> None:
    """Check the event's own signatures, its place in the log, its status and its Update, if there."""
    check_event(fact.event, version_of(fact.event))
    if fact.event.enclave != enclave:
        raise InvalidProof("event: belongs to another enclave")
    check_bound_head(fact.anchor.head, sequencer, enclave)
    check_event_proof(fact.event.id, fact.membership, fact.anchor.leaf, fact.anchor.inclusion, fact.anchor.head)
    status = fact.status_fact
    if status is not None:
        if (status.namespace, status.key) != ("event_status", fact.event.id):
            raise InvalidProof("status: belongs to another event")
        if status.anchor.index < fact.anchor.index:
            raise InvalidProof("status: older than the event")
        check_state_fact(status, enclave, sequencer)
    if fact.update is not None:
        _check_update(fact, fact.update)


def _check_update(fact: EventFact, update: Event) -> None:
    check_event(update, version_of(update))
    if fact.status_fact is None or fact.status_fact.value != update.id:
        raise InvalidProof("update: not the Update that the status names")
    if update.type != "Update" or update.enclave != fact.event.enclave:
        raise InvalidProof("update: not an Update in this enclave")
    if ("r", fact.event.id.hex()) not in {tag[:2] for tag in update.tags}:
        raise InvalidProof("update: replaces another event")


def wire_anchor(anchor: Anchor) -> dict[str, Any]:
    return {
        **wire_inclusion(anchor.inclusion),
        "events_root": anchor.leaf.events_root.hex(),
        "state_hash": anchor.leaf.state_hash.hex(),
        "sth": wire_head(anchor.head),
    }
