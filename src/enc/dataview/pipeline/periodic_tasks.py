"""Periodic tasks of a running job: log checkpoints, views, upkeep and recounts."""

from collections.abc import Sequence
from threading import Event
from time import monotonic
from typing import Protocol

from msgspec import Struct
from pyspark.sql.streaming.query import StreamingQuery

RECOUNT_S = 30.0
CHECKPOINTS_S = 10.0
"""Interval between two checks whether a table's log needs a checkpoint."""
REST_FACTOR = 3
"""While streams have data to process, they have the machine: after building views, the job waits
this many times as long before the next build.
"""
MAX_REST_S = 30.0
"""Longest such wait: the first builds are the slowest, because Spark has just started."""


class Intervals(Struct, frozen=True, kw_only=True):
    """Seconds between two runs of a task."""

    views: float
    upkeep: float
    vacuum: float


class Tasks(Protocol):
    """The tasks of a job."""

    def checkpoint_logs(self) -> None: ...

    def refresh_views(self, queries: Sequence[StreamingQuery], stop: Event) -> None: ...

    def run_upkeep(self, *, vacuum: bool = True) -> None: ...

    def recount(self) -> None: ...


class Maintenance:
    """Runs the tasks that are due, beside the loop that watches the job's streams."""

    def __init__(self, tasks: Tasks, intervals: Intervals, queries: Sequence[StreamingQuery], stop: Event) -> None:
        """Once `stop` is set, tasks that have not started are skipped."""
        self._tasks, self._queries, self._stop = tasks, queries, stop
        self._views, self._upkeep = DueTimer(intervals.views), DueTimer(intervals.upkeep)
        # Due with the first upkeep: a job that is started again every day must vacuum too.
        self._vacuum, self._recount = DueTimer(intervals.vacuum, first=0), DueTimer(RECOUNT_S)
        self._checkpoints = DueTimer(CHECKPOINTS_S)

    def run_due(self) -> None:
        if self._checkpoints.is_due():
            self._tasks.checkpoint_logs()
        if self._views.is_due(is_idle=are_idle(self._queries)):
            began = monotonic()
            self._tasks.refresh_views(self._queries, self._stop)
            self._views.done_after(monotonic() - began)
        if self._stop.is_set():
            return
        if self._upkeep.is_due():
            self._tasks.run_upkeep(vacuum=self._vacuum.is_due())
        if self._recount.is_due():
            self._tasks.recount()


class DueTimer:
    """Tells when a periodic task is due: after an interval, or, while streams are busy, after a
    longer rest.
    """

    def __init__(self, seconds: float, first: float | None = None) -> None:
        """`first`: seconds until the first run, if they differ."""
        self._seconds = seconds
        self.done_after(seconds)
        if first is not None:
            self._next = self._rested = monotonic() + first

    def done_after(self, seconds: float) -> None:
        """Schedule the next run after one that took `seconds`; other work gets most of the time."""
        now = monotonic()
        self._next = now + self._seconds
        self._rested = now + max(self._seconds, min(REST_FACTOR * seconds, MAX_REST_S))

    def is_due(self, *, is_idle: bool = True) -> bool:
        """`is_idle`: nothing else needs the machine, so the task need not rest."""
        now = monotonic()
        if now < (self._next if is_idle else self._rested):
            return False
        self._next = self._rested = now + self._seconds
        return True


def are_idle(queries: Sequence[StreamingQuery]) -> bool:
    """Return whether all streams have processed what they found."""
    return not any(map(_is_busy, queries))


def _is_busy(query: StreamingQuery) -> bool:
    status = query.status
    return query.lastProgress is None or status["isDataAvailable"] or status["isTriggerActive"]
