"""What a node keeps of pushing, and the protocol behind which it keeps it: endpoints, the outbox, queues and batches.

An event that somebody is to hear of enters the outbox in the transaction that finalises it, once, whatever the number
of its recipients. `spread` moves what waits there into the recipients' queues, as batches that are numbered without a
gap. A batch names events and does not copy them: what was erased meanwhile goes out erased. A queue is all that goes to
one identity at one url, from all enclaves of the node; it stays for ever, and so does its count.
"""

from collections.abc import MutableMapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from enc.core.policy import Effects

Right = Literal["P", "N"]


class Recipient(Struct, frozen=True, order=True):
    """Who hears of an event, where, and whether of all of it (P) or only that it is there (N)."""

    identity: bytes
    url: str
    right: Right


Recipients = tuple[Recipient, ...]
"""Sorted, each (identity, url) once."""

Endpoints = dict[tuple[bytes, str], str]
"""The urls registered in an enclave, by (identity, trait)."""


class EventRange(Struct, frozen=True):
    """Events of one enclave that follow each other."""

    enclave: bytes
    first_seq: int
    count: int


class Notice(Struct, frozen=True):
    """The latest event of an enclave that a batch only tells of, and how many events there are of each type told of."""

    enclave: bytes
    seq: int
    type_seq: dict[str, int]


class PushBatch(Struct, frozen=True):
    """What goes out in one request."""

    push_seq: int
    made_at: int
    runs: tuple[EventRange, ...]
    """Those of one enclave lie together, by rising seq."""
    notices: tuple[Notice, ...]
    """At most one for each enclave."""


class BatchLimits(Struct, frozen=True):
    """How much goes into one batch, and how much of the outbox one `spread` takes."""

    events: int = 500
    bytes: int = 4 * 1024 * 1024
    """Of the events' JSON; a single larger event goes alone."""
    rows: int = 4096


class DueBatch(Struct, frozen=True):
    """A batch whose time to be sent has come."""

    queue: int
    push_seq: int
    identity: bytes
    url: str
    tries: int
    """Those that failed."""
    bytes: int
    """About the length of its body."""


class DeliveryResult(Struct, frozen=True):
    """What became of one try to send a batch. Without an error it is delivered."""

    queue: int
    push_seq: int
    at: int
    error: str = ""
    next_try: int | None = None
    """With an error: when to try again. None: never again, the batch is dead."""


class DeadBatch(Struct, frozen=True):
    """A batch that will not be tried again."""

    queue: int
    push_seq: int
    identity: bytes
    url: str
    error: str


class QueueReport(Struct, frozen=True):
    """How one queue stands. Counts are of batches where nothing else is said."""

    queue: int
    identity: bytes
    url: str
    push_seq: int
    """Of the latest batch; 0: none yet."""
    waiting: int
    waiting_events: int
    """Events and notices."""
    oldest: int | None
    """When the oldest of those that wait was made."""
    delivered: int
    """Ever."""
    dead: int
    """Those that are kept."""
    last_error: str
    last_error_at: int | None


class PushTotals(Struct, frozen=True):
    """All queues together."""

    queues: int = 0
    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    oldest: int | None = None


class PushReads(Protocol):
    """What may be asked from any thread, and by a process that only reads."""

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        """For each queue the batch that is due the longest, of equals the lowest push_seq; queues by rising number.

        Only queues with a higher number than `after`: whoever got `limit` of them asks on after the last.
        """
        ...

    def batch(self, queue: int, push_seq: int) -> PushBatch | None: ...


class PushStore(PushReads, Protocol):
    """Every method may raise Unavailable. What changes something is called on the store's one writing thread."""

    def endpoints(self, enclave: bytes) -> Endpoints:
        """Those registered now."""
        ...

    def fan_out(self, now: int, limits: BatchLimits = BatchLimits()) -> bool:  # noqa: B008
        """Move what waits in the outbox into batches, all together or not at all. True: there is more."""
        ...

    def record_results(self, outcomes: Sequence[DeliveryResult]) -> list[DeadBatch]:
        """Keep what became of batches, all together. An outcome of a batch that does not wait changes nothing."""
        ...

    def delete_settled(self, delivered_before: int, dead_before: int, limit: int = 10_000) -> bool:
        """Forget batches that were settled at or before these times. True: there is more."""
        ...

    def list_batches(self, identity: bytes, url: str, first: int, last: int, limit: int) -> list[PushBatch]:
        """The batches of a queue that are kept, waiting, delivered or dead, by rising push_seq, from first to last."""
        ...

    def queue_reports(
        self, enclave: bytes | None = None, identity: bytes | None = None, limit: int = 10_000
    ) -> list[QueueReport]:
        """How queues stand, by identity and url: all, those with an endpoint in an enclave, those of an identity."""
        ...

    def redeliver(self, now: int, identity: bytes | None = None, url: str | None = None) -> int:
        """Let dead batches, of these queues or of all, wait again as if never tried; how many there were."""
        ...

    def totals(self) -> PushTotals: ...


def register(endpoints: MutableMapping[tuple[bytes, str], str], effects: Effects) -> None:
    """What an event does to the endpoints of its enclave. A terminated enclave has none.

    A Migrate leaves them: the node that went on without them would forget whom the log names. Where another node is the
    sequencer they rest, since nothing is finalised that somebody could hear of.
    """
    for change in effects.endpoints:
        if change.url is None:
            endpoints.pop((change.identity, change.trait), None)
        else:
            endpoints[change.identity, change.trait] = change.url
    if effects.lifecycle == "terminated":
        endpoints.clear()
