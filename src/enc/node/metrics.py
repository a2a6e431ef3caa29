"""What an operator watches, in Prometheus' text form."""

from collections import Counter as Tally
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from enc.core.errors import EncError
from enc.core.types import Receipt

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters are fed by whoever does the work; gauges ask when they are read."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._commits = Counter("enc_commits", "Commits by outcome", ["outcome"], registry=self.registry)
        self._requests = Counter("enc_requests", "HTTP requests by status", ["status"], registry=self.registry)
        self._events = Histogram("enc_batch_steps", "Steps in a transaction", buckets=_EVENTS, registry=self.registry)
        self._writes = Histogram(
            "enc_write_seconds", "Time of a transaction, fsync included", buckets=_SECONDS, registry=self.registry
        )

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        Gauge(name, meaning, registry=self.registry).set_function(read)

    def settled(self, results: Sequence[Receipt | EncError]) -> None:
        tally = Tally(result.code if isinstance(result, EncError) else "accepted" for result in results)
        for outcome, count in tally.items():
            self._commits.labels(outcome).inc(count)

    def answered(self, status: int) -> None:
        self._requests.labels(str(status)).inc()

    def wrote(self, steps: int, seconds: float) -> None:
        self._events.observe(steps)
        self._writes.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
