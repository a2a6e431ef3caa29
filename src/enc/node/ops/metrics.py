"""The node's metrics in Prometheus' text format."""

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from enc.core.errors import EncError
from enc.core.primitives.types import Receipt
from enc.node.store.push_interface import ChallengeResult, PushResult

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
        self._events = Histogram("enc_batch_steps", "Steps in a transaction", buckets=_EVENTS, registry=self.registry)
        self._writes = Histogram(
            "enc_write_seconds", "Time of a transaction, fsync included", buckets=_SECONDS, registry=self.registry
        )
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
        Gauge(name, meaning, registry=self.registry).set_function(read)

    def count_results(self, results: Sequence[Receipt | EncError]) -> None:
        tally = Tally(result.code if isinstance(result, EncError) else "accepted" for result in results)
        for outcome, count in tally.items():
            self._commits.labels(outcome).inc(count)

    def count_response(self, status: int) -> None:
        self._requests.labels(str(status)).inc()

    def observe_write(self, steps: int, seconds: float) -> None:
        self._events.observe(steps)
        self._writes.observe(seconds)

    def count_deliveries(self, results: Sequence[PushResult]) -> None:
        for outcome in results:
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
