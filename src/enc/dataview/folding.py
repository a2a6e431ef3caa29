"""Both folds over the events of enclaves, on the driver for a few events and on executors for many.

Rows come in by enclave and seq: before an enclave's events comes what is known of it, without a seq. Rows go out as
JSON, each with the name of its table. On executors both folds read events one after the other, so that an enclave's
whole history needs no more memory than what it comes to.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import (
    broadcast,
    coalesce,
    col,
    from_json,
    get_json_object,
    lit,
    struct,
    timestamp_millis,
    to_json,
    unix_millis,
    when,
)
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from enc.core.types import Event
from enc.dataview.contents import Contents, Row
from enc.dataview.fold import CONTROL, State, fold
from enc.dataview.lake import CONTENT_STATUS
from enc.dataview.schema import QUARANTINE, TEXT, arrow
from enc.dataview.transforms.kinds import is_revision, revised_id

REGISTRY = "registry"
MADE = StructType([StructField(name, TEXT) for name in ("table", "enclave", "data")])
_ARROW = pa.schema([(name, pa.string()) for name in MADE.fieldNames()])
_COLUMNS = (
    "enclave seq id type author timestamp exp content content_hash tags hash alg sig sequencer seq_sig enc_v"
).split()
KNOWN = StructType([StructField(name, TEXT) for name in ("enclave", "kind", "data")])
"""What is known of an enclave: `state`, a _Known in JSON; or `content`, a row of `content_status`, in JSON."""
REFUSED = StructType([field for field in QUARANTINE if field.name in ("enclave", "seq", "id", "code", "reason")])
_BATCH, _BATCH_BYTES = 1000, 16 << 20

Made = tuple[str, str, str]


class Known(msgspec.Struct):
    """`state` as the fold wrote it. `complete`: no event of the enclave is missing."""

    complete: bool = False
    state: str | None = None


def fold_few(events: pa.Table, known: Iterable[Row]) -> list[Made]:
    """Rows of `events` with the driver, and rows of KNOWN."""
    rows = [row | {"seq": -1} for row in known] + events.select(_COLUMNS).to_pylist()
    made: list[Made] = []
    for enclave, group in groupby(sorted(rows, key=itemgetter("enclave", "seq")), itemgetter("enclave")):
        here = list(group)
        control = list(_control(row for row in here if _is_control(row)))
        is_registry = (REGISTRY, {}) in control
        contents = _contents((row for row in here if not _is_control(row)), registry=is_registry)
        made += (_made(table, enclave, row) for table, row in chain(control, contents) if table != REGISTRY)
    return made


def fold_control(events: DataFrame, known: DataFrame) -> DataFrame:
    """The same on executors: rows of MADE, and a row of REGISTRY for each enclave that is one.

    An enclave's events are read in order, one after the other: what is held is its state, and the rows that change.
    """
    first = known.where(col("kind") == "state").select("*", lit(-1).cast("bigint").alias("seq"))
    rows = events.where(_control_type()).select(*_COLUMNS).unionByName(first, allowMissingColumns=True)
    return rows.repartition("enclave").sortWithinPartitions("enclave", "seq").mapInArrow(_fold_control, MADE)


def fold_contents(events: DataFrame, known: DataFrame, control: DataFrame) -> DataFrame:
    """The contents of the same events, with what `fold_control` made. Each content is folded by itself."""
    first = known.where(col("kind") == "content").select("*", lit(-1).cast("bigint").alias("seq"))
    first = first.withColumn("_of", get_json_object("data", "$.id"))
    target = when(is_revision(), coalesce(revised_id(), lit(""))).otherwise(col("id"))
    rows = events.where(~_control_type()).select(*_COLUMNS, target.alias("_of"))
    rows = rows.unionByName(first, allowMissingColumns=True)
    registries = control.where(col("table") == REGISTRY).select("enclave", lit(True).alias("_registry"))
    rows = rows.join(broadcast(registries), "enclave", "left").repartition("enclave", "_of")
    return rows.sortWithinPartitions("enclave", "_of", "seq").mapInArrow(_fold_contents, MADE)


def _control_type() -> Column:
    """It is a control event."""
    old, new = (col("type").isin(*sorted(CONTROL[version])) for version in (1, 2))
    return when(col("enc_v") == 1, old).otherwise(new)


def _is_control(row: Row) -> bool:
    """The same of a row, or it is a state."""
    kind = row.get("kind")
    return kind == "state" if kind else row["type"] in CONTROL[1 if row["enc_v"] == 1 else 2]


def _fold_control(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    groups = groupby(_rows(batches), itemgetter("enclave"))
    return _packed(_made(table, enclave, row) for enclave, group in groups for table, row in _control(group))


def _fold_contents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    groups = groupby(_rows(batches), itemgetter("enclave", "_of", "_registry"))
    return _packed(
        _made(table, enclave, row)
        for (enclave, _, registry), group in groups
        for table, row in _contents(group, registry=bool(registry))
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    return (row for batch in batches for row in batch.to_pylist())


def _packed(made: Iterator[Made]) -> Iterator[pa.RecordBatch]:
    """By rows and by bytes: a content may be a mebibyte."""
    rows, size = list[Made](), 0
    for row in made:
        rows.append(row)
        size += len(row[2])
        if len(rows) == _BATCH or size >= _BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Made]) -> pa.RecordBatch:
    arrays = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _made(table: str, enclave: str, row: Any) -> Made:
    return table, enclave, msgspec.json.encode(row).decode()


def _control(rows: Iterable[Row]) -> Iterator[tuple[str, Any]]:
    """Of one enclave: what is known of it, if anything, then its control events."""
    rest, known = iter(rows), Known()
    first = next(rest, None)
    if first is not None and first.get("kind"):
        known, first = msgspec.json.decode(first["data"], type=Known), next(rest, None)
    state = State() if known.state is None else msgspec.json.decode(known.state, type=State)
    if first is not None:
        folded = fold(state, map(_event, chain([first], rest)), first["enc_v"], complete=known.complete)
        yield "fold", state
        yield "enclaves", folded.enclave
        yield from (("access", row) for row in folded.access.values())
        yield from (("slots", row) for row in folded.slots.values())
        yield from (("quarantine", row) for row in folded.refused)
    if state.registry:
        yield REGISTRY, {}


def _contents(rows: Iterable[Row], *, registry: bool) -> Iterator[tuple[str, Any]]:
    """Of one enclave, or of one content: what is known, then events."""
    known: dict[str, Row] = {}
    said = Contents(known, registry=registry)
    for row in rows:
        if row.get("kind"):
            found = _NOTHING | msgspec.json.decode(row["data"])
            known[found["id"]] = found
        else:
            row["timestamp"] = _millis(row["timestamp"])
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
        timestamp=_millis(row["timestamp"]),
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


def rows_of(made: Iterable[Made], schema: StructType) -> pa.Table:
    """The same of rows with the driver."""
    fields, millis = arrow(schema), pa.timestamp("ms", "UTC")
    wire = pa.schema([pa.field(f.name, millis if pa.types.is_timestamp(f.type) else f.type) for f in fields])
    rows = [{**msgspec.json.decode(data), "enclave": enclave} for _, enclave, data in made]
    return pa.Table.from_pylist(rows, wire).cast(fields)


def told(contents: DataFrame) -> DataFrame:
    """Rows of `content_status` as rows of KNOWN."""
    fields = [f for f in CONTENT_STATUS if f.name != "enclave"]
    columns = [unix_millis(f.name).alias(f.name) if _is_time(f) else col(f.name) for f in fields]
    return contents.select("enclave", lit("content").alias("kind"), to_json(struct(*columns)).alias("data"))


def _is_time(field: StructField) -> bool:
    return isinstance(field.dataType, TimestampType)
