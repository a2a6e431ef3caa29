"""Detects a clock that was set back, or that jumped ahead: timestamps of a log must not fall, and a
time that the clock has shown by mistake must not be recorded.
"""

from collections.abc import Callable

import structlog

from enc.core.errors import Unavailable
from enc.core.log.commit import SKEW_MS

SETTLE_S = 300.0
"""Seconds after which a clock that jumped ahead counts as right, if nobody has set it back."""

_log = structlog.get_logger("enc.sequencer")


class ClockGuard:
    """Compares the node's clock with the highest time that is recorded, and with a monotonic clock.

    `highest`: Unix milliseconds. `monotonic`: seconds; without it, jumps are not detected.
    """

    def __init__(self, highest: int, monotonic: Callable[[], float] | None = None) -> None:
        self._highest, self._monotonic = highest, monotonic
        self._offset: float | None = None
        """Milliseconds by which the clock is ahead of the monotonic one, as long as it is trusted."""
        self._doubted_at: float | None = None
        """When the clock left that offset, in monotonic seconds."""
        self._logged = ""

    def is_wrong(self, now: int) -> bool:
        """Return whether the clock is behind, or has jumped ahead. Safe from any thread."""
        return self._is_behind(now) or self.has_jumped(now)

    def _is_behind(self, now: int) -> bool:
        return now < self._highest - SKEW_MS

    def behind_ms(self, now: int) -> int:
        """Return how far the clock is behind the recorded time; 0 if it is not. Safe from any thread."""
        return max(self._highest - now, 0)

    def has_jumped(self, now: int) -> bool:
        """Return whether the clock has lately jumped ahead. Safe from any thread."""
        return self._drift(now) > SKEW_MS

    def _drift(self, now: int) -> float:
        """Return by how many milliseconds the clock has left the monotonic one."""
        offset = self._offset
        if offset is None or self._monotonic is None:
            return 0.0
        return now - self._monotonic() * 1000 - offset

    def record(self, shown: int) -> None:
        """Note a time that the clock has shown and that is recorded in the store."""
        self._highest = max(self._highest, shown)

    def check(self, now: int) -> None:
        """Raise Unavailable if the clock is wrong. Logs the change to that, not every check."""
        self._follow(now)
        if self._is_behind(now):
            behind_ms = self._highest - now
            self._log("clock_behind", behind_ms)
            raise Unavailable("this node's clock shows less than it has shown before", retry_after_ms=behind_ms)
        if self.has_jumped(now):
            ahead_s = round(self._drift(now) / 1000)
            self._log("clock_jumped", ahead_s * 1000)
            message = f"this node's clock has jumped ahead by {ahead_s} s: the node waits for {SETTLE_S:g} s"
            raise Unavailable(f"{message}, in case the clock is set back", retry_after_ms=60_000)
        self._logged = ""

    def _follow(self, now: int) -> None:
        """Trust a clock that goes as the monotonic one does, or that has kept its time for a while."""
        if self._monotonic is None:
            return
        at = self._monotonic()
        if self._is_behind(now):
            self._doubted_at = None
        elif self._offset is None or abs(self._drift(now)) <= SKEW_MS:
            self._offset, self._doubted_at = now - at * 1000, None
        elif self._doubted_at is None:
            self._doubted_at = at
        elif at - self._doubted_at >= SETTLE_S:
            self._offset, self._doubted_at = now - at * 1000, None

    def _log(self, what: str, by_ms: int) -> None:
        if self._logged != what:
            self._logged = what
            _log.error(what, by_ms=by_ms)
