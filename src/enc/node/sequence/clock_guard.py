"""Detects a clock that was set back: timestamps of a log must not fall."""

import structlog

from enc.core.errors import Unavailable
from enc.core.log.commit import SKEW_MS

_log = structlog.get_logger("enc.sequencer")


class ClockGuard:
    """Compares the node's clock with the highest time that it has shown."""

    def __init__(self, highest: int) -> None:
        self._highest, self._was_behind = highest, False

    def is_behind(self, now: int) -> bool:
        """Return whether the clock shows less than it has shown before. Safe from any thread."""
        return now < self._highest - SKEW_MS

    def check(self, now: int) -> None:
        """Raise Unavailable if the clock is behind. Logs the change to that, not every check."""
        is_behind, was_behind = self.is_behind(now), self._was_behind
        self._was_behind = is_behind
        if is_behind:
            behind_ms = self._highest - now
            if not was_behind:
                _log.error("clock_behind", by_ms=behind_ms)
            raise Unavailable("this node's clock shows less than it has shown before", retry_after_ms=behind_ms)
        self._highest = max(self._highest, now)
