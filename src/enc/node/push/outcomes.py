"""Turns the end of a request into the result that the node stores.

- A failed delivery is repeated later, or its batch dies.
- An endpoint that is gone is not called any more: after one answer 410, or some answers 404 in a
  row, its queue is held, and its batches wait. After that the endpoint needs a new challenge.
- A failed challenge is repeated after a pause that grows up to a day.
"""

from enc.node.push.challenge_limits import pause_ms
from enc.node.store.push_interface import ChallengeResult, DeliveryResult, DueBatch

MISSING, GONE = "status 404", "status 410"
MAX_MISSING = 5
"""Answers 404 in a row after which an endpoint counts as gone."""
MISSING_MS, GONE_MS = 3_600_000, 86_400_000
"""How long a queue is held after answers 404, and after an answer 410."""
MAX_PAUSE_MS = 86_400_000
"""Longest pause between two challenges to one endpoint."""


def delivery_result(due: DueBatch, error: str, now: int, retry_at: int | None) -> DeliveryResult:
    """Return the result of sending a batch; `retry_at`: when to repeat it, None: never."""
    missing = due.missing + 1 if error == MISSING else 0
    held_ms = GONE_MS if error == GONE else MISSING_MS if missing >= MAX_MISSING else None
    until = None if held_ms is None else now + held_ms
    return DeliveryResult(due.queue, due.push_seq, now, error, retry_at, missing, until)


def challenge_result(due: DueBatch, error: str, now: int, first_pause_ms: int, jitter: float) -> ChallengeResult:
    """Return the result of a challenge. `jitter`: from 0 up to 1."""
    if not error:
        return ChallengeResult(due.queue, now)
    pause = GONE_MS if error == GONE else pause_ms(due.challenges + 1, first_pause_ms, MAX_PAUSE_MS)
    return ChallengeResult(due.queue, now, error, now + pause - int(pause * jitter / 5))
