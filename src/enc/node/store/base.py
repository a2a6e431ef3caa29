"""What a node keeps, and the small protocol behind which it keeps it.

Writing is one call: a list of steps becomes durable together or not at all. After `write` returns, and only then, may
anybody hear of them. After a crash the store alone tells the truth: `load` gives the state that the last `write` left.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.json import Decoder, encode

from enc.core import sparse_merkle
from enc.core.enclave import ClosedBundle, EnclaveState, Transition
from enc.core.event import wire_event
from enc.core.filter import Filter
from enc.core.policy import Effects, ReadScope
from enc.core.types import Commit, Event, Record, RecordKind, Target, TreeHead
from enc.node.store.push import PushStore, Recipients

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
    recipients: Recipients = ()
    """Who is to hear of the event."""


class AppendRun(Struct, frozen=True):
    """Events of one log that follow each other and do no more than make it longer, ready to be kept."""

    events: Sequence[Event]
    state: EnclaveState
    """After the last of them."""

    def steps(self) -> list[Step]:
        """The same as steps of one event each."""
        transition = Transition(state=self.state)
        return [Step(transition=transition, event=event, subject=event.type) for event in self.events]


class EventWithStatus(Struct, frozen=True):
    """An event as it stands now."""

    event: Event
    status: Status
    updated_by: bytes | None = None


class _Id(Struct):
    id: str


_id = Decoder(_Id).decode


class SearchItem(Struct, frozen=True, gc=False):
    """An event as a search gives it: on its way to the wire, and so already in JSON, in two parts as it is stored."""

    seq: int
    updated_by: bytes | None
    head: bytes
    """The event's JSON up to the content."""
    rest: bytes
    """The content, and what follows it up to the last brace."""

    @property
    def event(self) -> bytes:
        """The wire JSON of the event: what `enc.core.event.wire_event` says, in any order."""
        return b"%b%b}" % (self.head, self.rest)

    @property
    def json(self) -> bytes:
        """`{"event": …, "status": …, "updated_by": …}`, as a Query's answer has it."""
        return b"".join((ITEM_START, self.head, self.rest, item_end(self.updated_by)))

    @property
    def id(self) -> bytes:
        return bytes.fromhex(_id(self.event).id)

    @property
    def status(self) -> Literal["active", "updated"]:
        return "active" if self.updated_by is None else "updated"


ITEM_START = b'{"event":'
_ACTIVE = b'},"status":"active"}'


def item_end(updated_by: bytes | None) -> bytes:
    """What follows an item's parts: the event's last brace, and where the event stands."""
    if updated_by is None:
        return _ACTIVE
    return b'},"status":"updated","updated_by":"%b"}' % updated_by.hex().encode()


def search_item(event: Event, updated_by: bytes | None = None) -> SearchItem:
    """An event that is at hand, as a search would give it."""
    return SearchItem(event.seq, updated_by, b"", encode(wire_event(event))[:-1])


class RawEvent(Struct, frozen=True, gc=False):
    """An event as it is stored, whatever its status: its wire JSON in two parts, and what rights are judged by."""

    seq: int
    type: str
    subject: str
    """The type that R, P and N are judged by."""
    author: bytes
    head: bytes
    rest: bytes

    @property
    def event(self) -> bytes:
        """The wire JSON of the event."""
        return b"%b%b}" % (self.head, self.rest)


class Usage(Struct, frozen=True):
    """What an identity had accepted on this node, ever; an enclave that was purged counts no more."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0
    """UTF-8 bytes of contents."""


class Charge(Struct, frozen=True):
    """Events that came with a whole log: they count as this identity's, not as their authors'."""

    first_seq: int
    last_seq: int
    identity: bytes


class Staging(Protocol):
    """A log on its way in: kept slice by slice, and seen by nobody until all of it is adopted.

    `name` is what the store's methods for what lies behind a state know it by meanwhile.
    """

    name: bytes

    @property
    def size(self) -> int:
        """Bytes of the contents so far that will be charged."""
        ...

    def write(self, steps: Sequence[Step | AppendRun]) -> None:
        """Keep all steps, or none. ReplayFailed if the log holds a commit for the second time."""
        ...

    def target(self, event_id: bytes) -> Target | None: ...

    def adopt(self, state: EnclaveState, payer: bytes, clock: int) -> None:
        """All of it becomes the enclave's log, in place of what was held, in one step. EnclaveExists if that changed.

        `payer` is charged for the events beyond those that were held, and for the enclave if it is new here.
        """
        ...

    def drop(self) -> None:
        """Give it up; `sweep` takes it away."""
        ...


class ReadRights(Struct, frozen=True):
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


class Store(PushStore, Protocol):
    """Every method may raise Unavailable. Any thread may read, and one at a time changes anything.

    A purged enclave is found by `load`, `enclaves` and `is_purged` alone.
    """

    def write(self, steps: Sequence[Step], clock: int) -> None:
        """Keep all steps, durably, or none; and that the node's clock has shown this time."""
        ...

    def clock(self) -> int:
        """The highest time that the node's own clock has shown at a write."""
        ...

    def usage(self, identity: bytes) -> Usage: ...

    # Enclaves

    def load(self, enclave: bytes) -> EnclaveState | None: ...

    def count(self) -> int:
        """How many enclaves are here, purged ones not counted. Cheap, whatever their number."""
        ...

    def enclaves(self) -> Iterator[bytes]:
        """The ids of all enclaves, by rising id."""
        ...

    def overdue(self, clock: int, limit: int) -> list[bytes]:
        """Enclaves whose open bundle's deadline has passed, the longest overdue first."""
        ...

    # What lies behind a state

    def read_node(self, enclave: bytes, node_hash: bytes) -> bytes:
        """KeyError where there is none, as for every Reader of the state machine."""
        ...

    def read_hash(self, enclave: bytes, level: int, index: int) -> bytes:
        """KeyError where there is none."""
        ...

    def target(self, enclave: bytes, event_id: bytes) -> Target | None: ...

    # A registry's records

    def record(self, enclave: bytes, kind: RecordKind, key: bytes) -> Record | None: ...

    def record_of(self, enclave: bytes, event_id: bytes) -> Record | None:
        """The record whose active entry is this event."""
        ...

    def listed(
        self, enclave: bytes, after: bytes, limit: int, *, app: str | None = None, creator: bytes | None = None
    ) -> list[Record]:
        """Records of enclaves with an active entry, by rising id from the one after `after`.

        Those of a creator, or else of an app; by an index, whatever the number of the others.
        """
        ...

    # Events

    def event(self, enclave: bytes, event_id: bytes) -> EventWithStatus | None: ...

    def committed(self, enclave: bytes, commit_hash: bytes, exp: int) -> Event | None:
        """The event that the commit with this hash became. Its hash covers `exp`, by which it is found."""
        ...

    def committed_among(self, commits: Sequence[Commit]) -> dict[bytes, Event]:
        """`committed` for many at once, by commit hash: those that are there."""
        ...

    def events(self, enclave: bytes, first_seq: int, count: int) -> list[Event]:
        """Events by seq, whatever their status."""
        ...

    def items(self, enclave: bytes, first_seq: int, count: int) -> list[RawEvent]:
        """The same events on their way to the wire; what is erased has no content, and its hash."""
        ...

    def ids(self, enclave: bytes, first_seq: int, count: int) -> list[bytes]:
        """The ids of the same events: what a bundle's tree is made of."""
        ...

    def find(self, enclave: bytes, filter_: Filter, readable: ReadRights) -> Iterator[SearchItem]:
        """The events that match and that the asker may read, deleted ones left out, in the filter's order.

        The caller stops when it has enough; what it costs goes with what it takes, not with what it may not read.
        Nothing that is written after the first item shows up.
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
        """(enclave, event id) of contents whose auto-delete time has passed and that are still there.

        An Update's content goes at the latest when its target's would.
        """
        ...

    def erase(self, due: Sequence[tuple[bytes, bytes]]) -> None:
        """Take these events' contents away, and those of their Updates, all together. What is gone already stays so."""
        ...

    def terminated(self, before: int, limit: int) -> list[bytes]:
        """Enclaves that were terminated at or before this time and of which something is left, the oldest first."""
        ...

    def purge(self, enclave: bytes, limit: int = 10_000) -> bool:
        """Take away everything of a terminated enclave but the fact that it was, in bounded steps.

        The first call makes all of it unreadable; each takes away about `limit` rows. True when nothing is left.
        """
        ...

    # Logs on their way in

    def stage(self, enclave: bytes, held: int = -1) -> Staging:
        """Begin to take a log in. `held`: the seq up to which this enclave's log is here, which will be replaced."""
        ...

    def charges(self, enclave: bytes) -> tuple[Charge, ...]:
        """Which events count as another's than their authors', by rising seq."""
        ...

    def delete_orphans(self, before: int, limit: int = 10_000) -> bool:
        """Take away about `limit` rows of what is no enclave's: of logs given up, and of those replaced by `before`.

        True when nothing is left.
        """
        ...

    def is_purged(self, enclave: bytes) -> bool:
        """Whether a purge has begun."""
        ...

    def close(self) -> None:
        """End it. Whoever still reads gets Unavailable."""
        ...


class EnclaveReader:
    """The stored part of one enclave, as the state machine and the proofs read it."""

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

    def record(self, kind: RecordKind, key: bytes) -> Record | None:
        return self._store.record(self._enclave, kind, key)

    def record_of(self, event_id: bytes) -> Record | None:
        return self._store.record_of(self._enclave, event_id)
