"""Decides which verified rows become events: each event once, one event per seq, by the enclave's
sequencer.

Rows of VERIFIED come in. Rejected rows get a `code` and a `reason`; rows that are stored already
are dropped.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import broadcast, coalesce, col, concat, first, lit, row_number, when

FORK, FOREIGN = "FORK", "FOREIGN_SEQUENCER"
ERASED, RETURNED = "ERASED", "RETURNED"
"""Not rejections: a repeated event that still has a content known to be erased, and one that has a
content which a node withheld before.
"""
FOREIGN_STATEMENT = "_statement"
"""Column of the statements that do not count."""


def set_foreign_statements_apart(rows: DataFrame, nodes: DataFrame) -> DataFrame:
    """Move statements of other keys than the log's sequencers from `withheld` to
    FOREIGN_STATEMENT. `nodes`: distinct rows of `enclave, node`.
    """
    known = broadcast(nodes.select(col("enclave").alias("_enclave"), col("node").alias("_node")))
    here = (col("enclave") == col("_enclave")) & (col("withheld.node") == col("_node"))
    joined = rows.join(known, here, "left").withColumn(FOREIGN_STATEMENT, when(col("_node").isNull(), col("withheld")))
    return joined.withColumn("withheld", when(col("_node").isNotNull(), col("withheld"))).drop("_enclave", "_node")


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

    Repeats are dropped, except those that carry an erased or withheld content again. Another event
    with the same seq is a fork and is rejected.
    """
    place = Window.partitionBy("enclave", "seq")
    order = place.orderBy("received_at", "id", "origin")
    good = rows.where(col("code").isNull())
    is_withheld = col("withheld").isNotNull().alias("_withheld")
    there = known.select(
        "enclave", "seq", col("id").alias("_known"), col("content").isNull().alias("_empty"), is_withheld
    )
    ranked = good.join(there, ["enclave", "seq"], "left").withColumn("_first", first("id").over(order))
    ranked = ranked.withColumn("_stands", coalesce("_known", "_first"))
    once = Window.partitionBy("enclave", "seq", "id")
    once = once.orderBy(col("withheld").isNotNull(), "received_at", "origin")
    ranked = ranked.withColumn("_n", row_number().over(once))
    fork = col("id") != col("_stands")
    again = col("_empty") & col("content").isNotNull()
    kept = ranked.where(((col("_n") == 1) & (col("_known").isNull() | again)) | fork)
    reason = concat(lit("seq: another event has this seq in the log: "), col("_stands"))
    code = when(fork, lit(FORK)).when(again & col("_withheld"), lit(RETURNED)).when(again, lit(ERASED))
    marked = kept.withColumn("reason", when(fork, reason)).withColumn("code", code)
    return marked.select(*rows.columns).unionByName(rows.where(col("code").isNotNull()))
