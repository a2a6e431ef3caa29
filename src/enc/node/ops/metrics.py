"""The node's metrics in Prometheus' text format."""

import platform
import sqlite3
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import nan
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from enc.core.errors import EncError
from enc.core.primitives.types import Receipt
from enc.node.ops.internal_errors import internal_error
from enc.node.ops.latencies import LatencyHistogram
from enc.node.store.push_interface import ChallengeResult, PostponedResult, PushResult
from enc.version import __version__

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

T = TypeVar("T")


class Metrics:
    """Counters are updated by the code that does the work; gauges are read on demand."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._commits = Counter("enc_commits", "Commits by outcome", ["outcome"], registry=self.registry)
        self._requests = Counter("enc_requests", "HTTP requests by status", ["status"], registry=self.registry)
        self._by_status = dict[int, Counter]()
        """The counters of `_requests`: to look one up there takes longer than to count."""
        self._events = Histogram("enc_batch_steps", "Steps in a transaction", buckets=_EVENTS, registry=self.registry)
        self._writes = Histogram(
            "enc_write_seconds", "Time of a transaction, fsync included", buckets=_SECONDS, registry=self.registry
        )
        self.request_seconds = LatencyHistogram("enc_request_seconds", "Time of an HTTP request", "path")
        self.commit_seconds = LatencyHistogram("enc_commit_seconds", "Time from a commit's arrival to its result")
        for latencies in (self.request_seconds, self.commit_seconds):
            self.registry.register(latencies)
        versions = {"version": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
        Info("enc_build", "Versions of the node, Python and SQLite", registry=self.registry).info(versions)
        self._pushed = {
            name: Counter(f"enc_push_{name}", meaning, registry=self.registry)
            for name, meaning in (
                ("delivered", "Batches delivered"),
                ("failed", "Tries of batches that failed"),
                ("dead", "Batches that will not be tried again"),
                ("confirmed", "Challenges that an endpoint answered"),
                ("challenges_failed", "Challenges that failed"),
                ("suspended", "Suspensions of endpoints after 404 or 410"),
            )
        }

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        Gauge(name, meaning, registry=self.registry).set_function(lambda: _read(read, name))

    def counter(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Add a counter that something else counts; `name` without _total."""
        self.registry.register(_Family(name, meaning, "", lambda: {"": read()}, is_counter=True))

    def by_label(
        self, name: str, meaning: str, label: str, read: Callable[[], Mapping[str, float]], *, is_counter: bool = False
    ) -> None:
        """Add a gauge, or a counter, with a value for each value of a label."""
        self.registry.register(_Family(name, meaning, label, read, is_counter=is_counter))

    def count_results(self, results: Sequence[Receipt | EncError], seconds: Sequence[float]) -> None:
        """Count commits by outcome, with the time that each took."""
        for each in seconds:
            self.commit_seconds.observe(each)
        tally = Tally(result.code if isinstance(result, EncError) else "accepted" for result in results)
        for outcome, count in tally.items():
            self._commits.labels(outcome).inc(count)

    def count_response(self, status: int) -> None:
        counter = self._by_status.get(status)
        if counter is None:
            counter = self._by_status[status] = self._requests.labels(str(status))
        counter.inc()

    def observe_write(self, steps: int, seconds: float) -> None:
        self._events.observe(steps)
        self._writes.observe(seconds)

    def count_deliveries(self, results: Sequence[PushResult]) -> None:
        for outcome in results:
            if isinstance(outcome, PostponedResult):
                continue
            if isinstance(outcome, ChallengeResult):
                self._pushed["challenges_failed" if outcome.error else "confirmed"].inc()
                continue
            self._pushed["failed" if outcome.error else "delivered"].inc()
            if outcome.error and outcome.suspend_until is not None:
                self._pushed["suspended"].inc()
            elif outcome.error and outcome.next_try is None:
                self._pushed["dead"].inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _read(read: Callable[[], float], name: str) -> float:
    """Return a gauge's value; NaN if it cannot be read, as with a damaged store: the others remain visible."""
    try:
        return read()
    except (EncError, OSError):
        return nan
    except Exception as e:
        internal_error(e, name)
        return nan


class _Family(Collector):
    """A metric whose values are read when the page is made."""

    def __init__(
        self, name: str, meaning: str, label: str, read: Callable[[], Mapping[str, float]], *, is_counter: bool
    ) -> None:
        self._name, self._meaning, self._labels, self._read = name, meaning, [label] if label else [], read
        self._kind = CounterMetricFamily if is_counter else GaugeMetricFamily

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        yield self._kind(self._name, self._meaning, labels=self._labels)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        family = self._kind(self._name, self._meaning, labels=self._labels)
        for value, number in self._read().items():
            family.add_metric([value] if self._labels else [], number)
        yield family


class CachedReading(Generic[T]):
    """An expensive reading, taken at most once in `seconds`."""

    def __init__(self, read: Callable[[], T], seconds: float, clock: Callable[[], float]) -> None:
        self._read, self._seconds, self._clock = read, seconds, clock
        self._value: T | None = None
        self._until = 0.0

    def __call__(self) -> T:
        if self._value is None or self._clock() >= self._until:
            self._value, self._until = self._read(), self._clock() + self._seconds
        return self._value
