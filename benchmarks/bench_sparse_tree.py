"""The sparse tree: batches of 256 new keys into 100,000 leaves, memory a leaf, nodes read by a proof at 1,000,000.

Floor of a batch: the SHA-256 calls that the protocol forces, one for each leaf and for each node of the 168 levels
that lies above a changed key.
"""

import gc
import random
import time
import tracemalloc

from floors import raw_sha256, report, verdict

from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.trees.sparse_merkle import DEPTH, check_state, prove, update

BATCH = 256


class Nodes(dict[bytes, bytes]):
    """A store in memory."""

    read_node = dict.__getitem__


def random_leaves(rng: random.Random, count: int) -> dict[bytes, bytes]:
    return {b"\x00" + rng.randbytes(20): rng.randbytes(32) for _ in range(count)}


def forced_hashes(keys: dict[bytes, bytes]) -> int:
    numbers = [int.from_bytes(key, "big") for key in keys]
    return len(numbers) + sum(len({number >> DEPTH - depth for number in numbers}) for depth in range(DEPTH))


def bench_batches() -> None:
    rng, nodes = random.Random(1), Nodes()
    root, new = update(nodes, EMPTY_HASH, random_leaves(rng, 100_000))
    nodes.update(new)
    cost = floor = float("inf")
    for _ in range(120):
        batch = random_leaves(rng, BATCH)
        forced = forced_hashes(batch)
        start = time.perf_counter()
        raw_sha256(forced, b"\x00" * 71)()
        floor = min(floor, (time.perf_counter() - start) / forced)
        start = time.perf_counter()
        _, new = update(nodes, root, batch)
        cost = min(cost, (time.perf_counter() - start) / forced)
    a_key = forced / BATCH
    report("insert a key, by batches of 256 into 100,000", cost * a_key, floor * a_key, "its forced SHA-256 calls", 1.5)
    print(f"  forced hashes a key: {a_key:.1f}; nodes stored a key: {len(new) / BATCH:.1f}")


def bench_memory() -> None:
    leaves = random_leaves(random.Random(2), 100_000)
    gc.collect()
    tracemalloc.start()
    nodes = Nodes(update(Nodes(), EMPTY_HASH, leaves)[1])
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    stored = sum(len(key) + len(record) for key, record in nodes.items())
    print(
        f"memory a leaf: {size / len(leaves):.0f} bytes in a dictionary, {stored / len(leaves):.0f} bytes as stored, "
        f"{len(nodes) / len(leaves):.2f} nodes; under 1024: {verdict('memory', size / len(leaves) < 1024)}"
    )


def bench_proofs() -> None:
    rng, nodes, root, leaves = random.Random(3), Nodes(), EMPTY_HASH, []
    for _ in range(10):
        batch = random_leaves(rng, 100_000)
        leaves += batch
        root, new = update(nodes, root, batch)
        nodes.update(new)
    reads = 0

    class Counting:
        def read_node(self, node_hash: bytes) -> bytes:
            nonlocal reads
            reads += 1
            return nodes[node_hash]

    reader, most, start = Counting(), 0, time.perf_counter()
    keys = rng.sample(leaves, 10_000) + [b"\x00" + rng.randbytes(20) for _ in range(10_000)]
    for key in keys:
        reads = 0
        proof = prove(reader, root, key)
        most = max(most, reads)
    cost = (time.perf_counter() - start) / len(keys)
    check_state(proof, keys[-1], root)
    print(
        f"a proof from 1,000,000 leaves: reads at most {most} nodes, {cost * 1e6:.0f} us; "
        f"at most 40: {verdict('reads', most <= 40)}"
    )


def main() -> None:
    bench_batches()
    bench_memory()
    bench_proofs()
