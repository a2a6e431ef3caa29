"""What both halves of the pipeline share: the lake, the serving database, and points where a test may end the process.

    ingest   source -> verify -> raw_events, quarantine, events, heads         (ingest.py)
    derive   events -> tags, activity, access, slots, …, timeline, registries  (derive.py)

Each is the body of one streaming query with a checkpoint of its own, so that an event is visible before all that
follows from it is. Every write happens once (tables.Txn), and a batch that is begun again reads what it needs from
tables that its own writes have not changed, or computes the same from them.
"""

from collections.abc import Callable, Collection

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col

from enc.dataview.lake import Lake
from enc.dataview.publishing import Publishing
from enc.dataview.tables import Table, Txn


def _pass(point: str) -> None:
    """Nothing happens here."""


class Setting(Struct, frozen=True, kw_only=True):
    """What a batch works with. `reached` is told every named point before and after a commit."""

    lake: Lake
    publishing: Publishing | None = None
    reached: Callable[[str], None] = _pass

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


def app_of(spark: SparkSession, checkpoint: str, query: str) -> str:
    """Who writes, for Txn: the query with this checkpoint. With a new checkpoint, batches count from 0 again."""
    first = spark.read.text(f"{checkpoint}/metadata").first()
    return f"{query}:{first[0] if first else ''}"


FEW = 500
"""Values that are named in a query one by one."""


def named(rows: DataFrame, column: str, values: Collection[str]) -> DataFrame:
    """The rows that have one of these values."""
    if len(values) <= FEW:
        return rows.where(col(column).isin(*values))
    return rows.join(_listed(rows, column, values), column, "left_semi").select(*rows.columns)


def only(rows: DataFrame, enclaves: Collection[str]) -> DataFrame:
    """The rows of these enclaves."""
    return named(rows, "enclave", enclaves)


def but(rows: DataFrame, enclaves: Collection[str]) -> DataFrame:
    """The rows of all others, and of none."""
    if len(enclaves) <= FEW:
        return rows.where(col("enclave").isNull() | ~col("enclave").isin(*enclaves)) if enclaves else rows
    return rows.join(_listed(rows, "enclave", enclaves), "enclave", "left_anti").select(*rows.columns)


def _listed(rows: DataFrame, column: str, values: Collection[str]) -> DataFrame:
    return broadcast(rows.sparkSession.createDataFrame([(value,) for value in values], f"{column} string"))
