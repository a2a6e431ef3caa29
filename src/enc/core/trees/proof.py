"""Proofs on the wire, and the chain of proofs from an event or a piece of state to a signed head.

event --bundle proof--> events_root --+
                                      +--> leaf --inclusion proof--> root --signature--> sequencer
state --state proof---> state_hash  --+
"""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidProof
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import BundleProof, ConsistencyProof, InclusionProof, StateProof, TreeHead
from enc.core.trees.bundle import check_membership
from enc.core.trees.merkle_log import check_inclusion
from enc.core.trees.sparse_merkle import DEPTH, KEY_SIZE, check_state
from enc.core.trees.state_key import DELETED, RBAC, STATUS

MAX_PATH = 64
"""No log of less than 2^53 leaves has a longer path."""


class WireInclusion(Struct):
    ts: int
    li: int
    p: list[str]


class WireConsistency(Struct):
    ts1: int
    ts2: int
    p: list[str]


class WireBundleProof(Struct):
    ei: int
    s: list[str]
    size: int


class WireStateProof(Struct):
    k: str
    v: str | None
    b: str
    s: list[str]


_inclusion, _consistency = Decoder(WireInclusion), Decoder(WireConsistency)
_bundle, _state = Decoder(WireBundleProof), Decoder(WireStateProof)


def _hashes(items: list[str], field: str, most: int = MAX_PATH) -> tuple[bytes, ...]:
    if len(items) > most:
        raise InvalidProof(f"{field}: over {most} hashes")
    return tuple(unhex(item, 32, f"{field}[{i}]", InvalidProof) for i, item in enumerate(items))


def parse_inclusion(data: bytes | str) -> InclusionProof:
    return inclusion_from_wire(decode_json(data, _inclusion, InvalidProof))


def inclusion_from_wire(wire: WireInclusion) -> InclusionProof:
    check_numbers(InvalidProof, ts=wire.ts, li=wire.li)
    return InclusionProof(wire.ts, wire.li, _hashes(wire.p, "p"))


def parse_consistency(data: bytes | str) -> ConsistencyProof:
    return consistency_from_wire(decode_json(data, _consistency, InvalidProof))


def consistency_from_wire(wire: WireConsistency) -> ConsistencyProof:
    check_numbers(InvalidProof, ts1=wire.ts1, ts2=wire.ts2)
    return ConsistencyProof(wire.ts1, wire.ts2, _hashes(wire.p, "p"))


def parse_bundle_proof(data: bytes | str) -> BundleProof:
    return bundle_proof_from_wire(decode_json(data, _bundle, InvalidProof))


def bundle_proof_from_wire(wire: WireBundleProof) -> BundleProof:
    check_numbers(InvalidProof, ei=wire.ei, size=wire.size)
    return BundleProof(wire.ei, _hashes(wire.s, "s"), wire.size)


def parse_state_proof(data: bytes | str) -> StateProof:
    return state_proof_from_wire(decode_json(data, _state, InvalidProof))


def state_proof_from_wire(wire: WireStateProof) -> StateProof:
    value = None
    if wire.v is not None:
        value = unhex(wire.v, 1 if len(wire.v) == 2 else 32, "v", InvalidProof)
    return StateProof(
        unhex(wire.k, KEY_SIZE, "k", InvalidProof),
        value,
        unhex(wire.b, KEY_SIZE, "b", InvalidProof),
        _hashes(wire.s, "s", DEPTH),
    )


def wire_inclusion(proof: InclusionProof) -> dict[str, Any]:
    return {"ts": proof.ts, "li": proof.li, "p": [item.hex() for item in proof.p]}


def wire_consistency(proof: ConsistencyProof) -> dict[str, Any]:
    return {"ts1": proof.ts1, "ts2": proof.ts2, "p": [item.hex() for item in proof.p]}


def wire_bundle_proof(proof: BundleProof) -> dict[str, Any]:
    return {"ei": proof.ei, "s": [item.hex() for item in proof.s], "size": proof.size}


def wire_state_proof(proof: StateProof) -> dict[str, Any]:
    value = None if proof.v is None else proof.v.hex()
    return {"k": proof.k.hex(), "v": value, "b": proof.b.hex(), "s": [item.hex() for item in proof.s]}


class LogLeaf(Struct, frozen=True):
    """The two hashes in one leaf of the log: of its bundle's events and of the state after them."""

    events_root: bytes
    state_hash: bytes


def check_leaf(leaf: LogLeaf, inclusion: InclusionProof, head: TreeHead) -> None:
    """Check that the leaf is in the log under this head. Callers check the head's signature and
    enclave first."""
    if inclusion.ts != head.ts:
        raise InvalidProof("inclusion: for another tree size than the head's")
    check_inclusion(inclusion, log_leaf(leaf.events_root, leaf.state_hash), head.r)


def check_event_proof(
    event_id: bytes, membership: BundleProof, leaf: LogLeaf, inclusion: InclusionProof, head: TreeHead
) -> None:
    """Check that the event is in the log under this head."""
    check_membership(membership, event_id, leaf.events_root)
    check_leaf(leaf, inclusion, head)


def check_state_proof(key: bytes, proof: StateProof, leaf: LogLeaf, inclusion: InclusionProof, head: TreeHead) -> None:
    """Check that `key` had the value `proof.v` after bundle number `inclusion.li` of the log under
    this head."""
    _check_form(proof)
    check_state(proof, key, leaf.state_hash)
    check_leaf(leaf, inclusion, head)


def _check_form(proof: StateProof) -> None:
    """Check that the value has its namespace's form. No honest tree holds another."""
    namespace, value = proof.k[:1], proof.v
    deleted = namespace == STATUS and value == DELETED
    no_bits = namespace == RBAC and value == bytes(32)
    if value is not None and not deleted and (len(value) != 32 or no_bits):
        raise InvalidProof("state: the value does not have its namespace's form")
