"""The log from 1,000 to 1,000,000 leaves: the cost of one append, one proof and one check, which may grow as log n."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from floors import raw_sha256

from enc.core.primitives.hashing import EMPTY_HASH, sha256
from enc.core.trees.merkle_log import (
    Edge,
    check_consistency,
    check_inclusion,
    prove_consistency,
    prove_inclusion,
    read_edge,
)

SIZES = (1_000, 10_000, 100_000, 1_000_000)
PROOFS = 2_000


class Nodes(dict[tuple[int, int], bytes]):
    def read_hash(self, level: int, index: int) -> bytes:
        return self[level, index]


def timed(work: Sequence[Any], run: Callable[[Any], object]) -> float:
    """Return the microseconds for one run, in the best of five passes over the work."""
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for item in work:
            run(item)
        best = min(best, time.perf_counter() - start)
    return best / len(work) * 1e6


def main() -> None:
    start = time.perf_counter()
    raw_sha256(100_000, b"\x00" * 70)()
    floor = (time.perf_counter() - start) * 10
    print(f"log, in us an operation; floor of an append: one SHA-256, {floor:.2f} us")
    print("    leaves   append  inclusion  check  consistency  check")
    rng, nodes, edge, leaf = random.Random(1), Nodes(), Edge(), EMPTY_HASH
    for size in SIZES:
        leaves = []
        while edge.size + len(leaves) < size:
            leaves.append(leaf := sha256(leaf))
        start = time.perf_counter()
        for i in range(0, len(leaves), 100):
            edge, new = edge.extend(leaves[i : i + 100])
            nodes.update(new)
        append = (time.perf_counter() - start) / len(leaves) * 1e6
        root, indexes = edge.root(), [rng.randrange(size) for _ in range(PROOFS)]
        olds = {index + 1: read_edge(nodes, index + 1).root() for index in indexes}
        included = [prove_inclusion(nodes, index, size) for index in indexes]
        consistent = [prove_consistency(nodes, index + 1, size) for index in indexes]
        figures = (
            append,
            timed(indexes, lambda index, size=size: prove_inclusion(nodes, index, size)),
            timed(included, lambda proof, root=root: check_inclusion(proof, nodes[0, proof.li], root)),
            timed(indexes, lambda index, size=size: prove_consistency(nodes, index + 1, size)),
            timed(consistent, lambda proof, root=root, olds=olds: check_consistency(proof, olds[proof.ts1], root)),
        )
        print("{:>10,} {:8.2f} {:10.1f} {:6.1f} {:12.1f} {:6.1f}".format(size, *figures))
