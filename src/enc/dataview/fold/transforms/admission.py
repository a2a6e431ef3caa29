"""Decides which verified rows become events: each event once, one event per seq, by the enclave's
sequencer.

Rows of VERIFIED come in. Rejected rows get a `code` and a `reason`; rows that are stored already
are dropped.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import broadcast, coalesce, col, concat, first, lit, row_number, when

FORK, FOREIGN = "FORK", "FOREIGN_SEQUENCER"
ERASED = "ERASED"
"""Not a rejection: a repeated event that still has a content known to be erased."""


def reject_foreign_sequencers(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """Reject rows finalised by another key than the enclave's sequencer. `spans`: `enclave, key,
    start, end`.
    """
    right = spans.select(col("enclave").alias("_enclave"), "key", "start", "end")
    here = (col("enclave") == col("_enclave")) & (col("seq") >= col("start"))
    here = here & (col("end").isNull() | (col("seq") < col("end")))
    joined = rows.join(broadcast(right), here, "left")
    foreign = col("code").isNull() & col("key").isNotNull() & (col("key") != col("sequencer"))
    reason = concat(
        lit("sequencer: "), col("sequencer"), lit(" is not this enclave's sequencer here; expected "), col("key")
    )
    return (
        joined.withColumn("reason", when(foreign, reason).otherwise(col("reason")))
        .withColumn("code", when(foreign, lit(FOREIGN)).otherwise(col("code")))
        .select(*rows.columns)
    )


def deduplicate(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Keep one event per seq: the one in `known` (rows of EVENTS), else the first that arrived.

    Repeats are dropped, except those that carry an erased content again. Another event with the
    same seq is a fork and is rejected.
    """
    place = Window.partitionBy("enclave", "seq")
    order = place.orderBy("received_at", "id", "origin")
    good = rows.where(col("code").isNull())
    there = known.select("enclave", "seq", col("id").alias("_known"), col("content").isNull().alias("_erased"))
    ranked = good.join(there, ["enclave", "seq"], "left").withColumn("_first", first("id").over(order))
    ranked = ranked.withColumn("_stands", coalesce("_known", "_first"))
    once = Window.partitionBy("enclave", "seq", "id").orderBy("received_at", "origin")
    ranked = ranked.withColumn("_n", row_number().over(once))
    fork = col("id") != col("_stands")
    erased = col("_erased") & col("content").isNotNull()
    kept = ranked.where(((col("_n") == 1) & (col("_known").isNull() | erased)) | fork)
    reason = concat(lit("seq: another event has this seq in the log: "), col("_stands"))
    code = when(fork, lit(FORK)).when(erased, lit(ERASED))
    marked = kept.withColumn("reason", when(fork, reason)).withColumn("code", code)
    return marked.select(*rows.columns).unionByName(rows.where(col("code").isNotNull()))
