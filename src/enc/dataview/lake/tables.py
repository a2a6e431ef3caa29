"""Tables on Delta Lake with exactly-once writes.

Every write names a Txn: the writer and its batch. Delta stores the pair in the table's log, in the
same commit as the rows, and rejects a pair it has seen. So a process that died anywhere repeats its
whole batch, and nothing is written twice.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from delta.tables import DeltaTable
from msgspec import Struct
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.types import StructType

from enc.core.errors import Unavailable
from enc.dataview.lake.claim import PROPERTY, WriterClaim
from enc.runtime.clock import now_ms

_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_MATERIALIZE = "spark.databricks.delta.merge.materializeSource"

PROPERTIES: Mapping[str, str] = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
}


class Txn(Struct, frozen=True):
    """A write that happens exactly once: the writer, and the number of its batch, which only
    increases.
    """

    app: str
    version: int
    new: bool = False
    """The write is known to be new, so the log need not be searched, which costs a job."""

    def step(self, name: str) -> "Txn":
        """Return the Txn of a further write of the same batch into the same table."""
        return Txn(f"{self.app}/{name}", self.version, self.new)


Layer = Literal["bronze", "silver", "gold", "views", "state"]


class NewFile(Struct, frozen=True):
    """A Parquet file in a table's directory that is not in the table's log yet."""

    path: str
    """Relative to the table's directory."""
    size: int
    stats: str
    """In the form of Delta's log."""


class TableSpec(Struct, frozen=True, kw_only=True):
    """Definition of a table."""

    name: str
    layer: Layer
    schema: StructType
    key: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    """Columns by which compaction sorts rows into files, to speed up selective reads; see
    compaction.py.
    """
    stats: tuple[str, ...] = ()
    """Columns whose minimum and maximum Delta stores for each file, to skip files; by default the
    first 32. Each column costs time to compute.
    """
    checkpoint_every: int = 30
    """At each such version the committing writer waits while Delta writes a checkpoint of the log.
    Where that should be rare, `Table.checkpoint_log` writes them in between. Tables that are
    written together have intervals that rarely coincide, so no batch waits for all of them at
    once.
    """
    large: bool = False
    """The table has large files: deleting a row marks it instead of rewriting the file. For small
    files that is slower.
    """


class Table:
    """One table in its directory."""

    def __init__(self, root: str, spec: TableSpec, claim: WriterClaim | None = None) -> None:
        """`claim`: the claim of the writer, without which nothing is checked."""
        self.spec, self.name, self.key, self._claim = spec, spec.name, spec.key, claim or WriterClaim()
        self.path = f"{root.rstrip('/')}/{spec.layer}/{spec.name}"

    def exists(self, spark: SparkSession) -> bool:
        return bool(_java(spark).delta_table.isDeltaTable(spark._jsparkSession, self.path))

    def create(self, spark: SparkSession) -> None:
        """Create the table if it does not exist, and add missing columns."""
        if not self.exists(spark):
            builder = DeltaTable.createIfNotExists(spark).location(self.path).addColumns(self.spec.schema)
            for name, value in self._properties().items():
                builder = builder.property(name, value)
            builder.execute()
            return
        columns = set(self._snapshot(spark).schema().fieldNames())
        missing = [field for field in self.spec.schema if field.name not in columns]
        if missing:
            nothing = spark.createDataFrame([], StructType(missing))
            nothing.write.format("delta").mode("append").option("mergeSchema", "true").save(self.path)

    def _properties(self) -> Mapping[str, str]:
        stats = {"delta.dataSkippingStatsColumns": ",".join(self.spec.stats)} if self.spec.stats else {}
        marks = {"delta.enableDeletionVectors": "true"} if self.spec.large else {}
        return {**PROPERTIES, "delta.checkpointInterval": str(self.spec.checkpoint_every), **stats, **marks}

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.path)

    def read_version(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the table as of a version."""
        return spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def delta(self, spark: SparkSession) -> DeltaTable:
        """Return Delta's object for changing the table."""
        self.check_claim(spark)
        return DeltaTable(spark, _java(spark).delta_table.forPath(spark._jsparkSession, self.path))

    def version(self, spark: SparkSession) -> int:
        """Return the number of the latest commit."""
        return int(self._snapshot(spark).version())

    def is_written(self, spark: SparkSession, txn: Txn) -> bool:
        """Return True if this write has happened already."""
        if txn.new:
            return False
        found = self._snapshot(spark).transactions().get(txn.app)
        return bool(found.isDefined() and int(found.get()) >= txn.version)

    def transactions(self, spark: SparkSession) -> dict[str, int]:
        """Return the last version of every writer. Costs a job, unless the log was just read."""
        found = self._snapshot(spark).transactions().iterator()
        pairs = []
        while found.hasNext():
            pair = found.next()
            pairs.append((str(pair._1()), int(pair._2())))
        return dict(pairs)

    def identity(self, spark: SparkSession) -> str:
        """Return an id that distinguishes this table from an earlier one at the same path."""
        return self.snapshot_id(spark)[0]

    def snapshot_id(self, spark: SparkSession) -> tuple[str, int]:
        """Return the table's identity and the number of its latest commit."""
        snapshot = self._snapshot(spark)
        return str(snapshot.metadata().id()), int(snapshot.version())

    def size(self, spark: SparkSession) -> int:
        """Return the total size of its files in bytes."""
        return int(self._snapshot(spark).sizeInBytes())

    def files(self, spark: SparkSession) -> DataFrame:
        """Return its files, as rows of Delta's log: path, size, tags, deletionVector."""
        return DataFrame(self._snapshot(spark).allFiles().toDF(), spark)

    def _snapshot(self, spark: SparkSession) -> Any:
        """Return Delta's internal snapshot: the public API needs a job for the same."""
        none = _java(spark).none
        return self._log(spark).update(False, none, none)

    def _log(self, spark: SparkSession) -> Any:
        return _java(spark).delta_log.forTable(spark._jsparkSession, self.path)

    def changes(self, spark: SparkSession, after: int, until: int) -> DataFrame:
        """Return the changes of commits `after` + 1 to `until` from Delta's change data feed."""
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        return feed.option("startingVersion", after + 1).option("endingVersion", until).load(self.path)

    # Writing

    def append(self, rows: DataFrame, txn: Txn) -> None:
        self._write(rows, txn).mode("append").save(self.path)

    def add(self, spark: SparkSession, files: Sequence[NewFile], txn: Txn) -> None:
        """Append rows that are in files already: a commit without a job."""
        self.swap_files(spark, files, (), txn)

    def swap_files(self, spark: SparkSession, files: Sequence[NewFile], gone: Sequence[str], txn: Txn) -> int:
        """Replace files, by path, by new files. Returns the number of the commit."""
        self.check_claim(spark)
        now, transaction = now_ms(), self._transaction(spark)
        if not txn.new and int(transaction.txnVersion(txn.app)) >= txn.version:
            raise Unavailable(f"{self.path}: batch {txn.version} was written meanwhile, by another process")
        plain = {"partitionValues": {}, "modificationTime": now, "dataChange": True}
        said: list[dict[str, Any]] = [
            *({"add": {"path": file.path, "size": file.size, "stats": file.stats, **plain}} for file in files),
            *({"remove": {"path": path, "deletionTimestamp": now, "dataChange": True}} for path in gone),
            {"txn": {"appId": txn.app, "version": txn.version, "lastUpdated": now}},
        ]
        return self._commit(spark, transaction, said)

    def _transaction(self, spark: SparkSession) -> Any:
        none = _java(spark).none
        return self._log(spark).startTransaction(none, none)

    def _commit(self, spark: SparkSession, transaction: Any, said: Sequence[Mapping[str, Any]]) -> int:
        """Commit actions in the form of Delta's log; return the number of the commit."""
        java = _java(spark)
        actions = java.array_list()
        for each in said:
            actions.add(java.action.fromJson(json.dumps(each)))
        return int(transaction.commit(java.converters.asScala(actions).toSeq(), java.manual_update))

    def claim(self, spark: SparkSession) -> None:
        """Store the writer's claim in the metadata: Delta rejects all commits that others are preparing."""
        transaction = self._transaction(spark)
        metadata = json.loads(transaction.metadata().json())
        metadata["metaData"]["configuration"][PROPERTY] = self._claim.text
        self._commit(spark, transaction, [metadata])
        self._claim.add(self.path)

    def check_claim(self, spark: SparkSession) -> None:
        """Raise MisuseError if another writer has taken over the lake."""
        if self._claim.text:
            snapshot = self._snapshot(spark)
            found = snapshot.metadata().configuration().get(PROPERTY)
            if self._claim.is_needed(self.path, found.get() if found.isDefined() else None) and snapshot.version() >= 0:
                self.claim(spark)

    def replace(self, rows: DataFrame, where: str, txn: Txn) -> None:
        """Replace all rows that satisfy `where` by `rows`."""
        self._write(rows, txn).mode("overwrite").option("replaceWhere", where).save(self.path)

    def overwrite(self, rows: DataFrame, txn: Txn, *, new_schema: bool = False) -> None:
        """Replace all rows, creating the table if needed. Readers see the old rows until the new
        are committed.
        """
        options = {"overwriteSchema" if new_schema else "mergeSchema": "true"}
        if not self.exists(rows.sparkSession):
            options |= self._properties()
        self._write(rows, txn).mode("overwrite").options(**options).save(self.path)

    def _write(self, rows: DataFrame, txn: Txn) -> Any:
        self.check_claim(rows.sparkSession)
        return rows.write.format("delta").option("txnAppId", txn.app).option("txnVersion", txn.version)

    def upsert(
        self,
        rows: DataFrame,
        txn: Txn,
        *,
        on: Sequence[str] | None = None,
        update: Mapping[str, str] | None = None,
        update_if: str | None = None,
        delete_if: str | None = None,
        insert: bool = True,
        among: Column | None = None,
        on_driver: bool = False,
    ) -> None:
        """Merge `rows` (s) into the table (t) by its key: delete, else update, else insert.

        `delete_if` is a condition on s: such rows are deleted if they exist, and never inserted.

        `update`: expressions for a matched row; by default the new row replaces it. `among`: a
        condition on the rows of t that `rows` can match, so that few files are read. `on_driver`:
        the driver holds the rows (see `driver_rows`), so they need not be materialized to be read
        twice.
        """
        spark = rows.sparkSession
        where = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in (on or self.key))
        condition = expr(where) if among is None else expr(where) & among
        merge = self.delta(spark).alias("t").merge(rows.alias("s"), condition)
        if delete_if is not None:
            merge = merge.whenMatchedDelete(delete_if)
        if update is None:
            columns = {f"`{name}`": f"s.`{name}`" for name in rows.columns if not name.startswith("_")}
        else:
            columns = {f"`{name}`": value for name, value in update.items()}
        if columns:
            merge = merge.whenMatchedUpdate(update_if, set=columns)  # type: ignore[arg-type]
        if insert:
            values = {f"`{name}`": f"s.`{name}`" for name in rows.columns if not name.startswith("_")}
            insert_if = f"NOT ({delete_if})" if delete_if is not None else None
            merge = merge.whenNotMatchedInsert(insert_if, values=values)  # type: ignore[arg-type]
        with _once(spark, txn, on_driver=on_driver):
            merge.execute()

    # Upkeep

    def checkpoint_log(self, spark: SparkSession, after: int) -> None:
        """Write a checkpoint of the log if `after` commits were made since the last one.

        Other writers may commit meanwhile. The versions at which a committing writer does it itself
        are left to it.
        """
        snapshot = self._snapshot(spark)
        version, last = int(snapshot.version()), int(snapshot.checkpointProvider().version())
        if version - last >= after and version % self.spec.checkpoint_every:
            # `checkpoint` would do the same, but hides its failures.
            self._log(spark).checkpointAndCleanUpDeltaLog(snapshot, _java(spark).none)

    def vacuum(self, spark: SparkSession, hours: float) -> None:
        """Delete files that no version of the last `hours` needs; until then, erased contents are
        on disk.
        """
        self.delta(spark).vacuum(hours)


class _Java(NamedTuple):
    """Java's classes and values that tables use."""

    delta_table: Any
    delta_log: Any
    action: Any
    manual_update: Any
    array_list: Any
    converters: Any
    none: Any


def _java(spark: SparkSession) -> _Java:
    if spark._jvm is None:
        raise RuntimeError("the Spark session has stopped")
    return _look_up(spark._jvm)


@lru_cache(maxsize=1)
def _look_up(jvm: Any) -> _Java:
    """Look the names up once: Java searches all its jars for every part of a dotted name."""
    delta = jvm.org.apache.spark.sql.delta
    manual_update = getattr(jvm, "org.apache.spark.sql.delta.DeltaOperations$ManualUpdate$")
    return _Java(
        delta_table=jvm.io.delta.tables.DeltaTable,
        delta_log=delta.DeltaLog,
        action=delta.actions.Action,
        manual_update=getattr(manual_update, "MODULE$"),
        array_list=jvm.java.util.ArrayList,
        converters=jvm.scala.jdk.javaapi.CollectionConverters,
        none=jvm.scala.Option.empty(),
    )


@contextmanager
def _once(spark: SparkSession, txn: Txn, *, on_driver: bool) -> Iterator[None]:
    """Set the Txn of a merge. A merge takes it from the session, which only this writer uses."""
    settings = {_APP: txn.app, _VERSION: str(txn.version), _MATERIALIZE: "none" if on_driver else "auto"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
