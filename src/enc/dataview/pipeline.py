"""What both halves of the pipeline share: the lake, the serving database, and points where a test may end the process.

    ingest   source -> verify -> raw_events, quarantine, events, heads         (ingest.py)
    derive   events -> tags, activity, access, slots, …, timeline, registries  (derive.py)

Each is the body of one streaming query with a checkpoint of its own, so that an event is visible before all that
follows from it is. Every write happens once (tables.Txn), and a batch that is begun again reads what it needs from
tables that its own writes have not changed, or computes the same from them.
"""

from collections.abc import Callable, Collection

from msgspec import Struct, field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col

from enc.dataview.held import Limits
from enc.dataview.lake import Lake
from enc.dataview.progress import Meter
from enc.dataview.publishing import Publishing
from enc.dataview.tables import Table, Txn


def _pass(point: str) -> None:
    """Nothing happens here."""


class Setting(Struct, frozen=True, kw_only=True):
    """What a batch works with. `reached` is told every named point before and after a commit."""

    lake: Lake
    publishing: Publishing | None = None
    reached: Callable[[str], None] = _pass
    meter: Meter = field(default_factory=Meter)
    limits: Limits = Limits()

    def write(self, spark: SparkSession, table: Table, txn: Txn, act: Callable[[Txn], None], step: str = "") -> None:
        """One commit, between two named points; nothing if it was made before."""
        name = f"{table.name}{step and ' '}{step}"
        txn = txn.step(step) if step else txn
        self.reached(f"before {name}")
        if not table.written(spark, txn):
            act(txn)
        self.reached(f"after {name}")

    def append(self, name: str, rows: DataFrame, txn: Txn) -> None:
        table = self.lake[name]
        self.write(rows.sparkSession, table, txn, lambda txn: table.append(rows, txn))


class Batches:
    """The batches of one query, as one process sees them. `app` names its checkpoint.

    The first may have been begun by a process that died, and one that comes again by this; any other is new.
    """

    def __init__(self, app: str) -> None:
        self._app = app
        self._last: int | None = None

    def txn(self, batch_id: int) -> Txn:
        new = self._last is not None and batch_id > self._last
        self._last = batch_id
        return Txn(self._app, batch_id, new)


def app_of(spark: SparkSession, checkpoint: str, query: str) -> str:
    """Who writes, for Txn: the query with this checkpoint. With a new checkpoint, batches count from 0 again."""
    first = spark.read.text(f"{checkpoint}/metadata").first()
    return f"{query}:{first[0] if first else ''}"


def named(rows: DataFrame, column: str, values: Collection[str], limits: Limits) -> DataFrame:
    """The rows that have one of these values."""
    if len(values) <= limits.named:
        return rows.where(col(column).isin(*values))
    return rows.join(_listed(rows, column, values), column, "left_semi").select(*rows.columns)


def only(rows: DataFrame, enclaves: Collection[str], limits: Limits) -> DataFrame:
    """The rows of these enclaves."""
    return named(rows, "enclave", enclaves, limits)


def but(rows: DataFrame, enclaves: Collection[str], limits: Limits) -> DataFrame:
    """The rows of all others, and of none."""
    if len(enclaves) <= limits.named:
        return rows.where(col("enclave").isNull() | ~col("enclave").isin(*enclaves)) if enclaves else rows
    return rows.join(_listed(rows, "enclave", enclaves), "enclave", "left_anti").select(*rows.columns)


def _listed(rows: DataFrame, column: str, values: Collection[str]) -> DataFrame:
    return broadcast(rows.sparkSession.createDataFrame([(value,) for value in values], f"{column} string"))
