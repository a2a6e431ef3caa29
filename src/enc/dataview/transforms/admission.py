"""Which verified rows become events: each event once, one event a seq, by the enclave's own sequencer.

Rows of VERIFIED come in, and leave with `code` and `reason` where they may not stand, or not at all where they are
there already.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import broadcast, coalesce, col, concat, first, lit, row_number, when

FORK, FOREIGN = "FORK", "FOREIGN_SEQUENCER"
ERASED = "ERASED"
"""No refusal: a repeat with a content that is known to be erased."""


def held_to_sequencers(rows: DataFrame, spans: DataFrame) -> DataFrame:
    """Refuse what another key than the enclave's sequencer finalised; `spans` has `enclave, key, start, end`."""
    right = spans.select(col("enclave").alias("_enclave"), "key", "start", "end")
    here = (col("enclave") == col("_enclave")) & (col("seq") >= col("start"))
    here = here & (col("end").isNull() | (col("seq") < col("end")))
    joined = rows.join(broadcast(right), here, "left")
    foreign = col("code").isNull() & col("key").isNotNull() & (col("key") != col("sequencer"))
    reason = concat(lit("sequencer: "), col("sequencer"), lit(" is not this enclave's here, but "), col("key"))
    return (
        joined.withColumn("reason", when(foreign, reason).otherwise(col("reason")))
        .withColumn("code", when(foreign, lit(FOREIGN)).otherwise(col("code")))
        .select(*rows.columns)
    )


def told_apart(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Of several rows of one place the first that came stands, and what is in `known` (rows of EVENTS) before it.

    A repeat is dropped, but for one that brings an erased content once more; another event in the same place is a fork,
    and refused.
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
    reason = concat(lit("seq: another event stands in this place of the log: "), col("_stands"))
    code = when(fork, lit(FORK)).when(erased, lit(ERASED))
    told = kept.withColumn("reason", when(fork, reason)).withColumn("code", code)
    return told.select(*rows.columns).unionByName(rows.where(col("code").isNotNull()))
