"""Upkeep: contents that must go are erased everywhere, small files become few large ones, old things are removed.

1. expire    contents whose `auto-delete` time has passed go from `content_status`, and so from views that rest on it
2. erase     what was taken away (by an Update, a Delete or its time) goes from `events` and `raw_events`
3. retain    raw rows and quarantined ones older than their retention go
4. compact   tables of many small files
5. vacuum    files that no version younger than `vacuum_hours` needs: only now is what was erased off the disk
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from enc.core.errors import MisuseError
from enc.dataview.lake import Lake
from enc.dataview.pipeline import app_of
from enc.dataview.publishing import Publishing
from enc.dataview.tables import Table, Txn
from enc.dataview.transforms.wire import wire


class Keeping(Struct, frozen=True, kw_only=True):
    """How long things are kept. None: for good."""

    raw_days: float | None = None
    quarantine_days: float | None = None
    vacuum_hours: float = 168.0
    """At least as long as the slowest reader of a table, and any stream that stands still."""
    small_files: int = 16
    """A table of more files than this is compacted."""

    def check(self) -> None:
        if self.vacuum_hours < 0 or self.small_files < 1:
            raise MisuseError("vacuum_hours, small_files: expected numbers that are not negative")


class Upkeep:
    def __init__(self, lake: Lake, keeping: Keeping | None = None, publishing: Publishing | None = None) -> None:
        self.lake, self.keeping, self.publishing = lake, keeping or Keeping(), publishing
        self.keeping.check()

    def run(self, spark: SparkSession, now: datetime, more: Iterable[Table] = (), *, vacuum: bool = True) -> None:
        """All of it. `more`: the tables of views. Nobody else may write meanwhile."""
        self.expire(spark, now)
        self.erase(spark)
        self.retain(spark, now)
        for table in [*(self.lake[name] for name in self.lake.names), *more]:
            self.tidy(spark, table, vacuum=vacuum)

    def tidy(self, spark: SparkSession, table: Table, *, vacuum: bool = True) -> None:
        if self._files(spark, table) > self.keeping.small_files:
            table.compact(spark)
        if vacuum:
            table.vacuum(spark, self.keeping.vacuum_hours)

    def _files(self, spark: SparkSession, table: Table) -> int:
        row = table.delta(spark).detail().select("numFiles").first()
        return int(row[0]) if row else 0

    def expire(self, spark: SparkSession, now: datetime) -> None:
        """First it is noted what goes: whoever dies after that begins again with the same."""
        contents = self.lake["content_status"]
        due = (col("expires_at") <= lit(now)) & col("content").isNotNull()
        gone = contents.read(spark).where(due)
        if gone.isEmpty():
            return
        own = gone.select("enclave", "seq", "id")
        updates = gone.where(col("revision").isNotNull())
        updates = updates.select("enclave", col("revised_seq").alias("seq"), col("revision").alias("id"))
        rows = own.unionByName(updates)
        rows.write.format("delta").mode("append").save(self.lake["erasures"].path)
        contents.delta(spark).update(due, {"content": lit(None).cast("string")})
        self._publish(spark, "content_status")

    def erase(self, spark: SparkSession) -> None:
        """Take what was noted out of `events` and `raw_events`, each note once."""
        checkpoint = self.lake.checkpoint("erase")
        stream = spark.readStream.format("delta").load(self.lake["erasures"].path)

        def body(batch: DataFrame, batch_id: int) -> None:
            own = batch.sparkSession
            self.erase_batch(batch, Txn(app_of(own, checkpoint, "erase"), batch_id))

        query = stream.writeStream.foreachBatch(body).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    def erase_batch(self, batch: DataFrame, txn: Txn) -> None:
        """`raw_events` first: what it is to hold instead is made from `events`."""
        spark, events = batch.sparkSession, self.lake["events"]
        named = batch.select("enclave", "seq", "id").distinct().persist()
        try:
            there = events.read(spark).join(named, ["enclave", "seq", "id"], "left_semi")
            rows = there.select("enclave", "seq", "id", wire(erased=True).alias("event"))
            how = {"on": ("enclave", "seq", "id"), "insert": False}
            self.lake["raw_events"].upsert(rows, txn, update={"event": "s.event"}, **how)  # type: ignore[arg-type]
            left = "t.content IS NOT NULL"
            events.upsert(named, txn, update={"content": "NULL"}, update_if=left, **how)  # type: ignore[arg-type]
        finally:
            named.unpersist()
        self._publish(spark, "events")

    def retain(self, spark: SparkSession, now: datetime) -> None:
        for name, days in (("raw_events", self.keeping.raw_days), ("quarantine", self.keeping.quarantine_days)):
            if days is not None:
                self.lake[name].delta(spark).delete(col("received_at") < lit(now - timedelta(days=days)))

    def _publish(self, spark: SparkSession, *names: str) -> None:
        if self.publishing is not None:
            for name in names:
                self.publishing.push(spark, self.lake[name], {})
