"""An enclave's state as bytes, without the policy, which comes from the Manifest, and the pending
leaves, which are stored by key.
"""

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from enc.core.machine.state import EnclaveState
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
