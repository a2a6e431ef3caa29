"""The streaming queries of a job: how they start, take turns, restart and fail."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from enc.core.errors import Unavailable
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.session import MICRO_BATCH_CONF, spark_message, stream_pool
from enc.dataview.pipeline.batch_context import txn_app_id

logger = logging.getLogger("enc.dataview")

RESTART_DELAY_S = 5.0
"""Delay before restarting a stream that stopped because a peer did not answer."""
_TRANSIENT = re.compile(
    r"\benc\.[\w.]+\.(Unreachable|TimedOut|Unavailable|UpstreamUnreachable|InternalError): "
    r"|Python worker failed to connect back"
)

Body = Callable[[DataFrame, int], None]
"""Processes a batch, by its number."""


class Streams:
    """The streams over one lake."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark, self._lake = spark, lake
        self._locks = {"ingest": Lock(), "derive": Lock()}
        """Sources write the same tables, and upkeep rewrites what the streams write: each takes its
        turn.
        """
        self._restarts: dict[str, Callable[[], StreamingQuery]] = {}
        """By name, the function that restarts a stream from its checkpoint."""

    def start(
        self, name: str, rows: DataFrame, trigger: dict[str, Any], make_body: Callable[[str], Body]
    ) -> StreamingQuery:
        """Start a stream. `make_body` takes the id under which it writes (see `txn_app_id`)."""
        checkpoint, turn = self._lake.checkpoint(name), self._locks[name.partition("-")[0]]
        bodies: list[Body] = []

        def body(batch: DataFrame, batch_id: int) -> None:
            if not bodies:
                for setting, value in MICRO_BATCH_CONF.items():  # each query has its own session
                    batch.sparkSession.conf.set(setting, value)
                bodies.append(make_body(txn_app_id(batch.sparkSession, checkpoint, name)))
            with turn:
                bodies[0](batch, batch_id)

        self._restarts[f"enc-{name}"] = partial(self.start, name, rows, trigger, make_body)
        writer = rows.writeStream.queryName(f"enc-{name}").foreachBatch(body)
        with stream_pool(self._spark):
            return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep all streams between two batches."""
        with self._locks["ingest"], self._locks["derive"]:
            yield

    def restart_if_transient(
        self, query: StreamingQuery, stop: Event, before_restart: Callable[[], None]
    ) -> StreamingQuery:
        """Return the stream, restarted from its checkpoint if it stopped for a transient reason.

        `before_restart` runs while all streams are paused.
        """
        error = query.exception()
        if error is None or not is_transient(message := spark_message(error)):
            raise_if_failed(query)
            return query
        logger.warning("%s restarts from its checkpoint: %s", query.name, message)
        stop.wait(RESTART_DELAY_S)
        with self.paused():
            before_restart()
        return self._restarts[query.name]()


def source_progress(queries: Iterable[StreamingQuery]) -> list[Any]:
    """Return Spark's last progress report of each stream's source."""
    return [source for query in queries if (last := query.lastProgress) for source in last["sources"]]


def is_transient(message: str) -> bool:
    """Return True if a retry may succeed: a node or the serving database did not answer, or the
    machine was so busy that Python did not start within Spark's ten seconds.
    """
    return _TRANSIENT.search(message) is not None


def raise_if_failed(query: StreamingQuery) -> None:
    """Raise Unavailable if the stream stopped with an error."""
    error = query.exception()
    if error is not None:
        raise Unavailable(f"the stream {query.name} stopped: {spark_message(error)}", retry_after_ms=1000)
