"""An enclave's state as bytes, without the policy, which comes from the Manifest, and the pending
leaves, which are stored by key.
"""

import sqlite3

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from enc.core.machine.state import EnclaveState, read_closed_gates
from enc.core.rules.policy_types import Lifecycle, Policy
from enc.core.trees.bundle import OpenBundle
from enc.core.trees.merkle_log import Edge


class _Snapshot(Struct, array_like=True):
    seq: int
    min_timestamp: int
    sequencer: bytes
    lifecycle: Lifecycle
    migrated: bool
    log: Edge
    bundle: OpenBundle | None
    root: bytes


_encoder, _decoder = Encoder(), Decoder(_Snapshot)


def pack_state(state: EnclaveState) -> bytes:
    return _encoder.encode(
        _Snapshot(
            state.seq,
            state.min_timestamp,
            state.sequencer,
            state.lifecycle,
            state.migrated,
            state.log,
            state.bundle,
            state.root,
        )
    )


def unpack_state(data: bytes, enclave: bytes, policy: Policy, pending: dict[bytes, bytes | None]) -> EnclaveState:
    found = _decoder.decode(data)
    return EnclaveState(
        enclave=enclave,
        policy=policy,
        seq=found.seq,
        min_timestamp=found.min_timestamp,
        sequencer=found.sequencer,
        lifecycle=found.lifecycle,
        migrated=found.migrated,
        log=found.log,
        bundle=found.bundle,
        root=found.root,
        pending=pending,
    )


def read_position(data: bytes) -> tuple[int, int]:
    """Return the seq of the latest event and the least timestamp of the next one."""
    found = _decoder.decode(data)
    return found.seq, found.min_timestamp


class _TreeNodes:
    """Reads the tree nodes of an enclave in one transaction."""

    def __init__(self, db: sqlite3.Connection, e: int) -> None:
        self._db, self._e = db, e

    def read_node(self, node_hash: bytes) -> bytes:
        query = "SELECT record FROM tree_nodes WHERE e = ? AND hash = ?"
        row = self._db.execute(query, (self._e, node_hash)).fetchone()
        if row is None:
            raise KeyError(node_hash)
        return bytes(row[0])


def with_closed_gates(state: EnclaveState, db: sqlite3.Connection, e: int) -> EnclaveState:
    """Return the state with the gates that are closed by its leaves."""
    if not state.policy.gates:
        return state
    return replace(state, closed_gates=read_closed_gates(state, _TreeNodes(db, e)))
