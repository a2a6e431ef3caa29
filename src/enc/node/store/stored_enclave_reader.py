"""Reads the stored data of one enclave."""

from enc.core.primitives.types import KeyRecord, RecordKind, Target
from enc.core.trees import sparse_merkle
from enc.node.store.store_interface import Store


class StoredEnclaveReader:
    """The stored data of one enclave, as the state machine and the proofs read it."""

    def __init__(self, store: Store, enclave: bytes) -> None:
        self._store, self._enclave = store, enclave

    def read_node(self, node_hash: bytes) -> bytes:
        return self._store.read_node(self._enclave, node_hash)

    def read_hash(self, level: int, index: int) -> bytes:
        return self._store.read_hash(self._enclave, level, index)

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        return sparse_merkle.get(self, root, key)

    def target(self, event_id: bytes) -> Target | None:
        return self._store.target(self._enclave, event_id)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return self._store.record(self._enclave, kind, key)

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return self._store.record_of(self._enclave, event_id)
