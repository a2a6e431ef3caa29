"""Tables on Delta Lake: made, appended to and merged into exactly once.

Every write names a Txn: who writes, and its batch. Delta keeps the pair in the table's log, in the same commit as the
rows, and takes no pair twice. So whoever died anywhere does its batch again, whole, and nothing is double.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from delta.tables import DeltaTable
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"

PROPERTIES: Mapping[str, str] = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
}


class Txn(Struct, frozen=True):
    """A write that happens once: the writer and the number of its batch, which only rises."""

    app: str
    version: int
    new: bool = False
    """It is known that it has not happened yet: nobody need look, which costs a job."""

    def step(self, name: str) -> "Txn":
        """A further write of the same batch into the same table."""
        return Txn(f"{self.app}/{name}", self.version, self.new)


Layer = Literal["bronze", "silver", "gold", "views", "state"]


class NewFile(Struct, frozen=True):
    """A Parquet file that somebody has written into a table's directory, which does not know of it yet."""

    path: str
    """Relative to the table."""
    size: int
    stats: str
    """As Delta's log has it."""


class Spec(Struct, frozen=True, kw_only=True):
    """What a table is, before it is anywhere."""

    name: str
    layer: Layer
    schema: StructType
    key: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    """Columns by which compaction sorts rows into files, for whoever looks for few of them."""
    stats: tuple[str, ...] = ()
    """Columns whose least and greatest values Delta keeps for each file, to skip files by; none named: the first 32.
    To find them out takes time for every column.
    """
    checkpoint_every: int = 30
    """At each such version whoever commits waits while Delta writes down all that the log says. Where that is to be
    seldom, `Table.checkpoint_log` does it in between. Tables that are written together have numbers that seldom meet,
    so that no batch waits for all of them at once.
    """
    large: bool = False
    """Its files are large, so that a row is marked as gone instead of writing the file anew; else that is slower."""


class Table:
    """One table in its directory."""

    def __init__(self, root: str, spec: Spec) -> None:
        self.spec, self.name, self.key = spec, spec.name, spec.key
        self.path = f"{root.rstrip('/')}/{spec.layer}/{spec.name}"

    def exists(self, spark: SparkSession) -> bool:
        return DeltaTable.isDeltaTable(spark, self.path)

    def create(self, spark: SparkSession) -> None:
        """Make it if it is not there, and add the columns that it lacks by now."""
        if not self.exists(spark):
            builder = DeltaTable.createIfNotExists(spark).location(self.path).addColumns(self.spec.schema)
            for name, value in self._properties().items():
                builder = builder.property(name, value)
            builder.execute()
            return
        there = self.read(spark).columns
        missing = [field for field in self.spec.schema if field.name not in there]
        if missing:
            nothing = spark.createDataFrame([], StructType(missing))
            nothing.write.format("delta").mode("append").option("mergeSchema", "true").save(self.path)

    def _properties(self) -> Mapping[str, str]:
        stats = {"delta.dataSkippingStatsColumns": ",".join(self.spec.stats)} if self.spec.stats else {}
        marks = {"delta.enableDeletionVectors": "true"} if self.spec.large else {}
        return {**PROPERTIES, "delta.checkpointInterval": str(self.spec.checkpoint_every), **stats, **marks}

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.path)

    def at(self, spark: SparkSession, version: int) -> DataFrame:
        """As it was after this commit."""
        return spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def delta(self, spark: SparkSession) -> DeltaTable:
        return DeltaTable.forPath(spark, self.path)

    def version(self, spark: SparkSession) -> int:
        """The number of the latest commit."""
        return int(self._snapshot(spark).version())

    def written(self, spark: SparkSession, txn: Txn) -> bool:
        """Whether this write has happened already."""
        if txn.new:
            return False
        found = self._snapshot(spark).transactions().get(txn.app)
        return bool(found.isDefined() and int(found.get()) >= txn.version)

    def transactions(self, spark: SparkSession) -> dict[str, int]:
        """The last version of every writer. Costs a job, unless the log was just read."""
        found = self._snapshot(spark).transactions().iterator()
        pairs = []
        while found.hasNext():
            pair = found.next()
            pairs.append((str(pair._1()), int(pair._2())))
        return dict(pairs)

    def identity(self, spark: SparkSession) -> str:
        """What tells it from another table that was here before."""
        return self.moment(spark)[0]

    def moment(self, spark: SparkSession) -> tuple[str, int]:
        """Its identity and the number of the latest commit."""
        snapshot = self._snapshot(spark)
        return str(snapshot.metadata().id()), int(snapshot.version())

    def size(self, spark: SparkSession) -> int:
        """Bytes of its files."""
        return int(self._snapshot(spark).sizeInBytes())

    def _snapshot(self, spark: SparkSession) -> Any:
        """Delta's own: its public face needs a job to say the same."""
        none = _jvm(spark).scala.Option.empty()
        return self._log(spark).update(False, none, none)

    def _log(self, spark: SparkSession) -> Any:
        return _jvm(spark).org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, self.path)

    def changes(self, spark: SparkSession, after: int, until: int) -> DataFrame:
        """What commits `after` + 1 to `until` changed, as Delta's change data feed tells."""
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        return feed.option("startingVersion", after + 1).option("endingVersion", until).load(self.path)

    # Writing

    def append(self, rows: DataFrame, txn: Txn) -> None:
        self._write(rows, txn).mode("append").save(self.path)

    def add(self, spark: SparkSession, files: Sequence[NewFile], txn: Txn) -> None:
        """Append rows that are in files already: a commit, and no job."""
        self.swap(spark, files, (), txn)

    def swap(self, spark: SparkSession, files: Sequence[NewFile], gone: Sequence[str], txn: Txn) -> int:
        """The rows of new files in place of those of others, by their paths; the number of the commit."""
        jvm, now = _jvm(spark), time.time_ns() // 1_000_000
        plain = {"partitionValues": {}, "modificationTime": now, "dataChange": True}
        said: list[dict[str, Any]] = [
            *({"add": {"path": file.path, "size": file.size, "stats": file.stats, **plain}} for file in files),
            *({"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}} for path in gone),
            {"txn": {"appId": txn.app, "version": txn.version, "lastUpdated": now}},
        ]
        actions = jvm.java.util.ArrayList()
        for each in said:
            actions.add(jvm.org.apache.spark.sql.delta.actions.Action.fromJson(json.dumps(each)))
        none, log = jvm.scala.Option.empty(), self._log(spark)
        by_hand = getattr(jvm, "org.apache.spark.sql.delta.DeltaOperations$ManualUpdate$")
        seq = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        return int(log.startTransaction(none, none).commit(seq, getattr(by_hand, "MODULE$")))

    def replace(self, rows: DataFrame, where: str, txn: Txn) -> None:
        """Put `rows` in the place of all that fulfil `where`."""
        self._write(rows, txn).mode("overwrite").option("replaceWhere", where).save(self.path)

    def overwrite(self, rows: DataFrame, txn: Txn, *, new_schema: bool = False) -> None:
        """Put `rows` in the place of all; readers see the old ones until the new are there. Makes the table of them."""
        options = {"overwriteSchema" if new_schema else "mergeSchema": "true"}
        if not self.exists(rows.sparkSession):
            options |= self._properties()
        self._write(rows, txn).mode("overwrite").options(**options).save(self.path)

    def _write(self, rows: DataFrame, txn: Txn) -> Any:
        return rows.write.format("delta").option("txnAppId", txn.app).option("txnVersion", txn.version)

    def upsert(
        self,
        rows: DataFrame,
        txn: Txn,
        *,
        on: Sequence[str] | None = None,
        update: Mapping[str, str] | None = None,
        update_if: str | None = None,
        insert_if: str | None = None,
        delete_if: str | None = None,
        insert: bool = True,
        among: Column | None = None,
        held: bool = False,
    ) -> None:
        """Merge `rows` (s) into the table (t) by its key: delete, else update, else insert.

        `update` says what becomes of a row that is there; without it the new row takes its place. `among`:
        what is known of the rows of t that `rows` can meet, so that few files need a look. `held`: the driver has the
        rows (see held.py), so that they need not be written down to be read twice.
        """
        spark = rows.sparkSession
        where = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in (on or self.key))
        condition = expr(where) if among is None else expr(where) & among
        merge = self.delta(spark).alias("t").merge(rows.alias("s"), condition)
        if delete_if is not None:
            merge = merge.whenMatchedDelete(delete_if)
            insert_if = f"({insert_if or 'true'}) AND NOT ({delete_if})" if "t." not in delete_if else insert_if
        if update is None:
            columns = {f"`{name}`": f"s.`{name}`" for name in rows.columns if not name.startswith("_")}
        else:
            columns = {f"`{name}`": value for name, value in update.items()}
        if columns:
            merge = merge.whenMatchedUpdate(update_if, set=columns)  # type: ignore[arg-type]
        if insert:
            values = {f"`{name}`": f"s.`{name}`" for name in rows.columns if not name.startswith("_")}
            merge = merge.whenNotMatchedInsert(insert_if, values=values)  # type: ignore[arg-type]
        with _once(spark, txn, held=held):
            merge.execute()

    # Upkeep

    def checkpoint_log(self, spark: SparkSession, after: int) -> None:
        """Write down all that the log says, if so many commits came since somebody did; others may write meanwhile.

        The version at which whoever commits does it is theirs.
        """
        snapshot = self._snapshot(spark)
        version, last = int(snapshot.version()), int(snapshot.checkpointProvider().version())
        if version - last >= after and version % self.spec.checkpoint_every:
            # `checkpoint` would do as well, and keep to itself that it could not.
            self._log(spark).checkpointAndCleanUpDeltaLog(snapshot, _jvm(spark).scala.Option.empty())

    def compact(self, spark: SparkSession) -> None:
        """Few large files in place of many small ones."""
        optimize = self.delta(spark).optimize()
        if self.spec.cluster:
            optimize.executeZOrderBy(*self.spec.cluster)
        else:
            optimize.executeCompaction()

    def vacuum(self, spark: SparkSession, hours: float) -> None:
        """Remove the files that no version of the last `hours` needs; until then what was erased is on disk."""
        self.delta(spark).vacuum(hours)


def _jvm(spark: SparkSession) -> Any:
    if spark._jvm is None:
        raise RuntimeError("Spark has stopped")
    return spark._jvm


@contextmanager
def _once(spark: SparkSession, txn: Txn, *, held: bool) -> Iterator[None]:
    """A merge has no options of its own: it takes its Txn from the session, which is this writer's alone."""
    settings = {_APP: txn.app, _VERSION: str(txn.version), _MATERIALIZE: "none" if held else "auto"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
