"""Tables on their way to the serving database: what changed since they were published last.

The batch that a view is published with is its table's Delta version, and which table that is. The serving database
keeps it in the same transaction as the rows, and Delta's change data feed tells what came after it: so nothing is lost
or told twice, whoever died in between. A lake that is begun anew is other tables, and is published from the beginning.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from threading import Lock

from msgspec.structs import asdict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, max_by, struct

from enc.dataview.serving.publish import Publisher, Rows
from enc.dataview.session import SparkFault
from enc.dataview.status import PIPELINE, State
from enc.dataview.tables import Table

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
"""Columns by which people look for rows."""

Progress = Mapping[str, int]
_VERSIONS = 1 << 32


class Publishing:
    """What the pipeline publishes, table by table. Several streams may publish one table."""

    def __init__(self, publisher: Publisher, names: frozenset[str] | None = None) -> None:
        """`names`: what is published; without them, everything that has a key."""
        self._publisher, self._names = publisher, names
        self._locks = defaultdict[str, Lock](Lock)
        """By table: what one stream publishes does not wait for what another does."""

    def takes(self, table: Table) -> bool:
        return bool(table.key) and (self._names is None or table.name in self._names)

    def push(self, spark: SparkSession, table: Table, progress: Progress, description: str = "") -> None:
        """Publish what is new in a table. `progress`: per enclave, the first seq that is not in it yet."""
        if not self.takes(table):
            return
        with self._locks[table.name]:
            last, now = self._published(spark, table), table.version(spark)
            if last == now:
                self._publisher.go_on(table.name, progress)
            elif last is None or last > now:
                self._anew(spark, table, progress, now, description, goes_on=False)
            elif not self._follow(spark, table, progress, last, now, description):
                self._anew(spark, table, progress, now, description, goes_on=True)

    def _published(self, spark: SparkSession, table: Table) -> int | None:
        """The version that was published last; None where it was of no table, or of another."""
        batch = self._publisher.published(table.name)
        return None if batch is None or batch != _batch(spark, table, batch % _VERSIONS) else batch % _VERSIONS

    def push_batch(
        self,
        spark: SparkSession,
        table: Table,
        rows: Rows,
        gone: Rows | None,
        progress: Progress,
        before: int,
        commits: int = 1,
    ) -> None:
        """Publish what a batch has written: its rows as they are now, and those that are gone.

        `before`: the table's version until then, from which its own `commits` led on, if it made any. Where something
        else came in between, `push` finds out what.
        """
        if not self.takes(table):
            return
        index = INDEXES.get(table.name, ())
        with self._locks[table.name]:
            last, now = self._published(spark, table), table.version(spark)
            if last == now:
                self._publisher.go_on(table.name, progress)
                return
            if last == before and now == before + commits:
                batch = _batch(spark, table, now)
                self._publisher.publish(table.name, table.key, rows, gone, progress, batch, index=index)
                return
        self.push(spark, table, progress)

    def _follow(
        self, spark: SparkSession, table: Table, progress: Progress, last: int, now: int, description: str
    ) -> bool:
        """Publish the changes; False where the feed does not reach back so far, or the columns changed on the way."""
        index, batch = INDEXES.get(table.name, ()), _batch(spark, table, now)
        try:
            latest = _latest(table.changes(spark, last, now), table).persist()
            try:
                changed = latest.where(~col("_gone")).drop("_gone")
                gone = latest.where("_gone").select(*table.key)
                self._publisher.publish(
                    table.name, table.key, changed, gone, progress, batch, index=index, description=description
                )
            finally:
                latest.unpersist()
        except SparkFault:
            return False
        return True

    def _anew(
        self, spark: SparkSession, table: Table, progress: Progress, now: int, description: str, *, goes_on: bool
    ) -> None:
        """`goes_on`: it is the same table that was published before, and so complete at least as far."""
        index = INDEXES.get(table.name, ())
        rows, batch = table.at(spark, now), _batch(spark, table, now)
        self._publisher.republish(
            table.name, table.key, rows, progress, batch, index=index, description=description, goes_on=goes_on
        )

    def tell(self, states: Sequence[State]) -> None:
        """How far the job is, for whoever reads views."""
        if self._names is None or PIPELINE.name in self._names:
            self._publisher.put(PIPELINE, [asdict(state) for state in states])

    def forget(self, name: str) -> None:
        """Take a view out."""
        with self._locks[name]:
            self._publisher.drop(name)


def _batch(spark: SparkSession, table: Table, version: int) -> int:
    """A number for a version of this table, and of no other."""
    which = int.from_bytes(sha256(table.identity(spark).encode()).digest()[:3])
    return which * _VERSIONS + version


def _latest(changes: DataFrame, table: Table) -> DataFrame:
    """Of each key the last change. Where one commit takes a row out and puts it in, it is in."""
    told = changes.where(col("_change_type") != "update_preimage")
    columns = [name for name in told.columns if not name.startswith("_")]
    order = struct("_commit_version", col("_change_type") != "delete")
    row = struct(*columns, (col("_change_type") == "delete").alias("_gone"))
    grouped = told.groupBy(*(col(name).alias(f"_key_{name}") for name in table.key))
    return grouped.agg(max_by(row, order).alias("row")).select("row.*")
