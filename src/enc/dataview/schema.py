"""What rows look like on their way in, for Spark and for Arrow alike.

RAW          what every source yields: an event as it came, with where and when
EVENTS       an event that proved itself, typed; enough to spell it as the wire does
QUARANTINE   what did not, and why
VERIFIED     what verification yields: EVENTS' columns, the raw event and why it is refused; see `verify`
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
"""`author` is the event's `from`, `timestamp` is in milliseconds, `event` is the wire's JSON as it came.

What cannot be parsed has nulls but in `event`, `origin`, `received_at`, and in `enclave` where that is known.
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
}

VERIFIED = _struct(**_EVENT, event=TEXT, code=TEXT, reason=TEXT)
"""`code` is null in a row that proved itself; of the others `enclave`, `seq` and `id` are the source's word."""

EVENTS = _struct(**_EVENT)
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


def arrow(schema: StructType) -> pa.Schema:
    """The Arrow schema whose batches Spark takes for rows of `schema`."""
    return to_arrow_schema(schema, timezone="UTC")
