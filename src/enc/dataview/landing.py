"""The landing zone: a directory of Parquet files of raw rows, one for each batch that was pushed.

A file is there whole or not at all, and on disk before `put` returns; one that is there stays as it is. A stream reads
each once: `landed(spark, directory)`.
"""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.schema import RAW
from enc.runtime.files import atomic_file

MAX_FILES = 1000
"""Files of one micro-batch, unless it is said otherwise."""
RETRY_MS = 1000
DRAFT = ".draft-"
"""How the names of unfinished files begin; Spark ignores names that begin with a dot."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class Landing:
    """`directory` is made if it is not there."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
        except OSError as e:
            raise MisuseError(f"{self.directory}: cannot be a landing zone: {e.strerror}") from None

    def put(self, name: str, rows: pa.RecordBatch) -> bool:
        """Write a file of this name; False if there is one. Unavailable where the disk does not take it.

        After a crash here there is the whole file, or a draft that nobody reads and that the next start removes.
        """
        if not _NAME.fullmatch(name):
            raise MisuseError(f"{name!r}: no name for a file in a landing zone")
        path, table = self.directory / f"{name}.parquet", pa.Table.from_batches([rows])
        try:
            with atomic_file(path, prefix=DRAFT, overwrite=False) as file:
                pq.write_table(table, file, compression="zstd", coerce_timestamps="us")
        except FileExistsError:
            return False
        except OSError as e:
            raise Unavailable(f"the landing zone does not take it: {e.strerror}", retry_after_ms=RETRY_MS) from e
        return True

    def _sweep(self) -> None:
        """Drafts of a writer that was killed. One process writes to a landing zone."""
        for path in self.directory.glob(f"{DRAFT}*"):
            path.unlink(missing_ok=True)


def landed(spark: SparkSession, directory: Path | str, *, max_files: int = MAX_FILES, clean: bool = False) -> DataFrame:
    """The landing zone as a stream of raw rows. With `clean`, what was read and committed is removed in time."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    reader = spark.readStream.schema(RAW).option("maxFilesPerTrigger", max_files).option("latestFirst", "false")
    if clean:
        reader = reader.option("cleanSource", "delete")
    return reader.parquet(str(path))
