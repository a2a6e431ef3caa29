"""Runs an audit's tasks on Spark; the only module of this package that imports it.

Tasks are Python functions over lists of items. Nothing is shuffled; findings and roots come back.
Every worker must reach the archives under the same paths.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from pyspark import InheritableThread

from enc.audit.plan import TASKS_PER_CORE, spread
from enc.core.errors import EncError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.25
In = TypeVar("In")
Out = TypeVar("Out")


class OnSpark:
    """A Runner. An item's weight is proportional to its estimated time."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context = spark.sparkContext
        self.cores = self._context.defaultParallelism
        self.name = f"Spark, {self._context.master}, {self.cores} cores"

    def map(
        self, work: Callable[[In], Out], each: Sequence[In], weights: Sequence[int], report: Callable[[int], None]
    ) -> Iterator[Out]:
        bins = spread(list(zip(weights, each, strict=True)), self.cores * TASKS_PER_CORE)
        if not bins:
            return iter(())
        done = self._context.accumulator(0)

        def run(part: Iterable[list[tuple[int, In]]]) -> Iterator[Out]:
            gc.set_threshold(50_000, 20, 100)
            for items in part:
                for weight, item in items:
                    yield work(item)
                    done.add(weight)

        tasks = self._context.parallelize(bins, len(bins)).mapPartitions(run)
        return iter(self._collected(lambda: tasks.collect(), lambda: report(done.value)))

    def _collected(self, collect: Callable[[], list[Out]], tick: Callable[[], None]) -> list[Out]:
        """Return a job's results. The job runs in a thread, so that this one can report
        progress.
        """
        found: list[list[Out]] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(collect())
            except Exception as e:
                failed.append(e)

        thread: Thread = InheritableThread(target=run)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(TICK_S)
                tick()
        except BaseException:
            self._context.cancelAllJobs()
            raise
        if failed:
            raise AuditFailed(f"Spark: {last_line(failed[0])}") from failed[0]
        return found[0]


class AuditFailed(EncError):
    """The tasks failed before their end."""

    code = "AUDIT_FAILED"


def last_line(error: BaseException) -> str:
    """Return the essential line of a long Spark error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors or lines or [type(error).__name__])[-1][:500]
