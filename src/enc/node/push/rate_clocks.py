"""Limits rates by key: each key has a clock that shows when its charges will be paid off."""

from collections import OrderedDict


class RateClocks:
    """A key may be charged while its clock is at most `burst_ms` ahead. At most `most` keys are
    remembered; those whose clock has passed are forgotten first, then those charged longest ago.
    """

    def __init__(self, burst_ms: float, most: int) -> None:
        self._burst_ms, self._most = burst_ms, most
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def ready_at(self, key: str, burst_ms: float | None = None) -> float:
        """Return when the key may be charged again; in the past if it may be now.

        `burst_ms`: charge only while the clock is at most this far ahead, so that others go first.
        """
        return self._until.get(key, 0.0) - (self._burst_ms if burst_ms is None else burst_ms)

    def charge(self, key: str, now: float, cost_ms: float) -> None:
        if cost_ms <= 0:
            return
        if key not in self._until and len(self._until) >= self._most:
            self._until = OrderedDict((each, until) for each, until in self._until.items() if until > now)
            while len(self._until) >= self._most:
                self._until.popitem(last=False)
        self._until[key] = max(self._until.get(key, 0.0), now) + cost_ms
        self._until.move_to_end(key)

    def refund(self, key: str, cost_ms: float) -> None:
        """Undo a charge."""
        if key in self._until:
            self._until[key] -= cost_ms
