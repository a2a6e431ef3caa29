"""What a node keeps, and the small protocol behind which it keeps it.

Writing is one call: a list of steps becomes durable together or not at all. After `write` returns, and only then, may
anybody hear of them. After a crash the store alone tells the truth: `load` gives the state that the last `write` left.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from enc.core.enclave import ClosedBundle, EnclaveState, Transition
from enc.core.filter import Filter
from enc.core.policy import Effects, ReadScope
from enc.core.types import Event, Target, TreeHead

Status = Literal["active", "updated", "deleted"]


class Step(Struct, frozen=True, kw_only=True):
    """One transition of one enclave, ready to be kept. A step that only seals a bundle has no event."""

    transition: Transition
    event: Event | None = None
    effects: Effects = Effects()
    subject: str = ""
    """The type that R, P and N are judged by: an Update's or Delete's is its target's."""
    heads: tuple[TreeHead, ...] = ()
    """One for each bundle that the step closed."""


class Found(Struct, frozen=True):
    """An event as it stands now."""

    event: Event
    status: Status
    updated_by: bytes | None = None


class Readable(Struct, frozen=True):
    """Who asks, and what they may read; `each` decides where the scope says `some`."""

    identity: bytes
    scope: ReadScope
    each: Callable[[Event, str], bool]
    """Given an event and its subject type."""

    def admits(self, event: Event, subject: str) -> bool:
        reach = self.scope.of(subject)
        if reach == "some":
            return self.each(event, subject)
        return reach == "all" or (reach == "own" and event.from_ == self.identity)


class Store(Protocol):
    """Every method may raise Unavailable. `write` is called by one thread at a time; reads by any."""

    def write(self, steps: Sequence[Step], clock: int) -> None:
        """Keep all steps, durably, or none; and that the node's clock has shown this time."""
        ...

    def clock(self) -> int:
        """The highest time that the node's own clock has shown at a write."""
        ...

    def load(self, enclave: bytes) -> EnclaveState | None: ...

    def enclaves(self) -> Iterator[bytes]:
        """The ids of all enclaves, by rising id."""
        ...

    def overdue(self, clock: int) -> list[bytes]:
        """Enclaves whose open bundle's deadline has passed."""
        ...

    # What lies behind a state

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes: ...

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes: ...

    def target(self, enclave: bytes, event_id: bytes) -> Target | None: ...

    # Events

    def event(self, enclave: bytes, event_id: bytes) -> Found | None: ...

    def committed(self, enclave: bytes, commit_hash: bytes) -> Event | None:
        """The event that the commit with this hash became."""
        ...

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        """Events by seq, whatever their status."""
        ...

    def find(self, enclave: bytes, filter_: Filter, readable: Readable) -> Iterator[Found]:
        """The events that match and that the asker may read, deleted ones left out, in the filter's order.

        The caller stops when it has enough.
        """
        ...

    # Bundles and heads

    def bundle(self, enclave: bytes, index: int) -> ClosedBundle | None: ...

    def bundle_of(self, enclave: bytes, seq: int) -> ClosedBundle | None:
        """The closed bundle that holds this event; None while it is open."""
        ...

    def head(self, enclave: bytes, size: int | None = None) -> TreeHead | None:
        """The head that was signed for this tree size; without one, the latest."""
        ...

    # Erasure by time

    def expired(self, clock: int, limit: int) -> list[tuple[bytes, bytes]]:
        """(enclave, event id) of contents whose auto-delete time has passed and that are still there."""
        ...

    def erase(self, enclave: bytes, event_id: bytes) -> None:
        """Take an event's content away, and those of its Updates."""
        ...

    def purge(self, enclave: bytes) -> None:
        """Take away everything of a terminated enclave but the fact that it was."""
        ...

    def close(self) -> None: ...


class EnclaveReader:
    """The stored part of one enclave, as the state machine and the proofs read it."""

    def __init__(self, store: Store, enclave: bytes) -> None:
        self._store, self._enclave = store, enclave

    def read_node(self, node_hash: bytes) -> bytes:
        return self._store.read_node(self._enclave, node_hash)

    def read_hash(self, level: int, index: int) -> bytes:
        return self._store.read_hash(self._enclave, level, index)

    def target(self, event_id: bytes) -> Target | None:
        return self._store.target(self._enclave, event_id)
