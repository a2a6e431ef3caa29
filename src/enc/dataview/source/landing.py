"""The landing zone: a directory of Parquet files of raw rows, one for each pushed batch.

A file appears atomically and is on disk before `put` returns; it never changes. A stream reads each
once: `read_landing(spark, directory)`.
"""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.rows.schema import RAW
from enc.runtime.files import atomic_file

MAX_FILES = 1000
"""Default number of files per micro-batch."""
RETRY_MS = 1000
DRAFT = ".draft-"
"""How the names of unfinished files begin; Spark ignores names that begin with a dot."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class LandingZone:
    """A landing zone. `directory` is created if it does not exist."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
        except OSError as e:
            raise MisuseError(f"{self.directory}: cannot be used as a landing zone: {e.strerror}") from None

    def put(self, name: str, rows: pa.RecordBatch) -> bool:
        """Write a file of this name; False if it exists. Unavailable if the disk does not accept
        it.

        After a crash there is either the whole file, or a draft that is ignored and removed at the
        next start.
        """
        if not _NAME.fullmatch(name):
            raise MisuseError(f"{name!r}: not a valid file name in a landing zone")
        path, table = self.directory / f"{name}.parquet", pa.Table.from_batches([rows])
        try:
            with atomic_file(path, prefix=DRAFT, overwrite=False) as file:
                pq.write_table(table, file, compression="zstd", coerce_timestamps="us")
        except FileExistsError:
            return False
        except OSError as e:
            raise Unavailable(f"cannot write to the landing zone: {e.strerror}", retry_after_ms=RETRY_MS) from e
        return True

    def _sweep(self) -> None:
        """Remove drafts of a writer that was killed. Only one process writes to a landing zone."""
        for path in self.directory.glob(f"{DRAFT}*"):
            path.unlink(missing_ok=True)


def read_landing(
    spark: SparkSession, directory: Path | str, *, max_files: int = MAX_FILES, clean: bool = False
) -> DataFrame:
    """Stream the raw rows of a landing zone. With `clean`, files are removed after their commit."""
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    reader = spark.readStream.schema(RAW).option("maxFilesPerTrigger", max_files).option("latestFirst", "false")
    if clean:
        reader = reader.option("cleanSource", "delete")
    return reader.parquet(str(path))


def remove_ingested(directory: Path, checkpoint: Path) -> None:
    """Remove the files that a stream with this checkpoint has ingested. Spark itself removes a file
    only when a later one has arrived.
    """
    done = max((int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")), default=-1)
    for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:  # the first line is the version of the log
            entry = json.loads(line)
            if entry["batchId"] <= done:
                (directory / unquote(entry["path"]).rpartition("/")[2]).unlink(missing_ok=True)
