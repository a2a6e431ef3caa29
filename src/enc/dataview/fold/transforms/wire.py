"""The wire JSON of an event's row."""

from pyspark.sql import Column
from pyspark.sql.functions import col, lit, struct, to_json, unix_millis

_WIRE = "hash enclave type exp tags alg sig id sequencer seq seq_sig content_hash".split()


def wire(*, erased: bool = False) -> Column:
    """Return the JSON of a row of `events`; `erased`: in the form of an event whose content is
    erased.
    """
    content = [lit(None).cast("string").alias("content")] if erased else [col("content"), col("withheld")]
    parts = [*(col(name) for name in _WIRE), col("author").alias("from"), *content]
    return to_json(struct(*parts, unix_millis("timestamp").alias("timestamp")), {"ignoreNullFields": "false"})
