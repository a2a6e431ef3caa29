"""Schemas of incoming rows, for Spark and for Arrow.

RAW          an event as received, with its origin and time; every source yields these
EVENTS       a verified event, typed; enough to rebuild its wire form
QUARANTINE   a rejected row, and why
VERIFIED     output of verification: EVENTS' columns, the raw event and the reason of a rejection;
             see `verify`
"""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TEXT, NUMBER, SMALL, TIME = StringType(), LongType(), IntegerType(), TimestampType()
TAGS = ArrayType(ArrayType(TEXT))


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_, True) for name, type_ in columns.items()])


WITHHELD = _struct(reason=TEXT, ts=NUMBER, node=TEXT, sig=TEXT)
"""A node's signed statement that it withholds a content, as in the event's JSON; `ts` is in
milliseconds.
"""

RAW = _struct(
    enclave=TEXT,
    seq=NUMBER,
    id=TEXT,
    type=TEXT,
    author=TEXT,
    timestamp=NUMBER,
    event=TEXT,
    origin=TEXT,
    received_at=TIME,
    enc_v=SMALL,
)
"""`author` is the event's `from`, `timestamp` is in milliseconds, `event` is the wire's JSON as
received.

Rows that cannot be parsed have only `event`, `origin`, `received_at`, and `enclave` if it is known.
"""

_EVENT: dict[str, DataType] = {
    "enclave": TEXT,
    "seq": NUMBER,
    "id": TEXT,
    "type": TEXT,
    "author": TEXT,
    "timestamp": TIME,
    "exp": NUMBER,
    "content": TEXT,
    "content_hash": TEXT,
    "tags": TAGS,
    "hash": TEXT,
    "alg": TEXT,
    "sig": TEXT,
    "sequencer": TEXT,
    "seq_sig": TEXT,
    "enc_v": SMALL,
    "origin": TEXT,
    "received_at": TIME,
    "withheld": WITHHELD,
}

VERIFIED = _struct(**_EVENT, event=TEXT, code=TEXT, reason=TEXT)
"""`code` is null in a verified row; in the others, `enclave`, `seq` and `id` are unverified.
`withheld` is a statement that some key signed: whether it counts depends on the log.
"""

EVENTS = _struct(**_EVENT)
"""`withheld` is a statement that a sequencer of the log signed; null without one."""
QUARANTINE = _struct(
    enclave=TEXT,
    seq=NUMBER,
    id=TEXT,
    origin=TEXT,
    received_at=TIME,
    event=TEXT,
    reason=TEXT,
    code=TEXT,
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of batches that Spark accepts as rows of `schema`."""
    return to_arrow_schema(schema, timezone="UTC")
