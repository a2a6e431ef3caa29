"""Tables on their way to the serving database: what changed since they were published last.

The batch that a view is published with is its table's Delta version. The serving database keeps it in the same
transaction as the rows, and Delta's change data feed tells what came after it: so nothing is lost or told twice,
whoever died in between.
"""

from collections.abc import Mapping
from threading import Lock

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, max_by, struct

from enc.dataview.serving.publish import Publisher
from enc.dataview.tables import Table

INDEXES = {
    "events": ("id", "type", "author", "timestamp"),
    "timeline": ("posted_at", "author"),
    "members": ("identity",),
}
"""Columns by which people look for rows."""

Progress = Mapping[str, int]


class Publishing:
    """What the pipeline publishes, table by table. Several streams may publish one table."""

    def __init__(self, publisher: Publisher, names: frozenset[str] | None = None) -> None:
        """`names`: what is published; without them, everything that has a key."""
        self._publisher, self._names = publisher, names
        self._lock = Lock()

    def takes(self, table: Table) -> bool:
        return bool(table.key) and (self._names is None or table.name in self._names)

    def push(self, spark: SparkSession, table: Table, progress: Progress, description: str = "") -> None:
        """Publish what is new in a table. `progress`: per enclave, the first seq that is not in it yet."""
        if not self.takes(table):
            return
        with self._lock:
            last, now = self._publisher.published(table.name), table.version(spark)
            if last == now:
                self._publisher.go_on(table.name, progress)
            elif last is None or last > now or not self._follow(spark, table, progress, last, now, description):
                self._anew(spark, table, progress, now, description)

    def push_batch(
        self, table: Table, rows: DataFrame, gone: DataFrame | None, progress: Progress, before: int
    ) -> None:
        """Publish what a batch has written as one commit, if it has: its rows as they are now, and those that are gone.

        `before`: the table's version until then. Where something else came in between, `push` finds out what.
        """
        if not self.takes(table):
            return
        spark, index = rows.sparkSession, INDEXES.get(table.name, ())
        with self._lock:
            last, now = self._publisher.published(table.name), table.version(spark)
            if last == now:
                self._publisher.go_on(table.name, progress)
                return
            if last == before and now == before + 1:
                self._publisher.publish(table.name, table.key, rows, gone, progress, now, index=index)
                return
        self.push(spark, table, progress)

    def _follow(
        self, spark: SparkSession, table: Table, progress: Progress, last: int, now: int, description: str
    ) -> bool:
        """Publish the changes; False where the feed does not reach back so far, or the columns changed on the way."""
        try:
            latest = _latest(table.changes(spark, last, now), table).persist()
            changed = latest.where(~col("_gone")).drop("_gone")
            gone = latest.where("_gone").select(*table.key)
            options = {"index": INDEXES.get(table.name, ()), "description": description}
            self._publisher.publish(table.name, table.key, changed, gone, progress, now, **options)  # type: ignore[arg-type]
        except PySparkException:
            return False
        latest.unpersist()
        return True

    def _anew(self, spark: SparkSession, table: Table, progress: Progress, now: int, description: str) -> None:
        index = INDEXES.get(table.name, ())
        rows = table.read(spark)
        self._publisher.republish(table.name, table.key, rows, progress, now, index=index, description=description)

    def forget(self, name: str) -> None:
        """Take a view out."""
        with self._lock:
            self._publisher.drop(name)


def _latest(changes: DataFrame, table: Table) -> DataFrame:
    """Of each key the last change. Where one commit takes a row out and puts it in, it is in."""
    told = changes.where(col("_change_type") != "update_preimage")
    columns = [name for name in told.columns if not name.startswith("_")]
    order = struct("_commit_version", col("_change_type") != "delete")
    row = struct(*columns, (col("_change_type") == "delete").alias("_gone"))
    grouped = told.groupBy(*(col(name).alias(f"_key_{name}") for name in table.key))
    return grouped.agg(max_by(row, order).alias("row")).select("row.*")
