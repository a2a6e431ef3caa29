"""What a node stores for pushing, and the protocol to read and write it: endpoints, the outbox,
queues and batches.

An event that has recipients enters the outbox once, in the transaction that finalises it, whatever
the number of its recipients. `fan_out` moves waiting events into the recipients' queues, as batches
that are numbered without gaps. A batch refers to events and does not copy them: contents erased
meanwhile are sent erased. A queue holds everything for one identity at one url, from all enclaves
of the node. Queues and their counters are never deleted.
"""

from collections.abc import MutableMapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from enc.core.rules.policy_types import Effects

Right = Literal["P", "N"]


class Recipient(Struct, frozen=True, order=True):
    """A recipient of an event, its url, and whether it gets the whole event (P) or a notice (N)."""

    identity: bytes
    url: str
    right: Right


Recipients = tuple[Recipient, ...]
"""Sorted, each (identity, url) once."""

Endpoints = dict[tuple[bytes, str], str]
"""The urls registered in an enclave, by (identity, trait)."""


class EventRange(Struct, frozen=True):
    """Consecutive events of one enclave."""

    enclave: bytes
    first_seq: int
    count: int


class BatchNotice(Struct, frozen=True):
    """The latest event of an enclave that a batch only announces, and the event count of each
    announced type.
    """

    enclave: bytes
    seq: int
    type_seq: dict[str, int]


class PushBatch(Struct, frozen=True):
    """The content of one push request."""

    push_seq: int
    made_at: int
    runs: tuple[EventRange, ...]
    """The ranges of one enclave are adjacent, by ascending seq."""
    notices: tuple[BatchNotice, ...]
    """At most one for each enclave."""


class BatchLimits(Struct, frozen=True):
    """Limits of one batch, and of how much of the outbox one `fan_out` takes."""

    events: int = 500
    bytes: int = 4 * 1024 * 1024
    """Size of the events' JSON; a single larger event gets a batch of its own."""
    rows: int = 4096


class DueBatch(Struct, frozen=True):
    """A batch that is due to be sent."""

    queue: int
    push_seq: int
    identity: bytes
    url: str
    tries: int
    """Failed attempts so far."""
    bytes: int
    """Approximate size of its body."""


class DeliveryResult(Struct, frozen=True):
    """The result of one attempt to send a batch. Without an error, the batch is delivered."""

    queue: int
    push_seq: int
    at: int
    error: str = ""
    next_try: int | None = None
    """With an error: time of the next attempt. None: no further attempt, the batch is dead."""


class DeadBatch(Struct, frozen=True):
    """A batch that will not be tried again."""

    queue: int
    push_seq: int
    identity: bytes
    url: str
    error: str


class QueueReport(Struct, frozen=True):
    """The status of one queue. Counts are of batches unless stated otherwise."""

    queue: int
    identity: bytes
    url: str
    push_seq: int
    """Number of the latest batch; 0 if there is none yet."""
    waiting: int
    waiting_events: int
    """Events and notices."""
    oldest: int | None
    """When the oldest waiting batch was made."""
    delivered: int
    """Since the queue exists."""
    dead: int
    """Dead batches that are still stored."""
    last_error: str
    last_error_at: int | None


class PushTotals(Struct, frozen=True):
    """Totals over all queues."""

    queues: int = 0
    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    oldest: int | None = None


class PushReads(Protocol):
    """Reads that any thread may call, and any process that only reads."""

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        """Return for each queue the batch that is due the longest (of equals the lowest push_seq),
        by queue number.

        Only queues with a number above `after`: a caller that got `limit` results continues after
        the last.
        """
        ...

    def batch(self, queue: int, push_seq: int) -> PushBatch | None: ...


class PushStore(PushReads, Protocol):
    """Every method may raise Unavailable. Methods that write are called on the store's only writing
    thread.
    """

    def endpoints(self, enclave: bytes) -> Endpoints:
        """Return the registered endpoints."""
        ...

    def fan_out(self, now: int, limits: BatchLimits = BatchLimits()) -> bool:  # noqa: B008
        """Move waiting events from the outbox into batches, in one transaction. Returns whether
        there is more.
        """
        ...

    def record_results(self, results: Sequence[DeliveryResult]) -> list[DeadBatch]:
        """Store the results of attempts in one transaction. Returns the batches that died.

        A result of a batch that does not wait changes nothing.
        """
        ...

    def delete_settled(self, delivered_before: int, dead_before: int, limit: int = 10_000) -> bool:
        """Delete batches that were delivered or died at or before these times. Returns whether
        there is more.
        """
        ...

    def list_batches(self, identity: bytes, url: str, first: int, last: int, limit: int) -> list[PushBatch]:
        """Return the stored batches of a queue (waiting, delivered or dead) from first to last, by
        push_seq.
        """
        ...

    def queue_reports(
        self, enclave: bytes | None = None, identity: bytes | None = None, limit: int = 10_000
    ) -> list[QueueReport]:
        """Return the status of queues by identity and url: of all, of those with an endpoint in an
        enclave, or of an identity's.
        """
        ...

    def redeliver(self, now: int, identity: bytes | None = None, url: str | None = None) -> int:
        """Let dead batches of these queues, or of all, wait again as if never tried. Returns their
        number.
        """
        ...

    def totals(self) -> PushTotals: ...


def register(endpoints: MutableMapping[tuple[bytes, str], str], effects: Effects) -> None:
    """Apply what an event changes about the endpoints of its enclave. A terminated enclave has
    none.

    A Migrate keeps them, so that the next node knows the recipients that the log names. On a node
    that is not the sequencer they have no effect, since nothing is finalised there.
    """
    for change in effects.endpoints:
        if change.url is None:
            endpoints.pop((change.identity, change.trait), None)
        else:
            endpoints[change.identity, change.trait] = change.url
    if effects.lifecycle == "terminated":
        endpoints.clear()
