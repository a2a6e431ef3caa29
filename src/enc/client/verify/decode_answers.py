"""A node's decrypted answers, decoded in one pass. Nothing here is verified."""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from msgspec import Raw, Struct, ValidationError, convert
from msgspec.json import Decoder

from enc.client.verify.facts import Anchor, StateFact
from enc.core.errors import InvalidProof
from enc.core.log.event import WireEvent
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.primitives.types import TreeHead
from enc.core.trees.proof import (
    LogLeaf,
    WireBundleProof,
    WireInclusion,
    WireStateProof,
    inclusion_from_wire,
    state_proof_from_wire,
)
from enc.core.trees.state_key import Namespace
from enc.core.trees.tree_head import WireHead, head_from_wire

T = TypeVar("T")


class WireAnchor(WireInclusion, kw_only=True):
    """An inclusion proof with its leaf and its head."""

    events_root: str
    state_hash: str
    sth: WireHead | None = None


class WireMembership(WireBundleProof, kw_only=True):
    leaf_index: int
    events_root: str


class WireProof(Struct):
    """Proof of one event of a page."""

    bundle: WireBundleProof
    inclusion: WireAnchor
    status: WireStateProof


class WireItem(Struct):
    event: WireEvent
    status: Literal["active", "updated"]
    updated_by: str | None = None
    proof: WireProof | None = None


class WirePage(Struct):
    events: list[WireItem]
    more: bool = False
    sth: WireHead | None = None
    state: WireAnchor | None = None


class WireBundle(Struct, kw_only=True):
    leaf_index: int
    ids: list[str]


class WireState(Struct, kw_only=True):
    """One proof, or those of a batch, with their leaf and head."""

    k: str = ""
    v: str | None = None
    b: str = ""
    s: list[str] = []
    proofs: list[WireStateProof] = []
    inclusion: WireAnchor
    sth: WireHead


class NodeLimits(Struct, frozen=True):
    """What a node accepts in one request. 0 commits: it has no path for several of them."""

    commits_per_request: int = 0
    body: int = 0


class WireInfo(Struct):
    seq_pub: str
    limits: Any = None
    evacuation: Raw = Raw(b"null")

    def node_limits(self) -> NodeLimits:
        """Return the limits; none are known of a node that gives them in another form."""
        try:
            return convert(self.limits, NodeLimits)
        except ValidationError:
            return NodeLimits()


class WireResults(Struct):
    results: list[dict[str, Any]]


page_decoder, membership_decoder, bundle_decoder = Decoder(WirePage), Decoder(WireMembership), Decoder(WireBundle)
anchor_decoder, state_decoder, info_decoder = Decoder(WireAnchor), Decoder(WireState), Decoder(WireInfo)
results_decoder = Decoder(WireResults)


def read(text: bytes, decoder: Decoder[T]) -> T:
    return decode_json(text, decoder, InvalidProof)


def digest(text: str, field: str) -> bytes:
    return unhex(text, 32, field, InvalidProof)


def head_of(wire: WireHead | None) -> TreeHead:
    if wire is None:
        raise InvalidProof("sth: missing")
    return head_from_wire(wire)


def anchor_of(wire: WireAnchor | None, head: TreeHead) -> Anchor:
    """Return the decoded inclusion proof under the head that came with the answer."""
    if wire is None:
        raise InvalidProof("inclusion: missing")
    leaf = LogLeaf(digest(wire.events_root, "events_root"), digest(wire.state_hash, "state_hash"))
    return Anchor(leaf, inclusion_from_wire(wire), head)


def state_facts_of(
    wire: WireState, head: TreeHead, keys: Sequence[tuple[Namespace, bytes]], tree_size: int | None
) -> list[StateFact]:
    """Return a proof for each key, as of the requested bundle: that of `tree_size`, or the last."""
    anchor = anchor_of(wire.inclusion, head)
    if anchor.index != (tree_size or head.ts) - 1:
        raise InvalidProof("not as of the requested bundle")
    wires = wire.proofs or [WireStateProof(wire.k, wire.v, wire.b, wire.s)]
    proofs = [state_proof_from_wire(each) for each in wires]
    if len(proofs) != len(keys):
        raise InvalidProof("the number of proofs differs from the number of keys")
    return [StateFact(namespace, key, proof, anchor) for (namespace, key), proof in zip(keys, proofs, strict=True)]
