"""What a node stores, and the protocol through which it reads and writes it.

Writing is one call: a list of steps becomes durable together or not at all. Only after `write` has
returned may the steps be published. After a crash the store is the only source of truth: `load`
returns the state that the last `write` left.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from enc.core.log.filter import Filter
from enc.core.machine.state import ClosedBundle, EnclaveState
from enc.core.primitives.types import Commit, Event, KeyRecord, RecordKind, Target, TreeHead
from enc.core.rules.policy_types import Policy, ReadScope
from enc.node.store.events import EventWithStatus, RawEvent, SearchItem
from enc.node.store.push_interface import PushStore
from enc.node.store.restrictions import Restriction, RestrictionStore
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.steps import AppendRun, Step
from enc.node.store.withheld_store import WithheldStore


class Usage(Struct, frozen=True):
    """How much of an identity's data this node has ever accepted. Purged enclaves are subtracted."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0
    """Size of the contents in UTF-8."""


class Charge(Struct, frozen=True):
    """Events of an imported log: they are charged to this identity, not to their authors."""

    first_seq: int
    last_seq: int
    identity: bytes


class Staging(Protocol):
    """A log that is being imported: stored slice by slice, and invisible until it is adopted.

    `name` identifies it meanwhile in the store methods that take an enclave id.
    """

    name: bytes

    @property
    def size(self) -> int:
        """Bytes of contents so far that will be charged."""
        ...

    def write(self, steps: Sequence[Step | AppendRun]) -> None:
        """Store all steps or none. Raises ReplayFailed if the log contains a commit twice."""
        ...

    def target(self, event_id: bytes) -> Target | None: ...

    def rest(self, clock: int) -> bool:
        """Free memory, and erase contents whose auto-delete time has passed: nothing is written for a
        while. Returns whether there are more of them; then call it again.
        """
        ...

    def adopt(self, state: EnclaveState, payer: bytes, clock: int) -> None:
        """Make it the enclave's log, replacing the stored one, in one step.

        `payer` is charged for the events beyond the stored ones, and for the enclave if it is new
        here. Raises EnclaveExists if the stored log has changed meanwhile.
        """
        ...

    def drop(self) -> None:
        """Abandon it; `delete_orphans` deletes its rows."""
        ...


class ReadRights(Struct, frozen=True):
    """An identity and what it may read; `each` decides where the scope is `some`."""

    identity: bytes
    scope: ReadScope
    each: Callable[[Event, str], bool]
    """Takes an event and its subject type."""

    def admits(self, event: Event, subject: str) -> bool:
        reach = self.scope.of(subject)
        if reach == "some":
            return self.each(event, subject)
        return reach == "all" or (reach == "own" and event.from_ == self.identity)


class Store(PushStore, WithheldStore, Protocol):
    """Every method may raise Unavailable. Any thread may read; only one thread at a time may write.

    Only `load`, `manifest`, `enclaves`, `has` and `is_purged` find a purged enclave; `load` and
    `manifest` none that was purged by order.
    """

    restrictions: RestrictionStore
    """What the operator forbids."""

    def write(self, steps: Sequence[Step], clock: int) -> None:
        """Store all steps durably, or none, and record that the node's clock has shown this time; 0: record
        none.
        """
        ...

    def write_nodes(self, enclave: bytes, nodes: Sequence[tuple[bytes, bytes]]) -> None:
        """Store tree nodes of an existing enclave, each with its hash, before the step that refers
        to them. They become durable with the next `write`.
        """
        ...

    def clock(self) -> int:
        """Return the highest time of the node's own clock that a write recorded."""
        ...

    def shown(self) -> int:
        """Return the highest time of the node's own clock that was ever recorded, also if an operator
        has lowered `clock` since.
        """
        ...

    def restored(self) -> str:
        """Return why the store must not be continued: it is a copy, and may lack what the node has
        signed. Empty if it may be.
        """
        ...

    def usage(self, identity: bytes) -> Usage: ...

    def size(self, enclave: bytes) -> int:
        """Return the bytes of an enclave's events and tree nodes, without erased contents, with those kept
        aside; 0 if it does not exist.
        """
        ...

    def largest_size(self) -> int:
        """Return the size of the largest enclave. Visits all of them."""
        ...

    def reusable(self) -> int:
        """Return how many bytes can be stored before the store takes more of the disk."""
        ...

    def spend(self, request: SpentRequest, clock: int) -> None:
        """Keep durably that a request was accepted; drop those whose time has passed.

        Raises Duplicate if it was accepted before, and RateLimited, keeping nothing, if too many
        are kept.
        """
        ...

    # Enclaves

    def load(self, enclave: bytes, policy: Policy | None = None) -> EnclaveState | None:
        """Return the latest state; None if the enclave does not exist. `policy`: its rules, if they are
        known; otherwise the Manifest is parsed.
        """
        ...

    def manifest(self, enclave: bytes) -> str | None:
        """Return the Manifest's content; None if the enclave does not exist."""
        ...

    def count(self) -> int:
        """Return the number of enclaves, without purged ones. Cheap for any number."""
        ...

    def enclaves(self) -> Iterator[bytes]:
        """Yield the ids of all enclaves in ascending order."""
        ...

    def overdue(self, clock: int, limit: int) -> list[bytes]:
        """Return enclaves whose open bundle's deadline has passed, the longest overdue first."""
        ...

    # What lies behind a state

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes:
        """Return a tree node. Raises KeyError if it is missing, like every Reader of the state
        machine.
        """
        ...

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes:
        """Return a log node's hash. Raises KeyError if it is missing."""
        ...

    def target(self, enclave: bytes, event_id: bytes) -> Target | None: ...

    # A registry's records

    def record(self, enclave: bytes, kind: RecordKind, key: bytes) -> KeyRecord | None: ...

    def record_of(self, enclave: bytes, event_id: bytes) -> KeyRecord | None:
        """Return the record whose active entry is this event."""
        ...

    def listed(
        self, enclave: bytes, after: bytes, limit: int, *, app: str | None = None, creator: bytes | None = None
    ) -> list[KeyRecord]:
        """Return records of enclaves with an active entry, by ascending id, starting after `after`.

        With a creator, only the creator's; else, with an app, only the app's. Served from an index,
        so the cost does not depend on the number of other records.
        """
        ...

    # Events

    def event(self, enclave: bytes, event_id: bytes) -> EventWithStatus | None: ...

    def committed(self, enclave: bytes, commit_hash: bytes, exp: int) -> Event | None:
        """Return the event that the commit with this hash became. The hash covers `exp`, which the
        lookup uses.
        """
        ...

    def committed_among(self, commits: Sequence[Commit]) -> dict[bytes, Event]:
        """Run `committed` for many commits at once; return the events found, by commit hash."""
        ...

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        """Return events by seq, whatever their status."""
        ...

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        """Return the same events as wire JSON. An erased event has its content hash and no content."""
        ...

    def ids(self, enclave: bytes, first_seq: int, count: int) -> list[bytes]:
        """Return the ids of the same events, which form a bundle's tree."""
        ...

    def find(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[SearchItem]:
        """Yield matching events that the reader may read, without deleted ones, in the filter's
        order.

        The caller may stop at any time. The cost depends on what the caller consumes, not on the
        events that it may not read. Events written after the first item was returned do not appear.
        """
        ...

    def find_in_steps(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[Sequence[SearchItem]]:
        """Yield what `find` yields, some at a time or none: each step takes a bounded time, however
        few events match.
        """
        ...

    # Bundles and heads

    def bundle(self, enclave: bytes, index: int) -> ClosedBundle | None: ...

    def bundle_of(self, enclave: bytes, seq: int) -> ClosedBundle | None:
        """Return the closed bundle that holds this event; None while that bundle is open."""
        ...

    def head(self, enclave: bytes, size: int | None = None) -> TreeHead | None:
        """Return the head signed for this tree size; without a size, the latest head.

        None also for a size of which this node signs no head: it has signed one of a copied
        Manifest.
        """
        ...

    # Erasure by time

    def expired(self, clock: int, limit: int) -> list[tuple[bytes, bytes]]:
        """Return (enclave, event id) of contents that still exist though their auto-delete time has
        passed.

        An Update's content expires at the latest with its target's. Contents kept aside are among them.
        """
        ...

    def erase(self, due: Sequence[tuple[bytes, bytes]]) -> None:
        """Erase the contents of these events and of their Updates in one transaction. Idempotent."""
        ...

    def terminated(self, before: int, limit: int) -> list[bytes]:
        """Return enclaves terminated at or before this time that still have data, the oldest first."""
        ...

    def purge(self, enclave: bytes, limit: int = 10_000) -> bool:
        """Delete all data of a terminated enclave except its tombstone, in bounded steps.

        The first call makes all of it unreadable; each call deletes about `limit` rows. Returns
        True when nothing is left.
        """
        ...

    def purge_by_order(self, enclave: bytes, order: Restriction) -> None:
        """Make an existing enclave unreadable, whatever its state, and keep the order as its tombstone.
        `terminated` returns it then, until `purge` has deleted its data.
        """
        ...

    # Logs on their way in

    def stage(self, enclave: bytes, held: int = -1) -> Staging:
        """Begin to import a log. `held`: last seq of this enclave's log that is stored and will be
        replaced.
        """
        ...

    def charges(self, enclave: bytes) -> tuple[Charge, ...]:
        """Return the ranges of events that are charged to another identity than their authors, by
        seq.
        """
        ...

    def delete_orphans(self, before: int, limit: int = 10_000) -> bool:
        """Delete about `limit` rows that belong to no enclave: of abandoned imports, and of logs
        replaced before `before`.

        Returns True when nothing is left.
        """
        ...

    def has(self, enclave: bytes) -> bool:
        """Return whether the enclave exists, purged or not."""
        ...

    def is_purged(self, enclave: bytes) -> bool:
        """Return whether a purge has begun."""
        ...

    def close(self) -> None:
        """Close the store. Later reads raise Unavailable."""
        ...
