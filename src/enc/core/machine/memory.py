"""In-memory storage of an enclave's nodes, targets, bundles and records, for replay, tests and
examples."""

from enc.core.log.event import target_of
from enc.core.machine.state import ClosedBundle, Transition
from enc.core.primitives.types import Event, KeyRecord, RecordKind, Target
from enc.core.trees import sparse_merkle
from enc.core.trees.merkle_log import LogNodes
from enc.core.trees.sparse_merkle import TreeNodes


class EnclaveMemory:
    """Stores transitions in dictionaries, and reads them for the state machine, the log and the
    sparse tree."""

    def __init__(self) -> None:
        self.log_nodes: LogNodes = {}
        self.tree_nodes: TreeNodes = {}
        self.targets: dict[bytes, Target] = {}
        self.bundles: list[ClosedBundle] = []
        self.records: dict[tuple[RecordKind, bytes], KeyRecord] = {}
        self._entries: dict[bytes, KeyRecord] = {}

    def read_hash(self, level: int, index: int) -> bytes:
        return self.log_nodes[level, index]

    def read_node(self, node_hash: bytes) -> bytes:
        return self.tree_nodes[node_hash]

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        return sparse_merkle.get(self, root, key)

    def target(self, event_id: bytes) -> Target | None:
        return self.targets.get(event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return self.records.get((kind, key))

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return self._entries.get(event_id)

    def put_record(self, record: KeyRecord) -> None:
        """Store the record in place of its former version."""
        before = self.records.get((record.kind, record.key))
        if before is not None and before.entry is not None:
            del self._entries[before.entry]
        if record.entry is not None:
            self._entries[record.entry] = record
        self.records[record.kind, record.key] = record

    def put(self, event: Event | None, transition: Transition) -> None:
        """Store what a step added; a sealing step has no event."""
        if event is not None:
            self.targets[event.id] = target_of(event)
        self.log_nodes.update(transition.log_nodes)
        self.tree_nodes.update(transition.tree_nodes)
        self.bundles.extend(transition.closed)
        for record in transition.records:
            self.put_record(record)
