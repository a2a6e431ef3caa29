"""Both folds over the events of enclaves, on the driver for a few events and on executors for many.

Rows come in by enclave and seq: before an enclave's events come what is known of it, without a seq. Rows go out as
JSON, each with the name of its table.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, from_json, lit, struct, timestamp_millis, to_json, unix_millis
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from enc.core.types import Event
from enc.dataview.contents import Contents, Row
from enc.dataview.fold import CONTROL, State, fold
from enc.dataview.lake import CONTENT_STATUS
from enc.dataview.schema import QUARANTINE, TEXT

MADE = StructType([StructField(name, TEXT) for name in ("table", "enclave", "data")])
_ARROW = pa.schema([(name, pa.string()) for name in MADE.fieldNames()])
_COLUMNS = (
    "enclave seq id type author timestamp exp content content_hash tags hash alg sig sequencer seq_sig enc_v"
).split()
KNOWN = StructType([StructField(name, TEXT) for name in ("enclave", "kind", "data")])
"""What is known of an enclave: `state`, a _Known in JSON; or `content`, a row of `content_status`, in JSON."""
REFUSED = StructType([field for field in QUARANTINE if field.name in ("enclave", "seq", "id", "code", "reason")])
_BATCH = 1000

Made = tuple[str, str, str]


class Known(msgspec.Struct):
    """`state` as the fold wrote it. `complete`: no event of the enclave is missing."""

    complete: bool = False
    state: str | None = None


def fold_few(events: pa.Table, known: Iterable[Any]) -> list[Made]:
    """Rows of `events` with the driver, and rows of KNOWN."""
    rows = [row.asDict() | {"seq": -1} for row in known] + events.select(_COLUMNS).to_pylist()
    return list(_folded(sorted(rows, key=itemgetter("enclave", "seq"))))


def fold_many(events: DataFrame, known: DataFrame) -> DataFrame:
    """The same on executors: rows of MADE."""
    first = known.select("*", lit(-1).cast("bigint").alias("seq"))
    rows = events.select(*_COLUMNS).unionByName(first, allowMissingColumns=True)
    return rows.repartition("enclave").sortWithinPartitions("enclave", "seq").mapInArrow(_fold_batches, MADE)


def _fold_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    made: list[Made] = []
    for row in _folded(row for batch in batches for row in batch.to_pylist()):
        made.append(row)
        if len(made) == _BATCH:
            yield _packed(made)
            made = []
    yield _packed(made)


def _packed(made: list[Made]) -> pa.RecordBatch:
    columns = list(zip(*made, strict=True)) or [()] * 3
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=_ARROW)


def _folded(rows: Iterable[Row]) -> Iterator[Made]:
    for enclave, group in groupby(rows, itemgetter("enclave")):
        for table, row in _fold_enclave(group):
            yield table, enclave, msgspec.json.encode(row).decode()


def _fold_enclave(rows: Iterable[Row]) -> Iterator[tuple[str, Any]]:
    known, contents, control, others = Known(), dict[str, Row](), list[Event](), list[Row]()
    enc_v = None
    for row in rows:
        if row.get("kind") == "state":
            known = msgspec.json.decode(row["data"], type=Known)
        elif row.get("kind") == "content":
            found = _NOTHING | msgspec.json.decode(row["data"])
            contents[found["id"]] = found
        else:
            row["timestamp"] = _millis(row["timestamp"])
            enc_v = row["enc_v"]
            is_control = row["type"] in CONTROL[1 if enc_v == 1 else 2]
            control.append(_event(row)) if is_control else others.append(row)
    state = State() if known.state is None else msgspec.json.decode(known.state, type=State)
    if control:
        folded = fold(state, control, enc_v, complete=known.complete)
        yield "fold", state
        yield "enclaves", folded.enclave
        yield from (("access", row) for row in folded.access.values())
        yield from (("slots", row) for row in folded.slots.values())
        yield from (("quarantine", row) for row in folded.refused)
    said = Contents(contents, registry=state.registry)
    for row in others:
        said.take(row)
    yield from (("content_status", row) for row in said.changed.values())
    yield from (("erasures", row) for row in said.erased.values())


_NOTHING: Row = dict.fromkeys(CONTENT_STATUS.fieldNames())


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _event(row: Row) -> Event:
    """The event of a row of `events`."""
    return Event(
        hash=bytes.fromhex(row["hash"]),
        enclave=bytes.fromhex(row["enclave"]),
        from_=bytes.fromhex(row["author"]),
        type=row["type"],
        content=row["content"],
        content_hash=bytes.fromhex(row["content_hash"]),
        exp=row["exp"],
        tags=tuple(tuple(tag) for tag in row["tags"] or ()),
        alg=row["alg"],
        sig=bytes.fromhex(row["sig"]),
        id=bytes.fromhex(row["id"]),
        timestamp=row["timestamp"],
        sequencer=bytes.fromhex(row["sequencer"]),
        seq=row["seq"],
        seq_sig=bytes.fromhex(row["seq_sig"]),
    )


# As rows of tables, and back


def typed(made: DataFrame, schema: StructType) -> DataFrame:
    """Rows of MADE, all of one table, with the table's columns. The folds count time in milliseconds."""
    fields = [field for field in schema if field.name != "enclave"]
    wire = StructType([StructField(f.name, LongType() if _is_time(f) else f.dataType) for f in fields])
    read = made.select("enclave", from_json("data", wire).alias("row"))
    columns = {f.name: timestamp_millis(f"row.{f.name}") if _is_time(f) else col(f"row.{f.name}") for f in fields}
    return read.select(*(columns.get(name, col("enclave")).alias(name) for name in schema.fieldNames()))


def told(contents: DataFrame) -> DataFrame:
    """Rows of `content_status` as rows of KNOWN."""
    fields = [f for f in CONTENT_STATUS if f.name != "enclave"]
    columns = [unix_millis(f.name).alias(f.name) if _is_time(f) else col(f.name) for f in fields]
    return contents.select("enclave", lit("content").alias("kind"), to_json(struct(*columns)).alias("data"))


def _is_time(field: StructField) -> bool:
    return isinstance(field.dataType, TimestampType)
