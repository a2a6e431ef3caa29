"""Decides what a queue's endpoint gets next: its batch, or a challenge."""

from enum import Enum

from enc.node.store.push_interface import DueBatch


class RequestKind(Enum):
    BATCH = "batch"
    CHALLENGE = "challenge"
    """The endpoint is not confirmed: nobody has shown that it belongs to its recipient."""
    RENEWAL = "renewal"
    """A challenge to an endpoint whose confirmation is old. Batches go on until the confirmation ends."""


def kind_of(due: DueBatch, now: int, confirmed_ms: int | None) -> RequestKind:
    """Return the kind of the next request. `confirmed_ms`: how long a confirmation counts; None:
    endpoints need none.
    """
    if confirmed_ms is None:
        return RequestKind.BATCH
    if due.confirmed_at is None:
        return RequestKind.CHALLENGE
    is_old = due.confirmed_at + confirmed_ms // 2 <= now and due.renew_at <= now
    return RequestKind.RENEWAL if is_old or has_ended(due, now, confirmed_ms) else RequestKind.BATCH


def has_ended(due: DueBatch, now: int, confirmed_ms: int | None) -> bool:
    """Return whether the endpoint's confirmation is missing or too old to deliver."""
    return due.confirmed_at is None or (confirmed_ms is not None and due.confirmed_at + confirmed_ms <= now)
