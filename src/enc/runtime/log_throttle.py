"""Drops repeats of warnings and errors: a fault that comes with every request must not fill the disk."""

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

import structlog
from msgspec import Struct
from structlog.typing import EventDict, WrappedLogger

WINDOW_S, BURST = 10.0, 5
"""Of the entries that say the same, this many are logged in so many seconds."""
MAX_KEYS = 1024
"""Different entries that are remembered."""
LEVELS = ("warning", "error")


class _Repeats(Struct):
    until: float
    logged: int = 0
    dropped: int = 0


class LogThrottle:
    """A processor for structlog. For any thread.

    Two entries say the same if their level, their event and their texts are equal; numbers and the id
    of a request may differ. The first entry after the window has the number of dropped ones in
    `repeats`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds that never go back."""
        self._clock, self._lock = clock, Lock()
        self._seen: OrderedDict[Any, _Repeats] = OrderedDict()

    def __call__(self, _logger: WrappedLogger, method: str, entry: EventDict) -> EventDict:
        if method not in LEVELS:
            return entry
        repeats = self._count(_key(method, entry))
        if repeats < 0:
            raise structlog.DropEvent
        return {**entry, "repeats": repeats} if repeats else entry

    def _count(self, key: Any) -> int:
        """Return how many entries were dropped before this one; -1 to drop it, too."""
        now, dropped = self._clock(), 0
        with self._lock:
            seen = self._seen.get(key)
            if seen is None or now >= seen.until:
                dropped = seen.dropped if seen else 0
                seen = self._seen[key] = _Repeats(now + WINDOW_S)
                self._seen.move_to_end(key)
                if len(self._seen) > MAX_KEYS:
                    self._seen.popitem(last=False)
            if seen.logged >= BURST:
                seen.dropped += 1
                return -1
            seen.logged += 1
        return dropped

    def ended(self) -> dict[str, int]:
        """Return the number of dropped entries by event, of those whose window is over, and forget
        them.
        """
        now, found = self._clock(), dict[str, int]()
        with self._lock:
            for key in [key for key, seen in self._seen.items() if now >= seen.until]:
                if dropped := self._seen.pop(key).dropped:
                    found[key[1]] = found.get(key[1], 0) + dropped
        return found


def _key(level: str, entry: EventDict) -> Any:
    """Return what two entries that say the same have in common."""
    texts = sorted((k, v) for k, v in entry.items() if isinstance(v, str) and k not in ("request", "time"))
    error = entry.get("exc_info")
    return level, str(entry.get("event")), tuple(texts), type(error).__name__
