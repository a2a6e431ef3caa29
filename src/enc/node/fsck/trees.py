"""Checks what an enclave's state refers to: both trees' nodes, closed bundles and their heads, a
registry's records.
"""

from collections.abc import Callable
from typing import Any

from enc.core.errors import InvalidProof
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import ClosedBundle, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, Target
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import check_bound_head
from enc.node.fsck.difference import Difference
from enc.node.store.sqlite.check import WRONG, RowCheck
from enc.node.store.store_interface import Store

CACHED = 65_536
"""Tree nodes that are cached after they were read."""


class TreeCheck(EnclaveMemory):
    """The replay's storage: reads from the store, and compares each part that the replay adds."""

    def __init__(self, store: Store, enclave: bytes, seq_pub: bytes) -> None:
        super().__init__()
        self._store, self._enclave, self._seq_pub = store, enclave, seq_pub
        self._cache: dict[bytes, bytes] = {}
        self._sequencer = b""
        self._log = Edge()
        self.rows: RowCheck | None = None
        self.adopted = -1
        """First seq of the latest bundle whose head this node signed without having closed the
        bundle.
        """

    def read_node(self, node_hash: bytes) -> bytes:
        if node_hash not in self._cache:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            self._cache[node_hash] = self._store.read_node(self._enclave, node_hash)
        return self._cache[node_hash]

    def read_hash(self, level: int, index: int) -> bytes:
        return self._store.read_hash(self._enclave, level, index)

    def target(self, event_id: bytes) -> Target | None:
        return self._store.target(self._enclave, event_id)

    def put(self, event: Event | None, transition: Transition) -> None:
        """Compare what a step adds with the store; a sealing step has no event."""
        seq = transition.state.seq
        for node_hash, record in transition.tree_nodes.items():
            self._same(seq, f"tree node {node_hash.hex()}", _stored(self.read_node, node_hash), record)
        for (level, i), log_hash in transition.log_nodes.items():
            self._same(seq, f"log node {level}, {i}", _stored(self.read_hash, level, i), log_hash)
        for bundle in transition.closed:
            self._check_bundle(bundle)
            self._check_head(bundle, self._signers(bundle, event))
        for changed in transition.records:  # the store has only the latest version
            self.put_record(changed)
        if self.rows is not None:
            self.rows.add_tree_nodes(transition.tree_nodes)
        if event is not None:
            self._sequencer = event.sequencer

    def check_records(self, seq: int) -> None:
        """Compare each record by its key, by its entry and in a listing. Call it after the whole
        log.
        """
        for (kind, key), derived in self.records.items():
            what = f"record of {kind} {key.hex()}"
            self._same(seq, what, self._store.record(self._enclave, kind, key), derived)
            if derived.entry is not None:
                self._same(seq, f"{what}, by its entry", self._store.record_of(self._enclave, derived.entry), derived)
        active = [record for record in self.records.values() if record.kind == "enclave" and record.entry is not None]
        after = b""
        for derived in sorted(active, key=lambda record: record.key):
            what, before = f"listing of enclave {derived.key.hex()}", _before(derived.key)
            for page in (
                self._store.listed(self._enclave, after, 1),
                self._store.listed(self._enclave, before, 1, app=derived.app),
                self._store.listed(self._enclave, before, 1, creator=derived.creator),
            ):
                self._same(seq, what, page[0] if page else None, derived)
            after = derived.key

    def _same(self, seq: int, what: str, stored: Any, derived: Any) -> None:
        if stored != derived:
            raise Difference(self._enclave, seq, f"{what}: {'missing' if stored is None else WRONG}")

    def _check_bundle(self, bundle: ClosedBundle) -> None:
        first, last = bundle.first_seq, bundle.first_seq + bundle.count - 1
        self._same(first, f"bundle {bundle.index}", self._store.bundle(self._enclave, bundle.index), bundle)
        for seq in (first, last):
            self._same(seq, "the bundle that holds it", self._store.bundle_of(self._enclave, seq), bundle)

    def _signers(self, bundle: ClosedBundle, event: Event | None) -> list[bytes]:
        """Return the possible signers of the head: the sequencer that filled the bundle, or the one
        whose event came too late for it.
        """
        if event is None:
            return [self._sequencer]
        holds_event = event.seq < bundle.first_seq + bundle.count
        return [event.sequencer] if holds_event else [self._sequencer, event.sequencer]

    def _check_head(self, bundle: ClosedBundle, signers: list[bytes]) -> None:
        """Check that the head is signed by the node that closed the bundle, or by this node if it
        adopted the log later.
        """
        self._log = self._log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
        size, root, seq = self._log.size, self._log.root(), bundle.first_seq
        head = self._store.head(self._enclave, size)
        if head is None and signers[0] != self._seq_pub:
            return  # imported over a copied Manifest, whose head of this size this node has signed
        if head is None:
            raise Difference(self._enclave, seq, f"head of size {size}: missing")
        self._same(seq, f"head of size {size}", (head.ts, head.r), (size, root))
        for key in dict.fromkeys([*signers, self._seq_pub]):
            try:
                check_bound_head(head, key, self._enclave)
            except InvalidProof as e:
                failure = e
            else:
                self.adopted = self.adopted if key in signers else seq
                return
        raise Difference(self._enclave, seq, f"head of size {size}: {failure.message}")


def _stored(read: Callable[..., bytes], *args: Any) -> bytes | None:
    """Return what `read` returns, or None on KeyError."""
    try:
        return read(*args)
    except KeyError:
        return None


def _before(key: bytes) -> bytes:
    """Return the largest key that sorts before `key`: no other key of 32 bytes is between them."""
    return key[:-1] + bytes([key[-1] - 1]) if key[-1] else key[:-1]
