"""Heads that people collected, some with a proof of an event under them."""

from collections.abc import Iterator
from random import Random
from typing import Any

from enc.bench.log import Log, ProvedBundle
from enc.bench.node_behaviour import NodeBehaviour
from enc.bench.people import SOURCES
from enc.core.primitives.types import TreeHead
from enc.core.trees.bundle import prove_membership
from enc.core.trees.merkle_log import Edge, LogNodes, prove_inclusion
from enc.core.trees.proof import wire_bundle_proof, wire_inclusion
from enc.core.trees.tree_head import wire_head

MAX_HEADS = 3
"""Most sizes of a log with a collected head, not counting those a fault adds."""

Line = dict[str, Any]


def collect(log: Log, behaviour: NodeBehaviour, rng: Random) -> list[Line]:
    """Return the lines of one enclave for heads.jsonl."""
    hidden = behaviour.hidden(log)
    shown = [size for size in range(1, len(log.bundles) + 1) if size not in hidden]
    heads = list(_sampled(log, shown, rng)) + behaviour.heads(log)
    lines = [_line(log, head, rng.choice(SOURCES)) for head in heads]
    if log.proved_bundle is not None and behaviour.is_provable and (behaviour.proves is not None or rng.random() < 0.3):
        provable = [size for size in shown if size > log.proved_bundle.index]
        if provable:
            size = rng.choice(provable)
            lines.append({**_line(log, log.head(size), rng.choice(SOURCES)), **_proof(log, log.proved_bundle, size)})
    rng.shuffle(lines)
    return lines


def _sampled(log: Log, shown: list[int], rng: Random) -> Iterator[TreeHead]:
    """Yield sampled heads, some also signed by the log's last sequencer."""
    for size in sorted(rng.sample(shown, min(len(shown), rng.randint(1, MAX_HEADS)))):
        yield log.head(size)
        if rng.random() < 0.2:
            yield log.head(size, by=log.bundles[-1].sequencer)


def _line(log: Log, head: TreeHead, source: str) -> Line:
    return {"enclave": log.enclave.hex(), "sth": wire_head(head), "source": source}


class _Leaves:
    def __init__(self, nodes: LogNodes) -> None:
        self._nodes = nodes

    def read_hash(self, level: int, index: int) -> bytes:
        return self._nodes[level, index]


def _proof(log: Log, bundle: ProvedBundle, size: int) -> Line:
    """Return the proof of a bundle's last event under the head of this size, as a node answers
    it.
    """
    member = prove_membership(bundle.ids, len(bundle.ids) - 1)
    inclusion = prove_inclusion(_Leaves(Edge().extend(log.leaves(size))[1]), bundle.index, size)
    roots = {"events_root": bundle.events_root.hex(), "state_hash": bundle.state_hash.hex()}
    return {
        "seq": bundle.last_seq,
        "membership": {
            "leaf_index": bundle.index,
            **wire_bundle_proof(member),
            "events_root": bundle.events_root.hex(),
        },
        "inclusion": {**wire_inclusion(inclusion), **roots},
    }
