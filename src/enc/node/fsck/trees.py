"""What lies behind an enclave's state: the nodes of both trees, the closed bundles and their heads."""

from collections.abc import Callable
from typing import Any

from enc.core.enclave import ClosedBundle, Transition
from enc.core.errors import InvalidProof
from enc.core.hashing import log_leaf
from enc.core.memory import EnclaveMemory
from enc.core.merkle_log import Edge
from enc.core.tree_head import check_bound_head
from enc.core.types import Event, Target
from enc.node.fsck.difference import Difference
from enc.node.store.base import Store
from enc.node.store.sqlite_check import WRONG, Rows

CACHED = 65_536
"""Tree nodes that are kept in memory after they were read."""


class Trees(EnclaveMemory):
    """What the replay reads from and adds to: the store itself, each part compared when the replay makes it."""

    def __init__(self, store: Store, enclave: bytes, seq_pub: bytes) -> None:
        super().__init__()
        self._store, self._enclave, self._seq_pub = store, enclave, seq_pub
        self._cache: dict[bytes, bytes] = {}
        self._sequencer = b""
        self._log = Edge()
        self.rows: Rows | None = None
        self.adopted = -1
        """The first seq of the latest bundle whose head this node signed though it did not close it."""

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
        """Compare what a step adds; a sealing step has no event."""
        seq = transition.state.seq
        for node_hash, record in transition.tree_nodes.items():
            self._same(seq, f"tree node {node_hash.hex()}", _stored(self.read_node, node_hash), record)
        for (level, i), log_hash in transition.log_nodes.items():
            self._same(seq, f"log node {level}, {i}", _stored(self.read_hash, level, i), log_hash)
        for bundle in transition.closed:
            self._check_bundle(bundle)
            self._check_head(bundle, self._signers(bundle, event))
        if self.rows is not None:
            self.rows.take_nodes(transition.tree_nodes)
        if event is not None:
            self._sequencer = event.sequencer

    def _same(self, seq: int, what: str, stored: Any, derived: Any) -> None:
        if stored != derived:
            raise Difference(self._enclave, seq, f"{what}: {'missing' if stored is None else WRONG}")

    def _check_bundle(self, bundle: ClosedBundle) -> None:
        first, last = bundle.first_seq, bundle.first_seq + bundle.count - 1
        self._same(first, f"bundle {bundle.index}", self._store.bundle(self._enclave, bundle.index), bundle)
        for seq in (first, last):
            self._same(seq, "the bundle that holds it", self._store.bundle_of(self._enclave, seq), bundle)

    def _signers(self, bundle: ClosedBundle, event: Event | None) -> list[bytes]:
        """Who closed the bundle: the sequencer that filled it, or the one whose event came too late for it."""
        if event is None:
            return [self._sequencer]
        holds_event = event.seq < bundle.first_seq + bundle.count
        return [event.sequencer] if holds_event else [self._sequencer, event.sequencer]

    def _check_head(self, bundle: ClosedBundle, signers: list[bytes]) -> None:
        """A head is signed by who closed the bundle, or by this node if it took the log over later."""
        self._log = self._log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
        size, root, seq = self._log.size, self._log.root(), bundle.first_seq
        head = self._store.head(self._enclave, size)
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
    """What `read` gives, or None where there is nothing."""
    try:
        return read(*args)
    except KeyError:
        return None
