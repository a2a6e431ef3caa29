"""The output of a source: raw rows, verified rows or, for the pipeline, names of staged files."""

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from enc.core.errors import MisuseError
from enc.dataview.rows.schema import RAW, VERIFIED
from enc.dataview.rows.verify import VerifyMode, verify_batch
from enc.dataview.source.staging import FILES, stage_batches


class OutputMode(Struct, frozen=True):
    """What a source yields. `stage`: root of the lake to which rows are written as they are read
    (staging.py).
    """

    verify: VerifyMode = "no"
    stage: str | None = None

    def check(self) -> None:
        if self.stage is not None and self.verify == "no":
            raise MisuseError("stage: only verified rows can be staged; set verify=full or verify=form")

    @property
    def schema(self) -> StructType:
        return FILES if self.stage else RAW if self.verify == "no" else VERIFIED

    def convert(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert a source's batches of raw rows to this output."""
        check = self.verify == "full"
        if self.stage is not None:
            return stage_batches(batches, self.stage, check=check)
        if self.verify == "no":
            return batches
        return (verify_batch(batch, check=check) for batch in batches)
