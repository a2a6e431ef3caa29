"""What lies behind a group's state, kept in dictionaries: leaves of the state, and what is asked of earlier events."""

from enc.core.types import Record, RecordKind, Target


class Behind:
    """A Reader of the state machine that needs no tree: of the state's root nothing is computed.

    `guess` stands for an event that is not shown.
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

    def record(self, kind: RecordKind, key: bytes) -> Record | None:
        return None

    def record_of(self, event_id: bytes) -> Record | None:
        return None
