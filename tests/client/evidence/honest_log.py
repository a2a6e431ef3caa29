"""An honest log, to make proofs of."""

from enc.core.primitives.hashing import log_leaf, sha256
from enc.core.primitives.types import ConsistencyProof
from enc.core.trees.merkle_log import Edge, LogNodes, prove_consistency

LEAVES = [log_leaf(sha256(b"%d" % i), sha256(b"state %d" % i)) for i in range(8)]
"""The size of the log; `root` is the root of its first leaves."""


class Log:
    """An honest log, so that proofs of it can be made."""

    def __init__(self) -> None:
        self.nodes: LogNodes = {}
        self.roots = [Edge().root()]
        edge = Edge()
        for leaf in LEAVES:
            edge, nodes = edge.append(leaf)
            self.nodes.update(nodes)
            self.roots.append(edge.root())

    def read_hash(self, level: int, index: int) -> bytes:
        return self.nodes[level, index]

    def connect(self, first: int, then: int) -> ConsistencyProof:
        return prove_consistency(self, first, then)


LOG = Log()
