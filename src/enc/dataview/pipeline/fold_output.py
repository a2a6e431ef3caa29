"""What a batch brings of an enclave, and the output of the folds over it."""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from enc.dataview.fold.run_folds import FoldRow, as_arrow_rows, as_table_rows
from enc.dataview.rows.batch_summary import EnclaveSummary


class EnclaveProgress(Struct, frozen=True):
    """An enclave's part of the batch, and the progress of the derived tables for this enclave."""

    summary: EnclaveSummary
    next_seq: int = 0
    events: int = 0

    @property
    def is_late(self) -> bool:
        return self.summary.first < self.next_seq

    @property
    def end(self) -> int:
        """The first seq that is not in the derived tables after this batch."""
        return max(self.next_seq, self.summary.next_seq)

    @property
    def is_complete(self) -> bool:
        """True if no event of the enclave is missing up to `end`."""
        return self.events + self.summary.rows == self.end


class FoldOutput:
    """Output of the folds: held by the driver, or by Spark."""

    def __init__(
        self,
        spark: SparkSession,
        rows: Sequence[FoldRow] = (),
        ids: Sequence[str] = (),
        frames: Sequence[DataFrame] = (),
    ) -> None:
        """`rows` are held by the driver, and `ids` are the ids of their events. `frames` are
        computed DataFrames of FOLD_ROW.
        """
        self.spark, self.rows, self._ids, self._frames, self.on_driver = spark, rows, ids, frames, not frames
        self.names = {table for table, _, _ in self.rows}
        for frame in frames:
            self.names |= {row["table"] for row in frame.select("table").distinct().collect()}

    def frame(self, table: str, schema: StructType) -> DataFrame:
        if self.on_driver:
            return self.spark.createDataFrame(self.driver_rows(table, schema), schema)
        return as_table_rows(self._frame_rows(table), schema)

    def _frame_rows(self, table: str) -> DataFrame:
        return reduce(DataFrame.unionByName, self._frames).where(col("table") == table)

    def driver_rows(self, table: str, schema: StructType) -> pa.Table:
        """Return a table's rows that the driver holds."""
        return as_arrow_rows((row for row in self.rows if row[0] == table), schema)

    def contents(self, schema: StructType) -> tuple[pa.Table, pa.Table]:
        """Split the driver's content rows: those of the batch's events, and those that these
        revise.
        """
        rows = self.driver_rows("content_status", schema)
        is_new = pc.is_in(rows["id"], pa.array(self._ids, pa.string()))
        return rows.filter(is_new), rows.filter(pc.invert(is_new))

    def states(self) -> DataFrame:
        """Return the states that the folds on executors produced."""
        return self._frame_rows("fold").select("enclave", col("data").alias("_state"))
