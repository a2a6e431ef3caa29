"""Views that have a table in the lake and no file any more.

Such a view is not built. Its rows stay as they were last, in the lake and for readers, until it is
dropped: a folder of views that is named wrongly must not remove anything.
"""

from collections.abc import Collection
from typing import Any

from msgspec import Struct
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError
from enc.dataview.lake.lake import Lake
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.views.view_file import NAME

ADVICE = (
    "no file in --views defines it, so it is not built any more, and readers get its last rows: "
    "restore the file, or remove the view by `enc dataview drop {name}`"
)


class DropResult(Struct, frozen=True, kw_only=True):
    """Where a view was removed from."""

    lake: bool
    database: bool


class Orphans:
    """The views of a lake without a file."""

    def __init__(self, lake: Lake, defined: Collection[str]) -> None:
        """`defined`: the names of all tables and views that there are."""
        self._root, self._defined = f"{lake.root}/views", defined

    def names(self, spark: SparkSession) -> list[str]:
        files, root = _files(spark, self._root), _path(spark, self._root)
        there = [str(each.getPath().getName()) for each in files.listStatus(root)] if files.exists(root) else []
        return [name for name in sorted(there) if name not in self._defined and self._is_table(spark, name)]

    def path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def drop(self, spark: SparkSession, name: str, publisher: ChangePublisher | None) -> DropResult:
        """Remove a view from the serving database, then from the lake. Repeat it if it was interrupted."""
        if name in self._defined:
            raise MisuseError(
                f"view {name}: it is built in, or a file in --views defines it: remove the file first; "
                "otherwise the next build would make the view again"
            )
        lake = NAME.fullmatch(name) is not None and self._is_table(spark, name)
        database = publisher is not None and publisher.is_served(name)
        if not lake and not database:
            raise MisuseError(f"{name[:60]}: no view of this name is in the lake or in the serving database")
        if publisher is not None:
            publisher.remove(name)
        if lake:
            _files(spark, self._root).delete(_path(spark, self.path(name)), True)
        return DropResult(lake=lake, database=database)

    def _is_table(self, spark: SparkSession, name: str) -> bool:
        return bool(_files(spark, self._root).exists(_path(spark, f"{self.path(name)}/_delta_log")))


def _files(spark: SparkSession, path: str) -> Any:
    """Return the file system that holds a path: a lake may be on any that Spark can write to."""
    return _path(spark, path).getFileSystem(spark._jsc.hadoopConfiguration())


def _path(spark: SparkSession, path: str) -> Any:
    if spark._jvm is None:
        raise RuntimeError("the Spark session has stopped")
    return spark._jvm.org.apache.hadoop.fs.Path(path)
