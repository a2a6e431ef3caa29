"""A small table that every batch changes, cached by the driver.

Each change rewrites it as one file, in a commit without a job. If another writer changes it (upkeep
does, while the streams wait), its version differs from the cached one, and it is read again. A
table that has grown too large is left to Spark.
"""

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from enc.dataview.lake.driver_rows import DriverLimits, arrow_table
from enc.dataview.lake.parquet import write_file
from enc.dataview.lake.row_filters import rows_of_enclaves
from enc.dataview.lake.tables import Table, Txn
from enc.dataview.rows.schema import arrow_schema

MAX_CACHED_BYTES = 64 << 20
"""Most bytes of rows that are cached."""
COMPRESSION_RATIO = 3
"""Approximate size of rows in memory, relative to their file."""


class CachedTable:
    """One row per `enclave`. Not thread-safe."""

    def __init__(self, table: Table, limits: DriverLimits, most: int = MAX_CACHED_BYTES) -> None:
        self.table, self._limits, self._most = table, limits, most
        self._known: tuple[str, int] | None = None
        """Identity and version of the table that the cached rows belong to."""
        self._rows: pa.Table | None = None
        self._files: list[str] = []

    def rows_for(self, spark: SparkSession, enclaves: Collection[str]) -> list[dict[str, Any]]:
        """Return the rows of these enclaves."""
        rows = self._current_rows(spark)
        if rows is None:
            found = rows_of_enclaves(self.table.read(spark), enclaves, self._limits).toArrow()
        else:
            found = rows.filter(pc.is_in(rows["enclave"], pa.array(enclaves, pa.string())))
        return found.to_pylist()  # type: ignore[no-any-return]

    def replace_rows(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]], txn: Txn) -> None:
        """Replace the rows of the same enclaves."""
        new, old = arrow_table(rows, self.table.spec.schema), self._current_rows(spark)
        if old is None or self._known is None:
            self.table.upsert(spark.createDataFrame(new, self.table.spec.schema), txn, on_driver=True)
            return
        others = old.filter(pc.invert(pc.is_in(old["enclave"], new["enclave"].combine_chunks())))
        whole = pa.concat_tables([others, new]).combine_chunks()
        file = write_file(self.table, whole)
        version = self.table.swap_files(spark, [file], self._files, txn)
        self._cache((self._known[0], version), whole, [file.path])

    def _current_rows(self, spark: SparkSession) -> pa.Table | None:
        """Return all rows; None if there are too many."""
        moment = self.table.snapshot_id(spark)
        if self._known != moment:
            self._known, self._rows = moment, None
            if self.table.size(spark) * COMPRESSION_RATIO <= self._most:
                frame = self.table.read(spark)
                files = [PurePosixPath(path).name for path in frame.inputFiles()]
                self._cache(moment, frame.toArrow().cast(arrow_schema(self.table.spec.schema)), files)
        return self._rows

    def _cache(self, moment: tuple[str, int], rows: pa.Table, files: list[str]) -> None:
        self._known = moment
        self._rows, self._files = (rows, files) if rows.nbytes <= self._most else (None, [])
