"""A claim: what a node proved about one event under a signed head. Audits compare it with the log
itself."""

from typing import Any

from msgspec import Struct

from enc.core.errors import EncError, InvalidProof
from enc.core.primitives.encoding import check_numbers, unhex
from enc.core.primitives.types import BundleProof, InclusionProof, TreeHead
from enc.core.trees.proof import (
    LogLeaf,
    WireBundleProof,
    WireInclusion,
    bundle_proof_from_wire,
    check_event_proof,
    inclusion_from_wire,
    wire_bundle_proof,
    wire_inclusion,
)


class Claim(Struct, frozen=True, kw_only=True):
    """An event's place in a bundle, and the state after that bundle."""

    seq: int
    membership: BundleProof
    leaf: LogLeaf
    inclusion: InclusionProof

    @property
    def index(self) -> int:
        """Number of the bundle in the log."""
        return self.inclusion.li

    def wire(self) -> dict[str, Any]:
        events_root, state_hash = self.leaf.events_root.hex(), self.leaf.state_hash.hex()
        member = {"leaf_index": self.index, **wire_bundle_proof(self.membership), "events_root": events_root}
        leaf = {**wire_inclusion(self.inclusion), "events_root": events_root, "state_hash": state_hash}
        return {"seq": self.seq, "membership": member, "inclusion": leaf}


class WireLeaf(WireInclusion):
    events_root: str | None = None
    state_hash: str | None = None


class WireClaim(Struct, kw_only=True):
    seq: int
    membership: WireBundleProof
    inclusion: WireLeaf


def claim_from_wire(wire: WireClaim) -> Claim:
    check_numbers(InvalidProof, seq=wire.seq)
    events_root = unhex(wire.inclusion.events_root, 32, "events_root", InvalidProof)
    leaf = LogLeaf(events_root, unhex(wire.inclusion.state_hash, 32, "state_hash", InvalidProof))
    membership, inclusion = bundle_proof_from_wire(wire.membership), inclusion_from_wire(wire.inclusion)
    return Claim(seq=wire.seq, membership=membership, leaf=leaf, inclusion=inclusion)


def is_proved(claim: Claim, head: TreeHead, event_id: bytes) -> bool:
    """Return whether the node's proof verifies: under this head the event is where the claim
    says."""
    try:
        check_event_proof(event_id, claim.membership, claim.leaf, claim.inclusion, head)
    except EncError:
        return False
    return True
