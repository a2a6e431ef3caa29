"""What a source yields of the raw rows that it reads: these; verified ones; or, for the pipeline, names of files."""

from collections.abc import Iterator

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from enc.core.errors import MisuseError
from enc.dataview.schema import RAW, VERIFIED
from enc.dataview.staging import FILES, stage
from enc.dataview.verify import Verify, verify_batch


class Yielding(Struct, frozen=True):
    """`stage`: the lake's root, if rows are to be written there as they are read (see staging.py)."""

    verify: Verify = "no"
    stage: str | None = None

    def check(self) -> None:
        if self.stage is not None and self.verify == "no":
            raise MisuseError("stage: only verified rows are written: say verify=full, or verify=form")

    @property
    def schema(self) -> StructType:
        return FILES if self.stage else RAW if self.verify == "no" else VERIFIED

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A source's batches of raw rows, as it was told to yield them."""
        check = self.verify == "full"
        if self.stage is not None:
            return stage(batches, self.stage, check=check)
        if self.verify == "no":
            return batches
        return (verify_batch(batch, check=check) for batch in batches)
