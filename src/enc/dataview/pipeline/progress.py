"""Progress of a running pipeline, counted as it goes so that reading it costs nothing."""

import json
from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock
from time import monotonic
from typing import Any

from msgspec import Struct

WINDOW_S = 10.0


class PipelineProgress(Struct, frozen=True, kw_only=True):
    """Counts of a running pipeline.

    `rate`: events per second over the last seconds. `behind`: events that nodes have announced and
    that have not been fetched. `waiting`: events that have been ingested but not derived. `built`:
    views that were built.
    """

    events: int
    rate: float
    quarantined: int
    behind: int
    waiting: int
    built: int


class Meter:
    """Counts what both halves of the pipeline report for each batch."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._events = self._derived = self._refused = self._built = 0
        self._before: deque[tuple[float, int]] = deque()

    def start(self, events: int, derived: int, refused: int) -> None:
        """Reset the counts to what the tables hold."""
        with self._lock:
            self._events, self._derived, self._refused = events, derived, refused
            self._before = deque([(self._clock(), events)])

    def ingested(self, events: int, refused: int) -> None:
        with self._lock:
            self._events += events
            self._refused += refused

    def derived(self, events: int) -> None:
        with self._lock:
            self._derived += events

    def refused(self, total: int) -> None:
        """Set the total of quarantined rows: events may be rejected late."""
        with self._lock:
            self._refused = total

    def built(self, views: int) -> None:
        with self._lock:
            self._built += views

    def read(self, sources: Iterable[Any]) -> PipelineProgress:
        """Return the current progress. `sources` is Spark's last report of each stream's source."""
        with self._lock:
            now = self._clock()
            self._before.append((now, self._events))
            while len(self._before) > 2 and self._before[1][0] <= now - WINDOW_S:
                self._before.popleft()
            since, events = self._before[0]
            return PipelineProgress(
                events=self._events,
                rate=(self._events - events) / (now - since) if now > since else 0.0,
                quarantined=self._refused,
                behind=sum(behind(source) for source in sources),
                waiting=max(self._events - self._derived, 0),
                built=self._built,
            )


def behind(source: Any) -> int:
    """Return how many seqs a stream over enclaves is behind their nodes; 0 for any other stream."""
    latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
    return sum(max(seq - end.get(enclave, 0), 0) for enclave, seq in latest.items())


def _offsets(said: Any) -> dict[str, int]:
    """Parse an offset: the next seq by enclave."""
    try:
        found = json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: seq for name, seq in found.items() if len(name) == 64 and isinstance(seq, int)}
