"""What a batch has changed of one enclave and not written yet: the state so far, and data for later
commits.
"""

from collections import OrderedDict
from collections.abc import Iterable

from enc.core.log.event import target_of
from enc.core.machine.state import EnclaveState, Transition
from enc.core.primitives.types import Event, KeyRecord, RecordKind, Target
from enc.node.store.store_interface import Store
from enc.node.store.stored_enclave_reader import StoredEnclaveReader

MAX_NODES = 262_144
"""Tree nodes cached over all enclaves: about 70 MB at most."""

MAX_LEAVES = 65_536


class NodeCache:
    """Recently made or read tree nodes, first in, first out. Nodes are keyed by hash, so enclaves
    may share them.
    """

    def __init__(self, capacity: int = MAX_NODES) -> None:
        self._nodes: OrderedDict[bytes, bytes] = OrderedDict()
        self._capacity = capacity
        self.leaves: dict[tuple[bytes, bytes], bytes | None] = {}
        """Value of a key under a root: every commit looks up its author's rights."""

    def get(self, node_hash: bytes) -> bytes | None:
        return self._nodes.get(node_hash)

    def put(self, nodes: Iterable[tuple[bytes, bytes]]) -> None:
        if len(self.leaves) > MAX_LEAVES:
            self.leaves.clear()
        self._nodes.update(nodes)
        while len(self._nodes) > self._capacity:
            self._nodes.popitem(last=False)


class BatchOverlay(StoredEnclaveReader):
    """One enclave during one batch: reads see the batch's changes on top of the store."""

    def __init__(self, store: Store, enclave: bytes, state: EnclaveState | None, cache: NodeCache) -> None:
        super().__init__(store, enclave)
        self.state = state
        self.nodes: dict[bytes, bytes] = {}
        self._targets: dict[bytes, Target] = {}
        self._records: dict[tuple[RecordKind, bytes], KeyRecord] = {}
        self._entries: dict[bytes, KeyRecord] = {}
        self._cache = cache

    def read_node(self, node_hash: bytes) -> bytes:
        record = self.nodes.get(node_hash) or self._cache.get(node_hash)
        if record is None:
            record = super().read_node(node_hash)
            self._cache.put([(node_hash, record)])
        return record

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        leaves = self._cache.leaves
        if (root, key) not in leaves:
            leaves[root, key] = super().leaf(root, key)
        return leaves[root, key]

    def target(self, event_id: bytes) -> Target | None:
        return self._targets.get(event_id) or super().target(event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return self._records.get((kind, key)) or super().record(kind, key)

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        if event_id in self._entries:
            return self._entries[event_id]
        stored = super().record_of(event_id)
        return None if stored is None or (stored.kind, stored.key) in self._records else stored

    def add(self, transition: Transition, event: Event | None) -> None:
        """Add what a step changes."""
        self.state = transition.state
        self.nodes.update(transition.tree_nodes)
        for record in transition.records:
            before = self._records.get((record.kind, record.key))
            if before is not None and before.entry is not None:
                del self._entries[before.entry]
            if record.entry is not None:
                self._entries[record.entry] = record
            self._records[record.kind, record.key] = record
        if event is not None:
            self._targets[event.id] = target_of(event)

    def mark_written(self) -> None:
        """Forget the changes, which are now in the store."""
        self._cache.put(self.nodes.items())
        self.nodes = {}
        self._targets, self._records, self._entries = {}, {}, {}
