"""The state of an enclave, what one step adds to it, and how rules read it."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import KeyRecord, RecordKind, Target
from enc.core.rules.policy_types import Draft, Lifecycle, Policy
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import OpenBundle
from enc.core.trees.merkle_log import Edge, LogNodes
from enc.core.trees.sparse_merkle import TreeNodeReader, TreeNodes
from enc.core.trees.state_key import CLOSED, gate_key


class StoredEnclave(Protocol):
    """Reads what is stored besides a state: the enclave's tree nodes, events and, in a registry,
    records."""

    def read_node(self, node_hash: bytes) -> bytes: ...

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        """Return the value at `key` under `root`, as `sparse_merkle.get(self, root, key)` does."""
        ...

    def target(self, event_id: bytes) -> Target | None: ...

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None: ...

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        """Return the record whose active entry is this event."""
        ...


class EnclaveState(Struct, frozen=True, kw_only=True):
    """An enclave after its latest event."""

    enclave: bytes
    policy: Policy
    seq: int
    """Seq of the latest event."""
    min_timestamp: int
    """Smallest timestamp of the next event: the latest event's, or the deadline of a bundle sealed
    since."""
    sequencer: bytes
    """Key that finalises the next event; after a Migrate, its `new_sequencer`."""
    lifecycle: Lifecycle = "active"
    """Lifecycle for judging the next commit; never `migrated`."""
    migrated: bool = False
    """The latest event is a Migrate: the tree holds `migrated` until the next event restores
    `lifecycle`."""
    log: Edge = Edge()
    bundle: OpenBundle | None = None
    root: bytes = EMPTY_HASH
    """Root of the sparse tree without `pending`."""
    pending: Mapping[bytes, bytes | None] = {}
    closed_gates: frozenset[str] = frozenset()
    """Aliases of the closed gates, as their leaves say. Stored so that no decision reads the
    leaves.
    """


class ClosedBundle(Struct, frozen=True):
    """A leaf of the log."""

    index: int
    first_seq: int
    count: int
    events_root: bytes
    state_hash: bytes


class Transition(Struct, frozen=True, kw_only=True):
    """What one step adds. A node stores it with the event in one transaction, and needs nothing
    else."""

    state: EnclaveState
    leaves: Mapping[bytes, bytes | None] = {}
    """Changes of the sparse tree by the event."""
    closed: tuple[ClosedBundle, ...] = ()
    log_nodes: LogNodes = {}
    tree_nodes: TreeNodes = {}
    flushed: bool = False
    """Whether the changes that were pending before are now in the tree."""
    records: tuple[KeyRecord, ...] = ()
    """Changed records of a registry, in their new form."""


class _View:
    """The present state: pending changes on top of the tree."""

    def __init__(self, state: EnclaveState, reader: StoredEnclave) -> None:
        self._pending, self._root, self._reader = state.pending, state.root, reader
        self.closed_gates = state.closed_gates

    def leaf(self, key: bytes) -> bytes | None:
        return self._pending[key] if key in self._pending else self._reader.leaf(self._root, key)

    def target(self, event_id: bytes) -> Target | None:
        return self._reader.target(event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return self._reader.record(kind, key)

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return self._reader.record_of(event_id)


def view(state: EnclaveState, reader: StoredEnclave) -> Draft:
    """Return the present state for reading bitmasks, gates and leaves."""
    return Draft(_View(state, reader), state.sequencer)


def read_closed_gates(state: EnclaveState, reader: TreeNodeReader) -> frozenset[str]:
    """Return the gates whose leaves say that they are closed. Reads each tree node once."""
    nodes = _ReadOnce(reader)

    def leaf(key: bytes) -> bytes | None:
        return state.pending[key] if key in state.pending else sparse_merkle.get(nodes, state.root, key)

    return frozenset(alias for alias in state.policy.gates if leaf(gate_key(alias)) == CLOSED)


class _ReadOnce:
    """Reads each node once from the reader behind it."""

    def __init__(self, reader: TreeNodeReader) -> None:
        self._reader = reader
        self._nodes: dict[bytes, bytes] = {}

    def read_node(self, node_hash: bytes) -> bytes:
        found = self._nodes.get(node_hash)
        if found is None:
            found = self._nodes[node_hash] = self._reader.read_node(node_hash)
        return found
