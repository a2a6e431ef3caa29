"""Owner proofs: show a registry, which does not see an enclave's log, that someone owns the enclave
(section 23.4).

    build   `build_owner_proof` from a node's answers to State_Proof, Bundle_Proof and Inclusion_Proof, and from the
            passage that `find_passage` finds in the log; `wire_owner_proof` encodes it
    check   `parse_owner_proof`, then `check_owner_proof` against what is known so far, a KnownOwnership

Checked in this order, each step with a message of its own:

 1. `sth`: signed by the sequencer on record, or by one that a forced Migrate left, which the proof then takes back;
    if it is bound, to this enclave
 2. `sth.ts` and `sth.t`: above and not before what was proved, so that a former owner cannot use an older head; and
    not in the registry's future, because nothing true would be later
 3. `ct_proof`: for the head's size and its last leaf, because an older leaf does not show the present owner
 4. `ct_proof`: that leaf, of `events_root` and `state_hash`, is in the log under the head
 5. `smt_proof`: of the claimant's own key, under `state_hash`, with a value that makes an owner by the manifest
 6. `origin`: the Manifest's event is number 0 of leaf 0 under the same head; other logs of the node have another
 7. `passage`: events that pass the ownership to the claimant, each signed by the owner before, so that a hostile
    sequencer cannot invent an owner. It starts, after the latest proof, at the holder, or at an identity that `start`
    proves to be an owner under the root that was proved then; before any proof, at an owner that the Manifest names.
    As in a replay, seqs and timestamps rise, and each timestamp is in the window of its `exp`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from enc.core.errors import EncError, InvalidCommit, InvalidProof
from enc.core.log.event import WireEvent, check_event, check_time, event_from_wire, wire_event
from enc.core.primitives.encoding import convert_json, unhex
from enc.core.primitives.types import BundleProof, Event, InclusionProof, StateProof, TreeHead
from enc.core.registry.ownership import KnownOwnership
from enc.core.rules.policy_types import Policy
from enc.core.trees.bundle import check_membership
from enc.core.trees.proof import (
    LogLeaf,
    WireBundleProof,
    WireInclusion,
    WireStateProof,
    bundle_proof_from_wire,
    check_leaf,
    check_state_proof,
    inclusion_from_wire,
    state_proof_from_wire,
    wire_bundle_proof,
    wire_inclusion,
    wire_state_proof,
)
from enc.core.trees.state_key import identity_key
from enc.core.trees.tree_head import WireHead, check_bound_head, head_from_wire, wire_head

MAX_PASSAGE = 16
"""Maximum number of events in all passages of one registration."""


class Origin(Struct, frozen=True):
    """The Manifest's event at the very start of a log."""

    bundle: BundleProof
    leaf: LogLeaf
    ct_proof: InclusionProof


class FormerOwner(Struct, frozen=True):
    """Shows an identity's value under the root that an earlier proof has fixed."""

    ct_proof: InclusionProof
    leaf: LogLeaf
    smt_proof: StateProof


class OwnerProof(Struct, frozen=True):
    """Proof that a key owns an enclave under a head, and how the ownership passed to it.

    `start`: where the passage starts, unless that is the holder or an owner by the Manifest.
    """

    sth: TreeHead
    ct_proof: InclusionProof
    leaf: LogLeaf
    smt_proof: StateProof
    origin: Origin
    passage: tuple[Event, ...] = ()
    start: FormerOwner | None = None


# Building


def build_owner_proof(
    state: Mapping[str, Any], bundle: Mapping[str, Any], inclusion: Mapping[str, Any], passage: Sequence[Event] = ()
) -> OwnerProof:
    """Build the proof from three opened answers of the enclave's node, all under one head; nothing
    is verified.

    `state` answers a State_Proof of the claimant's `rbac` key, mode `verified`; `bundle` a
    Bundle_Proof of the Manifest's event; `inclusion` an Inclusion_Proof of leaf 0 with the
    `tree_size` of the first answer's head.
    """
    head, newest = state.get("sth"), state.get("inclusion")
    wire = {
        "sth": head,
        "ct_proof": newest,
        "state_hash": state.get("state_hash"),
        "events_root": newest.get("events_root") if isinstance(newest, Mapping) else None,
        "smt_proof": state,
        "origin": {
            "bundle": bundle,
            "events_root": inclusion.get("events_root"),
            "state_hash": inclusion.get("state_hash"),
            "ct_proof": inclusion,
        },
    }
    return replace(parse_owner_proof(wire, "the node's answers"), passage=tuple(passage))


def build_start(state: Mapping[str, Any]) -> FormerOwner:
    """Build the start of a passage from an answer to State_Proof under the size that was proved."""
    last = state.get("inclusion")
    root = last.get("events_root") if isinstance(last, Mapping) else None
    wire = {"ct_proof": last, "events_root": root, "state_hash": state.get("state_hash"), "smt_proof": state}
    return _start(convert_json(wire, _WireStart, InvalidProof))


def find_passage(policy: Policy, events: Iterable[Event], holder: bytes, owner: bytes) -> tuple[Event, ...] | None:
    """Return how these events of the log, in order, pass the ownership from `holder` to `owner`;
    None if they do not.

    If there are several ways, returns the latest. The Manifest may be among the events, but is
    never part of a passage.
    """
    ways: dict[bytes, tuple[Event, ...]] = {holder: ()}
    for event in events:
        way = ways.get(event.from_)
        if way is None:
            continue
        step = () if event.type == "Manifest" else (event,)
        ways.update((new, (*way, *step)) for new in policy.new_owners(event) if new not in (event.from_, holder))
    return ways.get(owner)


def wire_owner_proof(proof: OwnerProof) -> dict[str, Any]:
    origin, start = proof.origin, proof.start
    wire: dict[str, Any] = {
        "sth": wire_head(proof.sth),
        "ct_proof": wire_inclusion(proof.ct_proof),
        **_wire_leaf(proof.leaf),
        "smt_proof": wire_state_proof(proof.smt_proof),
        "origin": {
            "bundle": wire_bundle_proof(origin.bundle),
            **_wire_leaf(origin.leaf),
            "ct_proof": wire_inclusion(origin.ct_proof),
        },
        "passage": [wire_event(event) for event in proof.passage],
    }
    if start is not None:
        state = wire_state_proof(start.smt_proof)
        wire["start"] = {"ct_proof": wire_inclusion(start.ct_proof), **_wire_leaf(start.leaf), "smt_proof": state}
    return wire


def _wire_leaf(leaf: LogLeaf) -> dict[str, str]:
    return {"events_root": leaf.events_root.hex(), "state_hash": leaf.state_hash.hex()}


# Parsing


class _WireOrigin(Struct):
    bundle: WireBundleProof
    events_root: str
    state_hash: str
    ct_proof: WireInclusion


class _WireStart(Struct):
    ct_proof: WireInclusion
    events_root: str
    state_hash: str
    smt_proof: WireStateProof


class _WireOwnerProof(Struct):
    sth: WireHead
    ct_proof: WireInclusion
    events_root: str
    state_hash: str
    smt_proof: WireStateProof
    origin: _WireOrigin
    passage: list[WireEvent] = []
    start: _WireStart | None = None


def parse_owner_proof(value: Any, path: str) -> OwnerProof:
    """Parse a proof from decoded JSON; raise InvalidCommit with the path if it is malformed."""
    try:
        wire = convert_json(value, _WireOwnerProof, InvalidProof)
        origin = wire.origin
        return OwnerProof(
            sth=head_from_wire(wire.sth),
            ct_proof=inclusion_from_wire(wire.ct_proof),
            leaf=_leaf(wire.events_root, wire.state_hash),
            smt_proof=state_proof_from_wire(wire.smt_proof),
            origin=Origin(
                bundle_proof_from_wire(origin.bundle),
                _leaf(origin.events_root, origin.state_hash),
                inclusion_from_wire(origin.ct_proof),
            ),
            passage=tuple(event_from_wire(each) for each in wire.passage),
            start=None if wire.start is None else _start(wire.start),
        )
    except EncError as e:
        raise InvalidCommit(f"{path}: {e.message}") from None


def _start(wire: _WireStart) -> FormerOwner:
    return FormerOwner(
        inclusion_from_wire(wire.ct_proof),
        _leaf(wire.events_root, wire.state_hash),
        state_proof_from_wire(wire.smt_proof),
    )


def _leaf(events_root: str, state_hash: str) -> LogLeaf:
    return LogLeaf(
        unhex(events_root, 32, "events_root", InvalidProof), unhex(state_hash, 32, "state_hash", InvalidProof)
    )


# Checking


def check_owner_proof(proof: OwnerProof, owner: bytes, known: KnownOwnership) -> KnownOwnership:
    """Check that `owner` owns the enclave; return what is known now. InvalidProof names the first
    failed step."""
    known = known.signed(proof.sth)  # 1
    _check_head(proof.sth, known)
    _check_leaf(proof)
    _check_state(proof, owner, known)
    _check_origin(proof, known.manifest)
    _check_passage(proof, owner, known)
    return known.proved(owner, proof.sth)


def _check_head(head: TreeHead, known: KnownOwnership) -> None:
    if head.bound_sig is not None:
        check_bound_head(head, known.sequencer, known.manifest.enclave)
    if head.ts <= known.proved_size:  # 2
        raise InvalidProof(f"sth.ts: must be above {known.proved_size}, the size that was proved before")
    if head.t < (since := max(known.proved_at, known.moved_time)):
        raise InvalidProof(f"sth.t: must not be below {since}, the time of what was submitted before")
    known.check_time(head.t, "sth.t")


def _check_leaf(proof: OwnerProof) -> None:
    if proof.ct_proof.ts != proof.sth.ts:  # 3
        raise InvalidProof("ct_proof.ts: for another tree size than the head's")
    if proof.ct_proof.li != proof.sth.ts - 1:
        raise InvalidProof("ct_proof.li: not the head's last leaf")
    _named("ct_proof", check_leaf, proof.leaf, proof.ct_proof, proof.sth)  # 4


def _check_state(proof: OwnerProof, owner: bytes, known: KnownOwnership) -> None:
    key, found = identity_key(owner), proof.smt_proof
    if found.k != key:  # 5
        raise InvalidProof("smt_proof.k: the key of another identity")
    _named("smt_proof", check_state_proof, key, found, proof.leaf, proof.ct_proof, proof.sth)
    _check_value(found, known.policy)


def _check_value(found: StateProof, policy: Policy) -> None:
    if not policy.is_owner(int.from_bytes(found.v or b"", "big")):
        raise InvalidProof("smt_proof.v: does not make an owner")


def _check_origin(proof: OwnerProof, manifest: Event) -> None:
    origin = proof.origin  # 6
    if origin.bundle.ei != 0:
        raise InvalidProof("origin.bundle.ei: a Manifest is event 0")
    if origin.ct_proof.li != 0:
        raise InvalidProof("origin.ct_proof.li: a Manifest is in leaf 0")
    _named("origin", check_membership, origin.bundle, manifest.id, origin.leaf.events_root)
    _named("origin", check_leaf, origin.leaf, origin.ct_proof, proof.sth)


def _check_passage(proof: OwnerProof, owner: bytes, known: KnownOwnership) -> None:
    givers, last, time = {proof.passage[0].from_ if proof.passage else owner}, -1, known.proved_at  # 7
    for i, event in enumerate(proof.passage):
        if event.from_ not in givers:
            raise InvalidProof(f"passage[{i}]: not signed by the owner before")
        if event.enclave != known.manifest.enclave:
            raise InvalidProof(f"passage[{i}]: of another enclave")
        _named(f"passage[{i}]", check_event, event, known.policy.enc_v)
        if i == 0 and event.timestamp < time:
            raise InvalidProof("passage[0]: timestamp: from before what was proved")
        if event.seq <= last or event.timestamp < time:
            raise InvalidProof(f"passage[{i}]: seq or timestamp is not after the event before")
        _named(f"passage[{i}]", check_time, event)
        last, time = event.seq, event.timestamp
        givers = set(_named(f"passage[{i}]", known.policy.new_owners, event))
        if not givers:
            raise InvalidProof(f"passage[{i}]: does not pass the ownership on")
    if owner not in givers:
        raise InvalidProof("passage: does not lead to the claimant")
    _check_start(proof, owner, known)


def _check_start(proof: OwnerProof, owner: bytes, known: KnownOwnership) -> None:
    first, start = proof.passage[0].from_ if proof.passage else owner, proof.start
    if first == known.holder or (not known.proved_root and first in known.policy.new_owners(known.manifest)):
        return
    if start is None or not known.proved_root:
        raise InvalidProof("passage: does not start at the holder, nor at an owner of that time")
    if start.smt_proof.k != identity_key(first):
        raise InvalidProof("start.smt_proof.k: the key of another identity")
    if start.ct_proof.li != start.ct_proof.ts - 1:
        raise InvalidProof("start.ct_proof.li: not the last leaf")
    root = TreeHead(t=known.proved_at, ts=start.ct_proof.ts, r=known.proved_root, sig=b"")
    _named("start", check_state_proof, identity_key(first), start.smt_proof, start.leaf, start.ct_proof, root)
    _named("start", _check_value, start.smt_proof, known.policy)


def _named(path: str, work: Any, *args: Any) -> Any:
    """Return the result of `work`; put the path in front of the message of its errors."""
    try:
        return work(*args)
    except EncError as e:
        raise InvalidProof(f"{path}: {e.message}") from None
