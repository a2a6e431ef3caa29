"""Upkeep: erase contents everywhere, compact small files, and remove old data.

1. settle    shows contents that are no longer withheld in `content_status`, and statements about
             withheld contents whose key has become known as a sequencer (withheld.py)
2. expire    removes contents whose `auto-delete` time has passed from `content_status`, and so from
             the views that use it
3. erase     removes contents that an Update, a Delete or their time erased from `events` and
             `raw_events`
4. retain    deletes raw and quarantined rows older than their retention
5. purge     with vacuum only: rewrites the files that still hold deleted rows
6. compact   merges the files of tables that have many small ones
7. vacuum    deletes files that no version younger than `vacuum_hours` needs: only this removes
             erased contents from the disk

Steps 1 to 4 change rows; the views must follow them before steps 5 to 7 clean the disk.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from enc.core.errors import MisuseError
from enc.dataview.fold.transforms.wire import wire
from enc.dataview.lake.compaction import compact, purge
from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Table, Txn
from enc.dataview.pipeline.batch_context import txn_app_id
from enc.dataview.pipeline.withheld import count_statements, show_returned
from enc.dataview.publish.changes import ChangePublisher


class LakeRetention(Struct, frozen=True, kw_only=True):
    """How long data is retained. None means forever."""

    raw_days: float | None = None
    quarantine_days: float | None = None
    vacuum_hours: float = 168.0
    """Must exceed the duration of the slowest read of a table, and any pause of a stream."""
    small_files: int = 16
    """A tier with more files than this is compacted (compaction.py)."""

    def check(self) -> None:
        if self.vacuum_hours < 0 or self.small_files < 1:
            raise MisuseError("vacuum_hours: expected at least 0; small_files: expected at least 1")


class Upkeep:
    def __init__(
        self, lake: Lake, retention: LakeRetention | None = None, publisher: ChangePublisher | None = None
    ) -> None:
        self.lake, self.retention, self.publisher = lake, retention or LakeRetention(), publisher
        self.retention.check()

    def remove_rows(self, spark: SparkSession, now: datetime) -> None:
        """Settle, expire, erase and retain. No other writer may run meanwhile."""
        self.settle(spark)
        self.expire(spark, now)
        self.erase(spark)
        self.retain(spark, now)

    def clean_files(self, spark: SparkSession, view_tables: Iterable[Table] = (), *, vacuum: bool = True) -> None:
        """Compact all tables and, with `vacuum`, remove what was erased from the disk. No other writer
        may run meanwhile.
        """
        for table in [*(self.lake[name] for name in self.lake.names), *view_tables]:
            self.compact_and_vacuum(spark, table, vacuum=vacuum)
        if vacuum and self.publisher is not None:
            self.publisher.vacuum()

    def compact_and_vacuum(self, spark: SparkSession, table: Table, *, vacuum: bool = True) -> None:
        if vacuum:
            purge(spark, table)
        compact(spark, table, self.retention.small_files)
        if vacuum:
            table.vacuum(spark, self.retention.vacuum_hours)

    def settle(self, spark: SparkSession) -> None:
        """Let the tables follow what has become known about withheld contents."""
        if count_statements(spark, self.lake):
            self._publish(spark, "content_status", "events")
        if show_returned(spark, self.lake):
            self._publish(spark, "content_status")

    def expire(self, spark: SparkSession, now: datetime) -> None:
        """Remove expired contents. The erasures are recorded first, so a run that dies later
        repeats them.
        """
        contents, erasures = self.lake["content_status"], self.lake["erasures"]
        due = (col("expires_at") <= lit(now)) & col("content").isNotNull()
        gone = contents.read(spark).where(due)
        if gone.isEmpty():
            return
        own = gone.select("enclave", "seq", "id")
        updates = gone.where(col("revision").isNotNull())
        updates = updates.select("enclave", col("revised_seq").alias("seq"), col("revision").alias("id"))
        rows = own.unionByName(updates)
        erasures.check_claim(spark)
        rows.write.format("delta").mode("append").save(erasures.path)
        contents.delta(spark).update(due, {"content": lit(None).cast("string")})
        self._publish(spark, "content_status")

    def erase(self, spark: SparkSession) -> None:
        """Erase the recorded contents from `events` and `raw_events`, each exactly once."""
        checkpoint = self.lake.checkpoint("erase")
        stream = spark.readStream.format("delta").load(self.lake["erasures"].path)

        def body(batch: DataFrame, batch_id: int) -> None:
            own = batch.sparkSession
            self.erase_batch(batch, Txn(txn_app_id(own, checkpoint, "erase"), batch_id))

        query = stream.writeStream.foreachBatch(body).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    def erase_batch(self, batch: DataFrame, txn: Txn) -> None:
        """Erase one batch. `raw_events` comes first: its replacement is computed from `events`."""
        spark, events = batch.sparkSession, self.lake["events"]
        named = batch.select("enclave", "seq", "id").distinct().persist()
        try:
            there = events.read(spark).join(named, ["enclave", "seq", "id"], "left_semi")
            rows = there.select("enclave", "seq", "id", wire(erased=True).alias("event"))
            key = ("enclave", "seq", "id")
            self.lake["raw_events"].upsert(rows, txn, on=key, update={"event": "s.event"}, insert=False)
            left, nothing = "t.content IS NOT NULL OR t.withheld IS NOT NULL", {"content": "NULL", "withheld": "NULL"}
            events.upsert(named, txn, on=key, update=nothing, update_if=left, insert=False)
        finally:
            named.unpersist()
        self._publish(spark, "events")

    def retain(self, spark: SparkSession, now: datetime) -> None:
        for name, days in (("raw_events", self.retention.raw_days), ("quarantine", self.retention.quarantine_days)):
            if days is not None:
                self.lake[name].delta(spark).delete(col("received_at") < lit(now - timedelta(days=days)))

    def _publish(self, spark: SparkSession, *names: str) -> None:
        if self.publisher is not None:
            for name in names:
                self.publisher.push(spark, self.lake[name], {})
