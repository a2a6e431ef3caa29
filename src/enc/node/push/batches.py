"""Makes batches of the events in the outbox, and deletes batches that were delivered or died long
ago.

Runs on the sequencer's thread, the only one that writes. As for retention, the store knows what is
due.
"""

from collections.abc import Callable

import structlog
from msgspec import Struct

from enc.core.errors import EncError
from enc.node.store.push_interface import BatchLimits, PushStore

RETIRE_MS = 60_000
"""Time between two looks for batches to delete."""
MAX_RETIRED = 2_000
"""Batches deleted by one call: it bounds how long commits wait."""

_log = structlog.get_logger("enc.push.batches")


class BatchRetention(Struct, frozen=True):
    """How long batches are kept, in milliseconds."""

    delivered: int = 7 * 86_400_000
    dead: int = 30 * 86_400_000
    unconfirmed: int = 7 * 86_400_000
    """How long batches wait for an endpoint that is not confirmed."""


class PushBatcher:
    """Call `run_if_due` between batches of commits; it works once an interval, or at once while
    there is more to do.
    """

    def __init__(
        self,
        store: PushStore,
        interval_ms: int = 1000,
        limits: BatchLimits = BatchLimits(),  # noqa: B008
        keeping: BatchRetention = BatchRetention(),  # noqa: B008
    ) -> None:
        self._store, self._interval_ms, self._limits, self._keeping = store, interval_ms, limits, keeping
        self._next_spread = self._next_retire = 0

    def run_if_due(self, now: int) -> None:
        if _has_come(self._next_spread, now, self._interval_ms):
            self._next_spread = now if self._try(self._spread, now) else now + self._interval_ms
        if _has_come(self._next_retire, now, RETIRE_MS):
            self._next_retire = now if self._try(self._retire, now) else now + RETIRE_MS

    def _try(self, work: Callable[[int], bool], now: int) -> bool:
        """Run `work`; return whether there is more to do at once."""
        try:
            return work(now)
        except EncError as e:
            _log.error("push_failed", reason=e.message)
        except Exception as e:  # a damaged row must not end the sequencer's thread
            _log.error("push_failed", reason=type(e).__name__, exc_info=e)
        return False

    def _spread(self, now: int) -> bool:
        return self._store.fan_out(now, self._limits)

    def _retire(self, now: int) -> bool:
        died = self._store.expire_unconfirmed(now - self._keeping.unconfirmed, now, MAX_RETIRED)
        if died:
            _log.warning("batches_not_confirmed", count=died)
        keeping = self._keeping
        is_more = self._store.delete_settled(now - keeping.delivered, now - keeping.dead, MAX_RETIRED)
        return is_more or died == MAX_RETIRED


def _has_come(when: int, now: int, interval_ms: int) -> bool:
    """Return whether it is time; a clock that was set back delays this by at most one interval."""
    return not when - interval_ms <= now < when
