"""Proofs of one enclave in wire format: heads, consistency, inclusion, membership, state.

Every proof of the log includes the tree head of its size, so that a client needs nothing else to
verify it.
"""

from typing import Any

from msgspec import Struct

from enc.core.errors import EventNotFound, EventPending, InvalidRange, LeafNotFound, TreeSizeNotFound
from enc.core.machine.state import ClosedBundle, EnclaveState
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import TreeHead
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import BundleTree
from enc.core.trees.merkle_log import prove_consistency, prove_inclusion
from enc.core.trees.proof import wire_bundle_proof, wire_consistency, wire_inclusion, wire_state_proof
from enc.core.trees.sparse_merkle import TreeNodes
from enc.core.trees.tree_head import sign_head, wire_head
from enc.node.store.store_interface import Store
from enc.node.store.stored_enclave_reader import StoredEnclaveReader

MAX_CACHED = 4096
"""Most nodes of each tree that are kept for the proofs of one answer."""

Wire = dict[str, Any]


class ProofRoot(Struct, frozen=True):
    """The state root that a proof is under: that of a closed bundle, or the current one (leaf_index
    None).
    """

    hash: bytes
    leaf_index: int | None
    nodes: TreeNodes = {}
    """Tree nodes of the current root that are not stored yet."""


class _Overlay:
    def __init__(self, reader: "_CachingReader", nodes: TreeNodes) -> None:
        self._reader, self._nodes = reader, nodes

    def read_node(self, node_hash: bytes) -> bytes:
        return self._nodes.get(node_hash) or self._reader.read_node(node_hash)


class _CachingReader(StoredEnclaveReader):
    """Reads each tree node once: the proofs of one answer share the nodes near the root."""

    def __init__(self, store: Store, enclave: bytes) -> None:
        super().__init__(store, enclave)
        self._nodes = dict[bytes, bytes]()
        self._hashes = dict[tuple[int, int], bytes]()

    def read_node(self, node_hash: bytes) -> bytes:
        node = self._nodes.get(node_hash)
        if node is None:
            if len(self._nodes) >= MAX_CACHED:
                self._nodes.clear()
            node = self._nodes[node_hash] = super().read_node(node_hash)
        return node

    def read_hash(self, level: int, index: int) -> bytes:
        found = self._hashes.get((level, index))
        if found is None:
            if len(self._hashes) >= MAX_CACHED:
                self._hashes.clear()
            found = self._hashes[level, index] = super().read_hash(level, index)
        return found


class Proofs:
    """Proofs of one enclave as of one durable state, all under the head of its closed bundles."""

    def __init__(self, store: Store, key: Signer, state: EnclaveState, clock: int) -> None:
        self._store, self._key, self._state, self._clock = store, key, state, clock
        self._enclave = state.enclave
        self._reader = _CachingReader(store, state.enclave)
        self._trees: dict[int, BundleTree] = {}
        self.size = state.log.size

    # The log

    def head(self, size: int | None = None) -> TreeHead:
        """Return the head signed when the log reached this size; by default the newest."""
        size = self.size if size is None else size
        if size == 0:
            created_at = self._store.events(self._enclave, 0, 1)[0].timestamp
            return sign_head(self._key, self._enclave, created_at, 0, EMPTY_HASH)
        head = self._store.head(self._enclave, size)
        if not 0 < size <= self.size:
            raise TreeSizeNotFound(f"tree_size: the log has {self.size} closed bundles")
        if head is None:
            raise TreeSizeNotFound("tree_size: this node has signed no head of this size; ask for a larger one")
        return head

    def sth(self, size: int | None = None) -> Wire:
        return wire_head(self.head(size))

    def consistency(self, first: int | None, second: int | None) -> Wire:
        second = self.size if second is None else second
        if first is None or not 0 < first <= second <= self.size:
            raise InvalidRange(f"from and to: expected 0 < from <= to <= {self.size}")
        proof = prove_consistency(self._reader, first, second)
        return {**wire_consistency(proof), "sth": self.sth(second)}

    def inclusion(self, leaf_index: int, size: int | None = None) -> Wire:
        size = self.size if size is None else size
        sth = self.sth(size)
        if not 0 <= leaf_index < size:
            raise LeafNotFound(f"leaf_index: the tree has {size} leaves")
        return {**self.bare_inclusion(leaf_index, size), "sth": sth}

    def bare_inclusion(self, leaf_index: int, size: int) -> Wire:
        return self.inclusion_of(self.leaf(leaf_index), size)

    def inclusion_of(self, bundle: ClosedBundle, size: int) -> Wire:
        proof = wire_inclusion(prove_inclusion(self._reader, bundle.index, size))
        return {**proof, "events_root": bundle.events_root.hex(), "state_hash": bundle.state_hash.hex()}

    # Bundles

    def leaf(self, index: int) -> ClosedBundle:
        bundle = self._store.bundle(self._enclave, index) if 0 <= index < self.size else None
        if bundle is None:
            raise LeafNotFound(f"leaf_index: the log has {self.size} closed bundles")
        return bundle

    def ids(self, bundle: ClosedBundle) -> list[bytes]:
        return self._store.ids(self._enclave, bundle.first_seq, bundle.count)

    def whole_bundle(self, index: int) -> Wire:
        """Return the ids of a bundle's events.

        A client that has an event for each id knows that none was withheld.
        """
        bundle = self.leaf(index)
        return {
            "leaf_index": index,
            "first_seq": bundle.first_seq,
            "ids": [event_id.hex() for event_id in self.ids(bundle)],
            "events_root": bundle.events_root.hex(),
            "sth": self.sth(),
        }

    def membership(self, event_id: bytes) -> Wire:
        found = self._store.event(self._enclave, event_id)
        if found is None:
            raise EventNotFound("event_id: no such event in this enclave")
        bundle = self.bundle_of(found.event.seq)
        if bundle is None:
            raise EventPending("the event's bundle is not closed yet", retry_after_ms=self._until_closed())
        return {**self.member(bundle, found.event.seq), "sth": self.sth()}

    def member(self, bundle: ClosedBundle, seq: int) -> Wire:
        tree = self._trees.get(bundle.index)
        if tree is None:
            tree = self._trees[bundle.index] = BundleTree(self.ids(bundle))
        proof = wire_bundle_proof(tree.prove(seq - bundle.first_seq))
        return {"leaf_index": bundle.index, **proof, "events_root": bundle.events_root.hex()}

    def bundle_of(self, seq: int) -> ClosedBundle | None:
        bundle = self._store.bundle_of(self._enclave, seq)
        return bundle if bundle and bundle.index < self.size else None

    def _until_closed(self) -> int:
        bundle, config = self._state.bundle, self._state.policy.bundle
        return max(bundle.deadline(config) - self._clock, 1) if bundle else config.timeout

    # State

    def root_at(self, size: int | None, current: bool) -> ProofRoot:
        """Return the state root after the bundle that made the log this size or, if `current`, the
        current root.
        """
        if size is None and current:
            root, nodes = sparse_merkle.update(self._reader, self._state.root, self._state.pending)
            return ProofRoot(root, None, nodes)
        size = self.size if size is None else size
        if not 0 < size <= self.size:
            raise TreeSizeNotFound(f"tree_size: the log has {self.size} closed bundles")
        return ProofRoot(self.leaf(size - 1).state_hash, size - 1)

    def state(self, key: bytes, at: ProofRoot) -> Wire:
        return wire_state_proof(sparse_merkle.prove(_Overlay(self._reader, at.nodes), at.hash, key))

    def root_evidence(self, at: ProofRoot) -> Wire:
        """Return what ties a root to the tree head: no inclusion proof for a root that is in no
        bundle yet.
        """
        wire: Wire = {"state_hash": at.hash.hex(), "leaf_index": at.leaf_index}
        if at.leaf_index is not None:
            wire["inclusion"] = self.bare_inclusion(at.leaf_index, self.size)
        return {**wire, "sth": self.sth()}
