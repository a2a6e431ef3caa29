"""The state of a group in dictionaries: leaves of the state, and facts about earlier events."""

from enc.core.primitives.types import KeyRecord, RecordKind, Target


class GroupState:
    """A StoredEnclave of the state machine without a tree: the root of the state is not computed.

    `guess`: the Target assumed for an event that the node does not show because it was deleted.
    """

    def __init__(self) -> None:
        self.leaves: dict[bytes, bytes | None] = {}
        self.targets: dict[bytes, Target] = {}
        self.guess: Target | None = None

    def read_node(self, node_hash: bytes) -> bytes:
        raise KeyError(node_hash)

    def leaf(self, root: bytes, key: bytes) -> bytes | None:
        return self.leaves.get(key)

    def target(self, event_id: bytes) -> Target | None:
        return self.targets.get(event_id, self.guess)

    def record(self, kind: RecordKind, key: bytes) -> KeyRecord | None:
        return None

    def record_of(self, event_id: bytes) -> KeyRecord | None:
        return None
