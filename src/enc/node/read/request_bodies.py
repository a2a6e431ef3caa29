"""Bodies of sealed requests, as JSON spells them."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from enc.core.log.filter import MAX_LIMIT
from enc.core.primitives.encoding import MAX_INT


class QueryBody(Struct):
    """Which events, and whether with proofs."""

    filter: dict[str, Any]
    proof: bool = False


class InclusionBody(Struct):
    """Which leaf, of a log of which size."""

    leaf_index: int
    tree_size: int | UnsetType = UNSET


class BundleBody(Struct):
    """An event, or a leaf."""

    event_id: str | UnsetType = UNSET
    leaf_index: int | UnsetType = UNSET


class OwnSlot(Struct):
    """Names an identity's Own slot."""

    identity: str
    key: str


class StateKey(Struct):
    """A key of the state. `own`: the Own slot whose key it is."""

    namespace: str
    key: str
    own: OwnSlot | UnsetType = UNSET


class StateBody(StateKey):
    """A key of the state, and as of when."""

    tree_size: int | UnsetType = UNSET
    mode: str = "verified"


class StateBatchBody(Struct):
    """Keys of the state, and as of when."""

    keys: list[StateKey]
    tree_size: int | UnsetType = UNSET
    mode: str = "verified"


class CheckpointBody(Struct):
    """For how many seconds to hold the enclave."""

    hold: int = 0


class ExportBody(Struct):
    """From which event on, and how many at most."""

    from_seq: int = 0
    limit: int = MAX_LIMIT


class PushSeqRange(Struct, forbid_unknown_fields=True):
    """Batches after one number, up to another."""

    start_after: int = 0
    end_at: int = MAX_INT


class PullBody(Struct):
    """Which batches of the caller's queue for a URL; with `enclave`, only its events."""

    url: str
    push_seq: int | list[int] | PushSeqRange
    enclave: str | UnsetType = UNSET


class EndpointKey(Struct):
    """Identifies an endpoint of an enclave."""

    identity: str
    trait: str


class DeliveriesBody(Struct):
    """After which endpoint to continue."""

    after: EndpointKey | UnsetType = UNSET
