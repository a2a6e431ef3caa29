"""Publishes changes of tables to the serving database.

The batch id of a published view encodes its table's Delta version and identity. The serving
database stores it in the same transaction as the rows, and Delta's change data feed lists what came
after it. So nothing is lost or applied twice if a process dies in between. A new lake has new
tables, which are published from the beginning.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from threading import Lock

from msgspec.structs import asdict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, max_by, struct

from enc.dataview.lake.driver_rows import Rows
from enc.dataview.lake.session import SPARK_ERRORS
from enc.dataview.lake.tables import Table
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.publish.status import PIPELINE, PartStatus

INDEXES = {
    "events": ("id", "type", "author", "timestamp"),
    "timeline": ("posted_at", "author"),
    "members": ("identity",),
    "enclaves": ("created", "creator"),
    "heads": ("timestamp", "missing"),
    "registry_enclaves": ("enclave_id", "app"),
    "registry_identities": ("id_pub",),
    "registry_nodes": ("seq_pub",),
}
"""Columns that readers search by."""

NextSeqs = Mapping[str, int]
_VERSIONS = 1 << 32


class ChangePublisher:
    """Publishes the pipeline's tables. Several streams may publish one table."""

    def __init__(self, writer: ServingWriter, names: frozenset[str] | None = None) -> None:
        """`names`: the tables to publish; by default all tables that have a key."""
        self._writer, self._names = writer, names
        self._locks = defaultdict[str, Lock](Lock)
        """By table, so that streams wait for each other only if they publish the same table."""

    def is_published(self, table: Table) -> bool:
        return bool(table.key) and (self._names is None or table.name in self._names)

    def push(self, spark: SparkSession, table: Table, progress: NextSeqs, description: str = "") -> None:
        """Publish a table's changes. `progress`: per enclave, the first seq that is not in it yet."""
        if not self.is_published(table):
            return
        with self._locks[table.name]:
            last, now = self._published_version(spark, table), table.version(spark)
            if last == now:
                self._writer.advance_progress(table.name, progress)
            elif last is None or last > now:
                self._publish_all(spark, table, progress, now, description, keep_progress=False)
            elif not self._publish_changes(spark, table, progress, last, now, description):
                self._publish_all(spark, table, progress, now, description, keep_progress=True)

    def _published_version(self, spark: SparkSession, table: Table) -> int | None:
        """Return the version that was published last; None if it was never published, or was
        another table's.
        """
        batch = self._writer.last_batch_id(table.name)
        return None if batch is None or batch != _batch(spark, table, batch % _VERSIONS) else batch % _VERSIONS

    def push_batch(
        self,
        spark: SparkSession,
        table: Table,
        rows: Rows,
        gone: Rows | None,
        progress: NextSeqs,
        before: int,
        commits: int = 1,
    ) -> None:
        """Publish what a batch has written: its current rows, and those that it deleted.

        `before`: the table's version before the batch, which made `commits` commits if it wrote at
        all. If another commit came in between, `push` determines the changes.
        """
        if not self.is_published(table):
            return
        index = INDEXES.get(table.name, ())
        with self._locks[table.name]:
            last, now = self._published_version(spark, table), table.version(spark)
            if last == now:
                self._writer.advance_progress(table.name, progress)
                return
            if last == before and now == before + commits:
                batch = _batch(spark, table, now)
                self._writer.publish(table.name, table.key, rows, gone, progress, batch, index=index)
                return
        self.push(spark, table, progress)

    def _publish_changes(
        self, spark: SparkSession, table: Table, progress: NextSeqs, last: int, now: int, description: str
    ) -> bool:
        """Publish the changes; False if the feed does not reach back far enough, or columns have
        changed.
        """
        index, batch = INDEXES.get(table.name, ()), _batch(spark, table, now)
        try:
            latest = _latest(table.changes(spark, last, now), table).persist()
            try:
                changed = latest.where(~col("_gone")).drop("_gone")
                gone = latest.where("_gone").select(*table.key)
                self._writer.publish(
                    table.name, table.key, changed, gone, progress, batch, index=index, description=description
                )
            finally:
                latest.unpersist()
        except SPARK_ERRORS:
            return False
        return True

    def _publish_all(
        self, spark: SparkSession, table: Table, progress: NextSeqs, now: int, description: str, *, keep_progress: bool
    ) -> None:
        """Publish the whole table. `keep_progress`: it is the same table as before, so its progress
        still holds.
        """
        index = INDEXES.get(table.name, ())
        rows, batch = table.read_version(spark, now), _batch(spark, table, now)
        self._writer.republish(
            table.name,
            table.key,
            rows,
            progress,
            batch,
            index=index,
            description=description,
            keep_progress=keep_progress,
        )

    def publish_status(self, states: Sequence[PartStatus]) -> None:
        """Publish the status of the job's parts for readers of views."""
        if self._names is None or PIPELINE.name in self._names:
            self._writer.write_rows(PIPELINE, [asdict(state) for state in states])

    def is_served(self, name: str) -> bool:
        """Return True if the serving database has the view."""
        return self._writer.last_batch_id(name) is not None

    def vacuum(self) -> None:
        """Remove old versions of rows from the serving database's files, as far as it can."""
        self._writer.vacuum()

    def remove(self, name: str) -> None:
        """Remove a view."""
        with self._locks[name]:
            self._writer.drop(name)


def _batch(spark: SparkSession, table: Table, version: int) -> int:
    """Return a number that identifies a version of this very table."""
    which = int.from_bytes(sha256(table.identity(spark).encode()).digest()[:3])
    return which * _VERSIONS + version


def _latest(changes: DataFrame, table: Table) -> DataFrame:
    """Return the last change of each key. A row that one commit deletes and inserts counts as
    inserted.
    """
    changed = changes.where(col("_change_type") != "update_preimage")
    columns = [name for name in changed.columns if not name.startswith("_")]
    order = struct("_commit_version", col("_change_type") != "delete")
    row = struct(*columns, (col("_change_type") == "delete").alias("_gone"))
    grouped = changed.groupBy(*(col(name).alias(f"_key_{name}") for name in table.key))
    return grouped.agg(max_by(row, order).alias("row")).select("row.*")
