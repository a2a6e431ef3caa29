"""Logs in evidence, as an auditor or a liar would submit them, and proofs that a node would sign."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from enc.client import Evidence, check_evidence, load_evidence
from enc.client.evidence.evidence import EvidenceKind
from enc.client.evidence.log_evidence import log_parts
from enc.client.evidence.verdict import Verdict
from enc.core.errors import InvalidProof
from enc.core.log.event import erase
from enc.core.machine.claim import Claim
from enc.core.machine.fault import FaultKind
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.bundle import events_root, prove_membership
from enc.core.trees.merkle_log import Edge, LogNodes, prove_inclusion
from enc.core.trees.proof import LogLeaf
from enc.core.trees.tree_head import sign_head
from tests.core.world import START, World, person, pub

MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)"],
    "moves": [{"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "owner", "ops": ["C"]}],
    "customs": [{"event": "message", "operator": "MEMBER", "ops": ["C"]}],
    "lifecycle": [{"event": "Migrate", "operator": "owner", "ops": ["C"]}],
    "init": [{"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 4, "timeout": 1000},
}
NODE = person("node")


def head(world: World, size: int, root: bytes | None = None, by: str = "node") -> TreeHead:
    return sign_head(
        person(by), world.state.enclave, START, size, edge(world, size)[0].root() if root is None else root
    )


def edge(world: World, size: int, leaves: Sequence[bytes] = ()) -> tuple[Edge, LogNodes]:
    own = [log_leaf(bundle.events_root, bundle.state_hash) for bundle in world.memory.bundles[:size]]
    return Edge().extend(leaves or own)


def evidence(world: World, parts: dict[str, Any], kind: EvidenceKind = "log", by: str = "node") -> Evidence:
    made = Evidence(kind=kind, enclave=world.state.enclave, sequencer=person(by).public, message="found", parts=parts)
    return load_evidence(made.json())


def log(
    world: World, fault: FaultKind, seq: int, events: Sequence[Event] | None = None, by: str = "node", **more: Any
) -> Verdict:
    shown = world.events if events is None else events
    return check_evidence(evidence(world, log_parts(fault, seq, shown, **more), by=by))


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidProof, match=words):
        call()


def bare(world: World) -> list[Event]:
    """Leave out contents that no rule reads."""
    return [world.events[0], *map(erase, world.events[1:])]


def claim(
    world: World, index: int, ids: Sequence[bytes], state: bytes, seq: int | None = None
) -> tuple[Claim, TreeHead]:
    """Return a bundle as a lying node would prove it by its last event, and the head over it."""
    leaves = [log_leaf(bundle.events_root, bundle.state_hash) for bundle in world.memory.bundles]
    leaf = LogLeaf(events_root(ids), state)
    leaves[index] = log_leaf(leaf.events_root, leaf.state_hash)
    grown, nodes = Edge().extend(leaves)
    reader = type("Nodes", (), {"read_hash": lambda self, level, at: nodes[level, at]})()
    shown = Claim(
        seq=next(event.seq for event in world.events if event.id == ids[-1]) if seq is None else seq,
        membership=prove_membership(ids, len(ids) - 1),
        leaf=leaf,
        inclusion=prove_inclusion(reader, index, grown.size),
    )
    return shown, head(world, grown.size, grown.root())


def proved(world: World, index: int) -> tuple[Claim, TreeHead]:
    """Return the node's honest proof of the last event of a bundle, and its head."""
    bundle = world.memory.bundles[index]
    ids = [event.id for event in world.events[bundle.first_seq : bundle.first_seq + bundle.count]]
    return claim(world, index, ids, bundle.state_hash)
