"""Turns the end of a request into the result that the node stores.

- A failed delivery is repeated later, or its batch dies. Until a pause is over, which grows with each
  failure in a row, the endpoint gets no other batch either.
- An endpoint needs a new challenge after too many failures in a row, and after a failure at another
  address than the one that answered the last challenge: its name may lead to somebody else now.
- An endpoint that is gone is not called any more: after one answer 410, or some answers 404 in a
  row, its queue is held, and its batches wait. After that the endpoint needs a new challenge.
- A failed challenge is repeated after a pause that grows up to a day.
"""

from enc.node.push.challenge_limits import pause_ms
from enc.node.push.request_kind import has_ended
from enc.node.push.schedule import Schedule
from enc.node.store.push_interface import ChallengeResult, DeliveryResult, DueBatch

MISSING, GONE = "status 404", "status 410"
MAX_MISSING = 5
"""Answers 404 in a row after which an endpoint counts as gone."""
MISSING_MS, GONE_MS = 3_600_000, 86_400_000
"""How long a queue is held after answers 404, and after an answer 410."""
MAX_PAUSE_MS = 86_400_000
"""Longest pause between two challenges to one endpoint."""


def delivery_result(due: DueBatch, error: str, now: int, schedule: Schedule, jitter: float) -> DeliveryResult:
    """Return the result of sending a batch. `jitter`: from 0 up to 1."""
    if not error:
        return DeliveryResult(due.queue, due.push_seq, now)
    missing = due.missing + 1 if error == MISSING else 0
    held_ms = GONE_MS if error == GONE else MISSING_MS if missing >= MAX_MISSING else None
    return DeliveryResult(
        due.queue,
        due.push_seq,
        now,
        error,
        schedule.retry_at(due, now, jitter),
        missing,
        suspend_until=None if held_ms is None else now + _bounded(held_ms, schedule),
        failures=due.failures + 1,
        resume_at=schedule.resume_at(due, now, jitter),
        must_confirm=schedule.must_confirm(due),
    )


def challenge_result(due: DueBatch, error: str, now: int, schedule: Schedule, jitter: float) -> ChallengeResult:
    """Return the result of a challenge. `jitter`: from 0 up to 1.

    If a renewal fails, the confirmation lasts to its end, unless the challenge went to an address
    where no server has proved that it belongs to the host.
    """
    if not error:
        return ChallengeResult(due.queue, now, address=schedule.address(due.queue))
    pause = GONE_MS if error == GONE else pause_ms(due.challenges + 1, schedule.bounds.first_retry_ms, MAX_PAUSE_MS)
    pause = _bounded(pause, schedule)
    is_over = has_ended(due, now, schedule.bounds.confirmed_ms) or schedule.is_elsewhere(due)
    return ChallengeResult(due.queue, now, error, now + pause - int(pause * jitter / 5), is_confirmed=not is_over)


def _bounded(held_ms: int, schedule: Schedule) -> int:
    max_ms = schedule.bounds.max_hold_ms
    return held_ms if max_ms is None else min(held_ms, max_ms)
