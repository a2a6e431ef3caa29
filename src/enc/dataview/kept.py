"""A table of which the driver has all rows: small, and changed by every batch.

It is written anew as one file, in a commit without a job. Who else writes it (upkeep does, while the streams wait)
makes a version that is not known here, and then it is read again. One that has grown too large is left to Spark.
"""

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from enc.dataview.files import write_file
from enc.dataview.held import Limits, arrow_of
from enc.dataview.pipeline import only
from enc.dataview.schema import arrow
from enc.dataview.tables import Table, Txn

MOST = 64 << 20
"""Bytes of rows that are kept."""
PACKED = 3
"""Times as many as they take as a file, about."""


class Kept:
    """Rows are by `enclave`, one each. Of one thread."""

    def __init__(self, table: Table, limits: Limits, most: int = MOST) -> None:
        self.table, self._limits, self._most = table, limits, most
        self._known: tuple[str, int] | None = None
        """Of which table, and which version of it, the rows are."""
        self._rows: pa.Table | None = None
        self._files: list[str] = []

    def of(self, spark: SparkSession, enclaves: Collection[str]) -> list[dict[str, Any]]:
        """The rows of these enclaves."""
        rows = self._now(spark)
        if rows is None:
            found = only(self.table.read(spark), enclaves, self._limits).toArrow()
        else:
            found = rows.filter(pc.is_in(rows["enclave"], pa.array(enclaves, pa.string())))
        return found.to_pylist()  # type: ignore[no-any-return]

    def put(self, spark: SparkSession, rows: Sequence[tuple[Any, ...]], txn: Txn) -> None:
        """These rows in place of those of the same enclaves."""
        new, old = arrow_of(rows, self.table.spec.schema), self._now(spark)
        if old is None or self._known is None:
            self.table.upsert(spark.createDataFrame(new, self.table.spec.schema), txn, held=True)
            return
        others = old.filter(pc.invert(pc.is_in(old["enclave"], new["enclave"].combine_chunks())))
        whole = pa.concat_tables([others, new]).combine_chunks()
        file = write_file(self.table, whole)
        version = self.table.swap(spark, [file], self._files, txn)
        self._keep((self._known[0], version), whole, [file.path])

    def _now(self, spark: SparkSession) -> pa.Table | None:
        """All rows; None where they are too many."""
        moment = self.table.moment(spark)
        if self._known != moment:
            self._known, self._rows = moment, None
            if self.table.size(spark) * PACKED <= self._most:
                frame = self.table.read(spark)
                files = [PurePosixPath(path).name for path in frame.inputFiles()]
                self._keep(moment, frame.toArrow().cast(arrow(self.table.spec.schema)), files)
        return self._rows

    def _keep(self, moment: tuple[str, int], rows: pa.Table, files: list[str]) -> None:
        self._known = moment
        self._rows, self._files = (rows, files) if rows.nbytes <= self._most else (None, [])
