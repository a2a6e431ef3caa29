"""Withheld contents: what later batches show about them (docs/protocol.md, section 6.5).

A statement counts if a sequencer of the log signed it. A log that has moved may bring a statement
of its later node before the Migrate that names this node: until then, `statements` keeps it. And a
node may show a content again: then `events` has it at once, and `content_status` follows here.

Every step may be repeated: if a process dies, the next upkeep continues.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, explode

from enc.dataview.lake.lake import Lake
from enc.dataview.lake.tables import Table

_PLACE = ["enclave", "seq", "id"]
_IS_CURRENT = "t.enclave = s.enclave AND coalesce(t.revision, t.id) = s.id"
"""Whether the event s has the current content of the row t of `content_status`."""


def count_statements(spark: SparkSession, lake: Lake) -> bool:
    """Write the kept statements whose keys are known as sequencers by now to `events` and
    `content_status`. Returns whether there were any.
    """
    kept = lake["statements"].read(spark)
    if kept.isEmpty():
        return False
    histories = lake["heads"].read(spark).select("enclave", explode("sequencers.sequencer").alias("_node"))
    folded = lake["fold"].read(spark).select("enclave", "next_seq")
    rows = kept.withColumn("_node", col("withheld.node")).join(histories, ["enclave", "_node"], "left_semi")
    # Derived tables that are behind would overwrite it: such a statement waits.
    rows = rows.join(folded, "enclave").where(col("seq") < col("next_seq")).select(*_PLACE, "withheld")
    rows = rows.dropDuplicates(_PLACE).localCheckpoint()
    if rows.isEmpty():
        return False
    shown = rows.join(lake["erasures"].read(spark), _PLACE, "left_anti")
    is_empty, said = "t.content IS NULL", {"withheld": "s.withheld"}
    _update(lake["content_status"], shown, _IS_CURRENT, f"{is_empty} AND t.status <> 'deleted'", said)
    is_same = " AND ".join(f"t.{name} = s.{name}" for name in _PLACE)
    _update(lake["events"], shown, is_same, is_empty, said)
    lake["statements"].delta(spark).alias("t").merge(rows.alias("s"), is_same).whenMatchedDelete().execute()
    return True


def show_returned(spark: SparkSession, lake: Lake) -> bool:
    """Write contents that are no longer withheld to `content_status`. Returns whether there were
    any.
    """
    current = (coalesce("revised_seq", "seq").alias("seq"), coalesce("revision", "id").alias("id"))
    held = lake["content_status"].read(spark).where(col("withheld").isNotNull()).select("enclave", *current)
    if held.isEmpty():
        return False
    events = lake["events"].read(spark).where(col("content").isNotNull())
    back = events.join(held, _PLACE, "left_semi").select("enclave", "id", "content").localCheckpoint()
    if back.isEmpty():
        return False
    said = {"content": "s.content", "withheld": "NULL"}
    _update(lake["content_status"], back, _IS_CURRENT, "t.withheld IS NOT NULL", said)
    return True


def _update(table: Table, rows: DataFrame, match: str, where: str, said: Mapping[str, str]) -> None:
    merge = table.delta(rows.sparkSession).alias("t").merge(rows.alias("s"), match)
    merge.whenMatchedUpdate(where, set=dict(said)).execute()
