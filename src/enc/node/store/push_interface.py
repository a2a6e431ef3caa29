"""What a node stores for pushing, and the protocol to read and write it: endpoints, the outbox,
queues and batches.

An event that has recipients enters the outbox once, in the transaction that finalises it, whatever
the number of its recipients. `fan_out` moves waiting events into the recipients' queues, as batches
that are numbered without gaps. A batch refers to events and does not copy them: contents erased
meanwhile are sent erased. A queue holds everything for one identity at one url, from all enclaves
of the node. Queues and their counters are never deleted.

A queue also stores whether its endpoint is confirmed: whether it has answered a challenge. A hold
keeps a queue from being sent: after a failed delivery or challenge, or because the endpoint is gone
(404, 410). A registration of an unconfirmed endpoint, and an operator's `redeliver`, end holds.
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


def enclaves_of(batch: PushBatch) -> set[bytes]:
    """Return the enclaves of which a batch has events or notices."""
    return {run.enclave for run in batch.runs} | {notice.enclave for notice in batch.notices}


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
    confirmed_at: int | None = None
    """When the endpoint last answered a challenge; None: it is not confirmed."""
    challenges: int = 0
    """Challenges that failed in a row."""
    missing: int = 0
    """Deliveries in a row that were answered with 404."""
    registrar: int = 0
    """A number for the enclave that registered the endpoint last; 0: an operator resumed it."""
    failures: int = 0
    """Failed deliveries in a row, of any batches."""
    confirmed_to: str = ""
    """The address that answered the challenge."""
    renew_at: int = 0
    """A confirmed endpoint gets no challenge before this time, as one has failed."""


class DeliveryResult(Struct, frozen=True, tag=True):
    """The result of one attempt to send a batch. Without an error, the batch is delivered."""

    queue: int
    push_seq: int
    at: int
    error: str = ""
    next_try: int | None = None
    """With an error: time of the next attempt. None: no further attempt, the batch is dead."""
    missing: int = 0
    """Deliveries in a row that were answered with 404."""
    suspend_until: int | None = None
    """With an error: stop sending to the endpoint until then. The batch waits as before."""
    failures: int = 0
    """Failed deliveries in a row, of any batches."""
    resume_at: int = 0
    """With an error: no batch is sent to the endpoint before this time."""
    must_confirm: bool = False
    """With an error: the endpoint is not confirmed any more."""


class ChallengeResult(Struct, frozen=True, tag=True):
    """The result of one challenge to a queue's endpoint. Without an error, the endpoint is confirmed."""

    queue: int
    at: int
    error: str = ""
    held_until: int = 0
    """With an error: time of the next challenge."""
    is_confirmed: bool = False
    """With an error: the endpoint stays confirmed, and gets batches meanwhile."""
    address: str = ""
    """Without an error: the address that answered."""


class PostponedResult(Struct, frozen=True, tag=True):
    """A batch that was not sent, because it has events of a suspended enclave. It counts as no attempt."""

    queue: int
    push_seq: int
    next_try: int


PushResult = DeliveryResult | ChallengeResult | PostponedResult

EndpointState = Literal["unconfirmed", "challenge failed", "confirmed", "suspended"]


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
    state: EndpointState = "unconfirmed"
    confirmed_at: int | None = None
    held_until: int = 0
    """Nothing is sent before this time."""


class PushTotals(Struct, frozen=True):
    """Totals over all queues."""

    queues: int = 0
    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    oldest: int | None = None
    unconfirmed: int = 0
    """Queues with waiting batches whose endpoint is not confirmed."""


class PushReads(Protocol):
    """Reads that any thread may call, and any process that only reads."""

    def due(self, now: int, limit: int, after: int = 0) -> list[DueBatch]:
        """Return for each queue the batch that is due the longest (of equals the lowest push_seq),
        by queue number. Queues that are held are left out.

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

    def record_results(self, results: Sequence[PushResult]) -> list[DeadBatch]:
        """Store the results of attempts and challenges in one transaction. Returns the batches that
        died. A dead batch, and `must_confirm`, end the confirmation of the endpoint.

        A result of a batch that does not wait changes nothing.
        """
        ...

    def expire_unconfirmed(self, made_before: int, now: int, limit: int = 10_000) -> int:
        """Declare batches dead that were made at or before this time and still wait for an endpoint
        that is not confirmed. Returns their number.
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
        """Let dead batches of these queues, or of all, wait again as if never tried, and end the
        queues' holds. Returns the number of batches.
        """
        ...

    def totals(self) -> PushTotals: ...


def register(endpoints: MutableMapping[tuple[bytes, str], str], effects: Effects) -> None:
    """Apply what an event changes about the endpoints of its enclave. A terminated enclave has
    none.

    A Migrate keeps them, so that the next node knows the recipients that the log names. On a node
    that is not the sequencer they have no effect, since nothing is finalised there.
    """
    holders = {identity for identity, _ in endpoints} if effects.endpoints else set[bytes]()
    for change in effects.endpoints:
        if change.url is not None:
            holders.add(change.identity)
            endpoints.update({(change.identity, trait): change.url for trait in change.traits})
        elif change.identity in holders:
            for trait in change.traits:
                endpoints.pop((change.identity, trait), None)
    if effects.lifecycle == "terminated":
        endpoints.clear()
