"""Shared parts of both halves of the pipeline: the context of a batch, and its transactions.

    ingest   source -> verify -> raw_events, quarantine, events, heads         (ingest.py)
    derive   events -> tags, activity, access, slots, …, timeline, registries  (derive.py)

Each half is the body of one streaming query with its own checkpoint, so an event is visible before
everything derived from it is. Every write happens exactly once (tables.Txn). A batch that is
repeated reads its input from tables that its own writes have not changed, or computes the same
result from them.
"""

from collections.abc import Callable

from msgspec import Struct, field
from pyspark.sql import DataFrame, SparkSession

from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Table, Txn
from enc.dataview.pipeline.progress import Meter
from enc.dataview.publish.changes import ChangePublisher


def _ignore(point: str) -> None:
    """Ignore the point: the default for `PipelineContext.reached`."""


class PipelineContext(Struct, frozen=True, kw_only=True):
    """Everything a batch needs: the lake, the publisher, the meter and the limits.

    `reached` is called with the name of every point before and after a commit. Tests use it to end
    the process there.
    """

    lake: Lake
    publisher: ChangePublisher | None = None
    reached: Callable[[str], None] = _ignore
    meter: Meter = field(default_factory=Meter)
    limits: DriverLimits = DriverLimits()

    def write(self, spark: SparkSession, table: Table, txn: Txn, act: Callable[[Txn], None], step: str = "") -> None:
        """Make one commit between two named points, unless an earlier attempt already made it."""
        name = f"{table.name}{step and ' '}{step}"
        txn = txn.step(step) if step else txn
        self.reached(f"before {name}")
        if not table.is_written(spark, txn):
            act(txn)
        self.reached(f"after {name}")

    def append(self, name: str, rows: DataFrame, txn: Txn) -> None:
        table = self.lake[name]
        self.write(rows.sparkSession, table, txn, lambda txn: table.append(rows, txn))


class Batches:
    """Transactions for the batches of one query in one process. `app` names its checkpoint.

    A process that died may have begun the first batch, and this process may repeat the last one.
    Any other batch is new.
    """

    def __init__(self, app: str) -> None:
        self._app = app
        self._last: int | None = None

    def txn(self, batch_id: int) -> Txn:
        new = self._last is not None and batch_id > self._last
        self._last = batch_id
        return Txn(self._app, batch_id, new)


def txn_app_id(spark: SparkSession, checkpoint: str, query: str) -> str:
    """Return the id under which a query writes: its name and the id of its checkpoint.

    A new checkpoint has a new id, because its batches count from 0 again.
    """
    first = spark.read.text(f"{checkpoint}/metadata").first()
    return f"{query}:{first[0] if first else ''}"
