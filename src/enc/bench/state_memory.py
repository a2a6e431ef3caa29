"""The state of a generated enclave in memory: bounded by its current state, not by its log."""

from collections.abc import Mapping

from enc.bench.recent_messages import RecentMessages
from enc.core.machine.state import Transition
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import KeyRecord, RecordKind, Target
from enc.core.trees import sparse_merkle

MIN_NODES = 32_768
"""Tree nodes below which none are dropped."""
MAX_LEAVES = 16_384


class StateMemory:
    """A StoredEnclave of the state machine. It drops the nodes of former roots from time to time."""

    def __init__(self, recent: RecentMessages) -> None:
        self._recent = recent
        self._nodes: dict[bytes, bytes] = {}
        self._full = MIN_NODES
        self._leaves: dict[bytes, bytes | None] = {}

    def read_node(self, node_hash: bytes) -> bytes:
        return self._nodes[node_hash]

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        """Return a leaf of the current root. Cached until it changes: every event reads its
        author's rights.
        """
        if len(self._leaves) > MAX_LEAVES:
            self._leaves.clear()
        if key not in self._leaves:
            self._leaves[key] = sparse_merkle.get(self, root, key)
        return self._leaves[key]

    def target(self, event_id: bytes) -> Target | None:
        return self._recent.target(event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return None

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return None

    def add(self, nodes: Mapping[bytes, bytes]) -> None:
        """Add nodes that no root refers to yet."""
        self._nodes.update(nodes)

    def put(self, transition: Transition) -> None:
        """Add a step's nodes. Once there are twice as many as the current root needs, drop the
        others.
        """
        for key in transition.leaves:
            self._leaves.pop(key, None)
        if not transition.tree_nodes:
            return
        self._nodes.update(transition.tree_nodes)
        if len(self._nodes) > self._full:
            self._nodes = dict(self._reachable(transition.state.root))
            self._full = max(MIN_NODES, 2 * len(self._nodes))

    def _reachable(self, root: bytes) -> list[tuple[bytes, bytes]]:
        found = list[tuple[bytes, bytes]]()
        waiting = [] if root == EMPTY_HASH else [root]
        while waiting:
            node = waiting.pop()
            record = self._nodes[node]
            found.append((node, record))
            if record[0]:
                waiting += [record[-32:], record[-66:-34]]
        return found
