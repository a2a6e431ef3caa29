"""Bodies of sealed requests, as JSON spells them."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from enc.core.log.filter import MAX_LIMIT


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


class StateKey(Struct):
    """A key of the state."""

    namespace: str
    key: str


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
